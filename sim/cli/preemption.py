"""`elpase preemption TRACE`: recompute, swap and offload side by side, over KV sizes, links and max_num_seqs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from sim.cli.flags import EngineCommand, engine_config, engine_options, whole_number
from sim.cli.numbers import FiniteRange
from sim.cli.replay import option
from sim.cli.sweep_inputs import is_said
from sim.cli.sweep_run import carried_out, ended, running_options
from sim.cli.workload_flags import TRACE_HELP, workload_options
from sim.config import KV_PREEMPTIONS
from sim.errors import InputError
from sim.host import HOST_MEMORY_GIB

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.sweeps.study import Study

_COMPARED = "Compared"
_OWN_WAY = (
    "kv_preemption", "swap_space", "kv_offloading_size", "num_gpu_blocks_override", "max_num_seqs", "pcie_bandwidth",
)  # fmt: skip
"""Flags of `vllm serve` that are axes here, or follow from the mode."""


def listed(kind: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    """A type of option: values of a kind, with commas between them."""

    def each(text: str) -> list[Any]:
        values = [value.strip() for value in text.split(",")]
        if not all(values):
            raise click.BadParameter(f"{text!r} is not a list such as A,B,C.")
        return [kind(value) for value in values]

    return each


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is not a number.") from error


@click.command(
    cls=EngineCommand,
    context_settings={"max_content_width": 120},
    short_help="Recompute, swap, offload: which is best, at which KV size and PCIe bandwidth.",
    help=f"""Replay a workload under each mode of preemption; say which is best where, and by which figure.

    {TRACE_HELP}
    `swap` is a counterfactual: vLLM's V0 did it, V1 does not.

    \b
    elpase preemption azure-conv --limit 300 --rate-scale 2 --kv-blocks 4000,8000 --pcie-bandwidth 16,50 --out modes
    elpase preemption random --num-prompts 200 --max-model-len 2k --kv-blocks 1000,2000 --max-num-seqs 32,64,128""",
)
@option(
    _COMPARED, "--modes", type=listed(str), default=",".join(KV_PREEMPTIONS), show_default=True, metavar="A,B,C",
    help="What becomes of a victim's KV: computed again, swapped as V0 did, or offloaded as V1 can.",
)  # fmt: skip
@option(
    _COMPARED, "--kv-blocks", "--num-gpu-blocks-override", type=listed(whole_number), default=None, metavar="A,B,C",
    help="KV blocks of the GPU. Default: the profile's.",
)  # fmt: skip
@option(
    _COMPARED, "--pcie-bandwidth", type=listed(_number), default=None, metavar="A,B,C",
    help="GB/s to or from host memory. Default: by GPU, else 50.",
)  # fmt: skip
@option(
    _COMPARED, "--max-num-seqs", type=listed(whole_number), default=None, metavar="A,B,C",
    help="Requests that run at once: thrash, and where the ceiling is. Default: the profile's.",
)  # fmt: skip
@option(
    _COMPARED, "--host-memory", type=FiniteRange(min=0), default=HOST_MEMORY_GIB, show_default=True, metavar="GIB",
    help="Host memory, over all GPUs, that swap and offload may fill.",
)  # fmt: skip
@option(_COMPARED, "--json", "as_json", is_flag=True, help="Print JSON.")
@running_options
@workload_options
@partial(engine_options, without=_OWN_WAY)
@click.pass_context
def command(ctx: click.Context, /, **kwargs: Any) -> None:  # noqa: D103  # its help is above
    from sim.sweeps.answers import OBJECTIVE
    from sim.sweeps.preemption.comparison import compared
    from sim.sweeps.preemption.files import as_json

    comparison = compared(carried_out(_study(ctx, kwargs), kwargs, {}, OBJECTIVE))
    click.echo(as_json(comparison) if kwargs["as_json"] else str(comparison))
    ended(ctx, comparison.sweep, kwargs["out"], comparison.save, "preemption.json")


def _study(ctx: click.Context, kwargs: dict[str, Any]) -> Study:
    from sim.sweeps.preemption.comparison import KV, LINK, SEQS, comparison_study
    from sim.sweeps.study import Study, whole_workload
    from sim.sweeps.task import Measure

    workload = whole_workload(kwargs["trace"], {})
    base = Study(
        workload={name: kwargs[name] for name in workload} | {"trace": workload["trace"]},
        engine=engine_config({name: value for name, value in kwargs.items() if name not in _OWN_WAY}),
        profile=kwargs["profile"],
        replications=kwargs["replications"],
        measure=Measure({}, kwargs["warmup_s"], kwargs["cooldown_s"]),
        outside=kwargs["outside"],
    )
    if is_said(ctx, "host_memory") and set(kwargs["modes"]) == {"recompute"}:
        raise InputError("--host-memory goes with a mode that copies: swap or offload")
    axes = {KV: kwargs["kv_blocks"], LINK: kwargs["pcie_bandwidth"], SEQS: kwargs["max_num_seqs"]}
    return comparison_study(base, kwargs["modes"], {k: v or [] for k, v in axes.items()}, kwargs["host_memory"])
