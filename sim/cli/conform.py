"""`elpase conform FILE...`: compare the core with recorded decisions of the real scheduler, step by step."""

from __future__ import annotations

import json
from importlib import import_module
from typing import TYPE_CHECKING

import click

from sim.cli.flags import given
from sim.cli.paths import PathType
from sim.cli.progress import counting
from sim.conformance import Conformance, Difference, read_cases
from sim.plurals import counted

if TYPE_CHECKING:
    from pathlib import Path


@click.command()
@click.argument("files", nargs=-1, type=PathType())
@click.option("--live", type=PathType(), metavar="PYTHON", help="An interpreter with the real vLLM.")
@click.option("--cases", type=click.IntRange(min=1), default=200, show_default=True, help="With --live: how many.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="With --live: which.")
@click.option("--keep", type=PathType(), metavar="FILE", help="With --live: write the recorded cases.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    files: tuple[Path, ...],
    live: Path | None,
    cases: int,
    seed: int,
    keep: Path | None,
    as_json: bool,
) -> None:
    """Compare the scheduler with vLLM's own recorded decisions.

    Drives the core over the recorded cases in FILES (JSON lines, .gz or not) and compares, at every step, who got how
    many tokens and in which order, who was admitted with which prefix hit, who was preempted, free blocks, the waiting
    queue, drafts and who finished. Exits with 1 on any difference.

    With --live it draws new random cases, has the vLLM in that interpreter decide them, and compares at once: run it
    with your own vLLM to see whether what elpase simulates holds for it.

    Example: elpase conform tests/golden/prefix.jsonl.gz
    """
    if not files and live is None:
        raise click.UsageError("nothing to compare: give recorded FILES, or --live PYTHON")
    without_effect = given(ctx, "cases", "seed", "keep") if live is None else []
    if without_effect:
        raise click.UsageError(f"{without_effect[0]} goes with --live: recorded FILES are compared as they are")
    result, refused = Conformance(), 0
    for path in files:
        for case in read_cases(path):
            result.add(case)
    if live is not None:
        refused = _compare_live(result, live, cases, seed, keep)
    if as_json:
        click.echo(json.dumps(_as_dict(result, refused), indent=2))
    else:
        _print(result, refused)
    ctx.exit(0 if result.ok else 1)


def _compare_live(result: Conformance, python: Path, cases: int, seed: int, keep: Path | None) -> int:
    """Add live cases to the result; how many the real scheduler refused or never ended."""
    # By name, as nothing of sim may depend on calibrate, where other people's interpreters are known.
    conform_live = import_module("calibrate.live_conformance").conform_live
    with counting("conform", "case", cases) as one_more:
        refused: dict[str, str] = conform_live(result, python, cases, seed, one_more, keep)
    return len(refused)


def _as_dict(result: Conformance, refused: int) -> dict[str, object]:
    first = result.first_difference
    return {
        "cases": result.cases,
        "steps": result.steps,
        "equal": result.equal,
        "skipped": result.skipped,
        "refused": refused,
        "first_difference": first.as_dict() if first else None,
    }


def _print(result: Conformance, refused: int) -> None:
    click.echo(f"cases {result.cases:,}, steps {result.steps:,}, equal {result.equal:,}")
    for feature, count in sorted(result.skipped.items()):
        click.echo(f"skipped {counted(count, 'case')}: {feature} is not known to this version")
    if refused:
        click.echo(f"not compared, as vLLM refuses them or waits for ever in them: {counted(refused, 'case')}")
    if not result.steps:
        click.echo("nothing was compared")
    if result.first_difference:
        _print_difference(result.first_difference)


def _print_difference(difference: Difference) -> None:
    click.echo(f"first difference: case {difference.case}, step {difference.step}, {difference.key}")
    click.echo(f"  vLLM:   {json.dumps(difference.recorded)}")
    click.echo(f"  elpase: {json.dumps(difference.decided)}")
    click.echo(f"  before: {json.dumps(difference.state_before)}")
