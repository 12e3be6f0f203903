"""`elpase conform FILE...`: compare the core with recorded decisions of the real scheduler, step by step."""

from __future__ import annotations

import json
from pathlib import Path

import click

from sim.conformance import Conformance, Difference, read_cases


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
@click.pass_context
def command(ctx: click.Context, files: tuple[Path, ...], as_json: bool) -> None:
    """Compare the scheduler with vLLM's own recorded decisions.

    Drives the core over the recorded cases in FILES (JSON lines, .gz or not) and compares, at every step, who got how
    many tokens and in which order, who was admitted with which prefix hit, who was preempted, free blocks, the waiting
    queue, drafts and who finished. Exits with 1 on any difference.

    Example: elpase conform tests/golden/prefix.jsonl.gz
    """
    result = Conformance()
    for path in files:
        for case in read_cases(path):
            result.add(case)
    if as_json:
        click.echo(json.dumps(_as_dict(result), indent=2))
    else:
        _print(result)
    ctx.exit(0 if result.ok else 1)


def _as_dict(result: Conformance) -> dict[str, object]:
    first = result.first_difference
    return {
        "cases": result.cases,
        "steps": result.steps,
        "equal": result.equal,
        "skipped": result.skipped,
        "first_difference": first.as_dict() if first else None,
    }


def _print(result: Conformance) -> None:
    click.echo(f"cases {result.cases:,}, steps {result.steps:,}, equal {result.equal:,}")
    for feature, count in sorted(result.skipped.items()):
        click.echo(f"skipped {count:,} cases: {feature} is not known to this version")
    if not result.steps:
        click.echo("nothing was compared")
    if result.first_difference:
        _print_difference(result.first_difference)


def _print_difference(difference: Difference) -> None:
    click.echo(f"first difference: case {difference.case}, step {difference.step}, {difference.key}")
    click.echo(f"  vLLM:   {json.dumps(difference.recorded)}")
    click.echo(f"  elpase: {json.dumps(difference.decided)}")
    click.echo(f"  before: {json.dumps(difference.state_before)}")
