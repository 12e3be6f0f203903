"""`elpase calibrate torch`: time real forward passes of a decoder, and write them as samples."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from calibrate.torch_options import TorchCommand, device_of, make_bench, torch_options
from sim.cli.numbers import FiniteRange
from sim.cli.paths import PathType
from sim.errors import InputError
from sim.output import resolved
from sim.plurals import counted

if TYPE_CHECKING:
    from pathlib import Path

_STEPS = 2000
_CPU_REACH = {"max_tokens": 2048, "max_seqs": 64, "max_context": 2048}
_GPU_REACH = {"max_tokens": 16384, "max_seqs": 512, "max_context": 32768}


@click.command(cls=TorchCommand, short_help="Time real forward passes of a model's decoder with torch.")
@click.option("--out", required=True, type=PathType(dir_okay=False), help="Samples (Parquet).")
@click.option("--budget-s", default=300.0, show_default=True, type=FiniteRange(min=1), help="Time to measure for.")
@click.option("--steps", default=_STEPS, show_default=True, type=click.IntRange(min=1), help="Grid steps at most.")
@click.option("--max-tokens", type=click.IntRange(min=16), help="Tokens of a step. Default: 16384; CPU: 2048.")
@click.option("--max-seqs", type=click.IntRange(min=1), help="Sequences of a step. Default: 512; CPU: 64.")
@click.option("--max-context", type=click.IntRange(min=16), help="Context of a sequence. Default: 32768; CPU: 2048.")
@click.option("--repeats", default=7, show_default=True, type=click.IntRange(min=1), help="Timings of a step at most.")
@click.option("--per-step-s", default=1.0, show_default=True, type=float, help="No more repeats after so many seconds.")
@click.option("--cold-l2/--warm-l2", default=True, show_default=True, help="Empty the GPU's L2 cache before a pass.")
@click.option("--shard-of", default=1, show_default=True, type=click.IntRange(min=1), help="Time one of N GPUs' shard.")
@click.option("--served/--no-served", default=True, show_default=True, help="Also serve bursts: the host's share.")
@torch_options()
def command(out: Path, budget_s: float, **kwargs: Any) -> None:
    """Time real forward passes of a model's decoder, with random weights and a paged KV cache.

    Goes on with an OUT that is there already. Ctrl-C keeps what has been timed.

    Example: elpase calibrate torch --model llama-3.1-8b --out h200-8b.parquet --budget-s 300
    """
    from calibrate.measure import Table
    from calibrate.torch_session import Session

    if not resolved(out).parent.is_dir():
        raise InputError(field="--out", value=str(out), expected="a file in a folder that exists")
    reach = _reach(kwargs)
    bench = make_bench(
        kwargs,
        max_tokens=reach["max_tokens"],
        max_seqs=reach["max_seqs"],
        shard_of=kwargs["shard_of"],
        cold_l2=kwargs["cold_l2"],
    )
    table = Table.open(out, bench.origin)
    before = len(table.steps)
    reached = Session.reaching(bench, table, **reach)
    chosen = {name: kwargs[name] for name in ("repeats", "per_step_s", "served", "steps")}
    replace(reached, **chosen).go(budget_s)
    click.echo(
        f"{counted(len(table.steps) - before, 'new sample')}, {len(table.steps)} in all,"
        f" {counted(len(table.skipped), 'step')} left out;"
        f" attention {bench.runner.backend.name}; wrote {out}"
    )


def _reach(kwargs: dict[str, Any]) -> dict[str, int]:
    """How far the grid goes where nothing was said: less on a CPU."""
    defaults = _CPU_REACH if device_of(kwargs) == "cpu" else _GPU_REACH
    return {name: kwargs[name] or default for name, default in defaults.items()}
