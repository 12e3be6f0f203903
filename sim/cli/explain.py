"""`elpase explain DIR`: why a finished run is as slow as it is, and what to change.

Not for finding out: that is `sim.report.explain`. The one idea: findings first, then the evidence in 80 columns.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from sim.cli.paths import PathType
from sim.plurals import counted
from sim.report.explain import explain
from sim.report.explain.words import binding, cause_of, how_often, load, work, worst_gaps

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from rich.console import RenderableType

    from sim.report.explain import Explanation, Finding

_WIDTH = 80
_ENDINGS = {
    "nothing": "nobody left waiting",
    "tokens": "token budget",
    "seqs": "max_num_seqs",
    "blocks": "KV blocks for the next chunk",
    "gate": "KV blocks for the whole prompt (gate)",
    "watermark": "KV blocks beside the watermark",
    "preemption": "a preemption",
    "transfer": "KV on its way to or from the host",
}
_PARTS = {
    "client_queue": "client's queue",
    "request_path": "HTTP and tokenizer",
    "server_queue": "server's queue",
    "prefill": "prefill",
    "delivery": "detokenizer and HTTP",
}


@click.command(short_help="Why a run is as slow as it is: binding knobs, worst gaps, what to change.")
@click.argument("folder", metavar="DIR", type=PathType())
@click.option("--profile", metavar="NAME|FILE", help="The run's latency profile, where it is a file of your own.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(folder: Path, profile: str | None, as_json: bool) -> None:
    """Explain the run in DIR, as `elpase replay TRACE --out DIR` wrote it.

    Findings come first, each with its arithmetic and what to change. Then, for each setting, whether it was at work at
    all; the ten worst gaps between tokens, with the step and the prompt chunk behind each; where the wait for the first
    token went; and the load. What would happen otherwise is priced by the run's profile: run it again to be sure.

    Example: elpase explain run
    """
    explanation = explain(folder, profile)
    if as_json:
        click.echo(json.dumps(explanation.to_dict(), indent=2))
        return
    console = Console(width=_WIDTH, highlight=False)
    with console.capture() as captured:
        for part in _parts(explanation):
            console.print(part)
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


def _parts(told: Explanation) -> Iterator[RenderableType]:
    yield from _findings(told.findings)
    for note in told.notes:
        yield Text(f"Note: {note}.")
    yield from _section("How steps ended", _endings(told))
    yield from _section("Settings", _knobs(told))
    if told.gaps:
        yield from _section(worst_gaps(told), _gaps(told))
        yield Text(_itl(told))
    if told.ttft:
        yield from _section("Mean wait for the first token, from the arrival on", _ttft(told))
    yield from _section("Work", Text(work(told)))
    yield from _section("Load", Text(load(told)))


def _findings(findings: tuple[Finding, ...]) -> Iterator[RenderableType]:
    if not findings:
        yield Text("Nothing holds this run back: there is nothing to change.", style="bold")
    for number, finding in enumerate(findings, 1):
        yield Text(f"{number}. {finding.what}", style="bold")
        for line in finding.because:
            yield _hanging("-", line)
        for line in finding.change:
            yield _hanging(">", line)


def _hanging(mark: str, line: str) -> RenderableType:
    """A mark, and the line beside it however often it is broken."""
    grid = Table.grid(padding=(0, 1))
    grid.add_row(Text(mark), Text(line))
    return Padding(grid, (0, 0, 0, 3))


def _section(title: str, body: RenderableType) -> Iterator[RenderableType]:
    yield Text(f"\n{title}", style="bold")
    yield body


def _table(*columns: str, left: Iterable[int] = (0,)) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    for at, name in enumerate(columns):
        table.add_column(name, justify="left" if at in set(left) else "right", overflow="fold")
    return table


def _endings(told: Explanation) -> Table:
    table = _table("admission ended by", "steps", "% of time")
    for ending in told.endings:
        if ending.steps:
            table.add_row(_ENDINGS[ending.limit], f"{ending.steps:,}", f"{100 * ending.share:.1f}")
    return table


def _knobs(told: Explanation) -> Table:
    table = _table("setting", "value", "binding", "", left=(0, 2, 3))
    for knob in told.knobs:
        table.add_row(knob.name, knob.value, binding(knob), how_often(knob))
    return table


def _gaps(told: Explanation) -> Table:
    table = _table("ms", "end (s)", "waited", "tokens", "decodes", "cause", left=(5,))
    for gap in told.gaps:
        table.add_row(
            f"{gap.gap_s * 1e3:,.0f}", f"{gap.end_s:,.2f}", f"{gap.num_requests:,}", f"{gap.num_tokens:,}",
            f"{gap.decodes:,}", cause_of(gap),
        )  # fmt: skip
    return table


def _itl(told: Explanation) -> str:
    itl = told.itl
    return (
        f"waited: requests with that gap; tokens, decodes: of its longest step; cause: the largest prompt chunk in it,"
        f" and its context. {counted(itl.num_gaps, 'gap')} in all: median {itl.median_s * 1e3:,.1f} ms, 99th percentile"
        f" {itl.p99_s * 1e3:,.1f} ms."
    )


def _ttft(told: Explanation) -> Table:
    table = _table("", "mean (ms)", "99th percentile", "% of mean")
    for part in told.ttft:
        table.add_row(_PARTS[part.name], f"{part.mean_ms:,.1f}", f"{part.p99_ms:,.1f}", f"{100 * part.share:.1f}")
    return table
