"""`elpase compare REAL SIM`: two benchmark results side by side, or two folders of them."""

from __future__ import annotations

import json
from difflib import get_close_matches
from typing import TYPE_CHECKING

import click

from sim.cli.paths import PathType
from sim.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from sim.report.bench.compare import Comparison
    from sim.report.bench.run import BenchRun

EXIT_DIFFERENT = 1
_SHOWN = 6
"""Names of runs in one line."""


@click.command(
    short_help="Two benchmark results side by side, or two folders of them.",
    context_settings={"max_content_width": 120},
    help="""Compare a measured benchmark result with a simulated one: the error of each figure by itself.

    REAL and SIM are results of `vllm bench serve` (with --save-detailed also the distributions), folders or result.json
    of `elpase replay --out`, reports of GuideLLM 0.5 to 0.8 (benchmarks.json) or summaries of AIPerf 0.13
    (profile_export_aiperf.json, with profile_export.jsonl beside it). Of two folders, results of the same names are
    compared.

    Each file is checked by itself first: Little's law, rates, lists. Exit code 1: a file breaks a law, or an error is
    beyond its tolerance.

    \b
    elpase compare bench.json run/result.json --plot errors.png
    elpase compare bench.json run --tolerance output_throughput=0.05 --tolerance p99_itl_ms=0.2
    elpase compare measured/ simulated/ --json""",
)
@click.argument("real", type=PathType(exists=True))
@click.argument("sim", type=PathType(exists=True))
@click.option("--run", "name", help="Which run of files or folders that hold several.")
@click.option(
    "--tolerance",
    multiple=True,
    metavar="METRIC=FRACTION",
    help="Largest error allowed, such as mean_ttft_ms=0.1; as often as needed.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a list of one JSON object per comparison.")
@click.option("--plot", type=PathType(dir_okay=False), help="Draw distributions (PNG or SVG).")
@click.pass_context
def command(  # noqa: D103  # its help is above
    ctx: click.Context,
    real: Path,
    sim: Path,
    name: str | None,
    tolerance: tuple[str, ...],
    as_json: bool,
    plot: Path | None,
) -> None:
    # Heavy libraries are loaded only when there is something to compare.
    from sim.report.bench.compare import compare

    limits = dict(_limit(text) for text in tolerance)
    pairs = {key: compare(*both) for key, both in _paired(real, sim, name).items()}
    for told in pairs.values():
        _require_limits(told, limits)
    _show(pairs, limits, as_json=as_json)
    if plot is not None:
        from sim.report.bench.plots import plot_comparison

        plot_comparison(pairs, plot)
    if not all(told.sound and _within(told, limits) for told in pairs.values()):
        ctx.exit(EXIT_DIFFERENT)


def _show(pairs: Mapping[str, Comparison], limits: Mapping[str, float], *, as_json: bool) -> None:
    from sim.report.bench import told

    if as_json:
        click.echo(json.dumps([told.as_json(key, one, limits) for key, one in pairs.items()], allow_nan=False))
    elif len(pairs) == 1:
        click.echo(told.table(next(iter(pairs.values())), limits))
    else:
        click.echo(told.many_table(pairs))


def _limit(text: str) -> tuple[str, float]:
    metric, _, share = text.partition("=")
    try:
        limit = float(share)
    except ValueError:
        limit = -1.0
    if not metric or not 0 <= limit < float("inf"):
        raise InputError(field="--tolerance", value=text, expected="METRIC=FRACTION, such as mean_ttft_ms=0.1")
    return metric, limit


def _require_limits(told: Comparison, limits: Mapping[str, float]) -> None:
    """A tolerance that nothing is held to would let everything pass."""
    known = [figure.key for figure in told.figures]
    for metric in limits:
        if metric not in known:
            close = get_close_matches(metric, known, n=1)
            meant = f"did you mean {close[0]}?" if close else f"both files have {', '.join(known)}"
            raise InputError(f"not a figure that both files have; {meant}", field="--tolerance", value=metric)


def _within(told: Comparison, limits: Mapping[str, float]) -> bool:
    from sim.report.bench.told import within_limit

    return all(within_limit(figure, limits[figure.key]) for figure in told.figures if figure.key in limits)


def _paired(real: Path, sim: Path, name: str | None) -> dict[str, tuple[BenchRun, BenchRun]]:
    from sim.report.bench.files import read_results

    found = [read_results(path) for path in (real, sim)]
    if name is not None and all(len(runs) == 1 and name not in runs for runs in found):
        expected = f"{' or '.join(dict.fromkeys(_names(runs) for runs in found))}, or none, as there is one of each"
        raise InputError(field="--run", value=name, expected=expected)
    left, right = (_chosen(runs, path, name) for runs, path in zip(found, (real, sim), strict=True))
    if len(left) == len(right) == 1:
        key, one = next(iter(left.items()))
        return {key: (one, next(iter(right.values())))}
    both = [key for key in left if key in right]
    if not both:
        hint = "" if len(left) > 1 and len(right) > 1 else "; --run says which"
        raise InputError(f"no run of {real} ({_names(left)}) has the name of one of {sim} ({_names(right)}){hint}")
    for path, runs in ((real, left), (sim, right)):
        if alone := [key for key in runs if key not in both]:
            click.echo(f"elpase: note: only in {path}: {', '.join(alone)}", err=True)
    return {key: (left[key], right[key]) for key in both}


def _chosen(runs: dict[str, BenchRun], path: Path, name: str | None) -> dict[str, BenchRun]:
    """A lone run needs no choosing."""
    if name is None or len(runs) == 1:
        return runs
    if name not in runs:
        raise InputError(file=path, field="--run", value=name, expected=f"one of {_names(runs)}")
    return {name: runs[name]}


def _names(runs: Mapping[str, BenchRun]) -> str:
    shown = list(runs)[:_SHOWN]
    return ", ".join(shown) + (f" and {len(runs) - _SHOWN} more" if len(runs) > _SHOWN else "")
