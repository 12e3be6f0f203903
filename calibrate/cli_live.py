"""`elpase validate live`: the simulator against a real vLLM server, on this machine, in one go."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table

from calibrate.harness.interpreter import find_interpreter
from calibrate.live import FIGURES, WIDENING, Bed
from calibrate.live_calibrate import model_config
from calibrate.live_model import write_model
from calibrate.live_runs import LiveRuns
from calibrate.live_validation import ORDERED, Plan, validate_live
from calibrate.machine import cpu_facts, gpu_facts
from sim.cli.paths import PathType
from sim.cli.progress import counting
from sim.cli.whole_table import show
from sim.output import write_text_atomic
from sim.plurals import counted
from sim.report.units import percent, signed_percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from calibrate.live import Order
    from calibrate.live_validation import Outcome


def _budgets(_ctx: click.Context, _param: click.Parameter, said: str) -> tuple[int, ...]:
    try:
        budgets = tuple(int(text) for text in said.split(","))
    except ValueError:
        raise click.BadParameter(f"got {said!r}, expected whole numbers such as 128,512,2048") from None
    if min(budgets) < 1:
        raise click.BadParameter(f"got {said!r}, expected numbers of 1 or more")
    return budgets


def _rates(_ctx: click.Context, _param: click.Parameter, said: str) -> tuple[float | None, ...] | None:
    if said == "auto":
        return None
    try:
        given = [float(text) for text in said.split(",")]
    except ValueError:
        raise click.BadParameter(f"got {said!r}, expected auto, or numbers such as 2,5,inf") from None
    if not all(rate > 0 for rate in given):
        raise click.BadParameter(f"got {said!r}, expected requests per second, above 0")
    return tuple(None if rate == float("inf") else rate for rate in given)


@click.command(short_help="Compare with a real vLLM server that is started here.")
@click.option("--vllm-python", required=True, type=PathType(), help="A Python that has vLLM 0.32.")
@click.option(
    "--out",
    default=Path("live-validation"),
    show_default=True,
    type=PathType(file_okay=False),
    help="Folder of the runs. What it holds already is not run again.",
)
@click.option(
    "--model",
    type=PathType(exists=True, file_okay=False),
    help="Folder with config.json and tokenizer (weights are dummies).  [default: a small Llama]",
)
@click.option("--dtype", default="float32", show_default=True, help="As vllm serve --dtype.")
@click.option("--calibrate-budget", default=1024, show_default=True, help="max_num_batched_tokens to calibrate at.")
@click.option("--budgets", default="128,512,2048", show_default=True, callback=_budgets, help="And to foretell.")
@click.option("--rates", default="auto", callback=_rates, help="Requests per second.  [default: two and inf]")
@click.option("--num-prompts", default=60, show_default=True, help="Requests of a run.")
@click.option("--starved-blocks", default=100, show_default=True, help="KV blocks of the run that preempts.")
@click.option("--repeats", default=3, show_default=True, type=click.IntRange(min=1), help="Real runs of each cell.")
@click.option("--threads", default=1, show_default=True, type=click.IntRange(min=1), help="Cores for the model.")
@click.option("--lock", type=PathType(dir_okay=False), help="File to lock during each timed run.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(vllm_python: Path, out: Path, model: Path | None, as_json: bool, **said: Any) -> None:
    """Start real `vllm serve`s, load them with the real `vllm bench serve`, and compare with what was foretold.

    One server setting calibrates: its iteration log gives the latency profile. Every other one is simulated from that
    profile alone, then measured several times, the repeats spread over the whole time. Takes some ten minutes; a run
    that is there already is not made again.

    Example: elpase validate live --vllm-python ~/vllm/bin/python --out live
    """
    vllm = find_interpreter(vllm_python)
    lock, bed = said.pop("lock"), Bed(dtype=said.pop("dtype"), threads=said.pop("threads"))
    plan = Plan(bed, **said)
    out = out.absolute()
    folder = write_model(out / "model") if model is None else model.absolute()
    facts = {
        **(cpu_facts() if vllm.is_cpu else gpu_facts()),
        "is_cpu": vllm.is_cpu,
        "engine_version": vllm.version,
        "model_config": model_config(folder),
    }
    servers = len(plan.budgets) + 2 if vllm.is_cpu else 1
    total = plan.repeats * (1 + len(plan.budgets) * 3 + 1)
    with (
        LiveRuns(vllm, bed, folder, out, lock=lock, servers=servers) as real,
        counting("real runs", "run", total) as on_run,
    ):
        outcome = validate_live(plan, real, facts, on_run)
    outcome.profile.save(out / "profile.json")
    document = outcome.document()
    write_text_atomic(out / "live.json", json.dumps(document, indent=2) + "\n")
    if as_json:
        click.echo(json.dumps(document, indent=2))
    else:
        _print(outcome)


def _print(outcome: Outcome) -> None:
    for figure, (_, label) in FIGURES.items():
        table = Table(title=label, title_justify="left")
        table.add_column("budget @ rate")
        for column in ("real", "simulated", "error", f"±{percent(WIDENING)}"):
            table.add_column(column, justify="right")
        for check in outcome.checks:
            if check.figure == figure:
                low, high = min(check.real), max(check.real)
                verdict = "yes" if check.inside else "NO"
                row = (f"{low:,.1f} to {high:,.1f}", f"{check.simulated:,.1f}", signed_percent(check.error), verdict)
                table.add_row(check.cell, *row)
        show(table)
    click.echo(f"Inside: {outcome.inside} of {len(outcome.checks)} ({percent(outcome.inside / len(outcome.checks))})")
    for told in _order_lines(outcome.orders):
        click.echo(told)
    for count in outcome.preemptions:
        real, error = ", ".join(map(str, count.real)), signed_percent(count.error)
        click.echo(f"Preemptions, {count.cell}: real {real}; simulated {count.simulated} ({error})")


def _order_lines(found: Sequence[Order]) -> list[str]:
    lines = []
    for figure in ORDERED:
        clear = [order for order in found if order.figure == figure and order.clear]
        wrong = [f"{order.lower} < {order.higher} @ {order.load}" for order in clear if not order.kept]
        told = f"; not: {', '.join(wrong)}" if wrong else ""
        kept = len(clear) - len(wrong)
        lines.append(
            f"Order of budgets by {FIGURES[figure][1]}: {kept} of {counted(len(clear), 'clear pair')} kept{told}"
        )
    return lines
