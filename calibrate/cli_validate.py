"""`elpase validate`: how far the simulator is from runs that were measured, or that are measured now (`live`)."""

from __future__ import annotations

import json
import math
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click
from joblib import Parallel, delayed
from rich.table import Table

from calibrate.measured import Replay, read_runs
from calibrate.validate import Comparison, compare, of_profile
from sim.cli.flags import EngineCommand, engine_config, engine_options, given
from sim.cli.main import Verb, VerbGroup
from sim.cli.numbers import FiniteRange
from sim.cli.paths import PathType
from sim.cli.progress import counting, progress_bar
from sim.cli.whole_table import show
from sim.errors import InputError
from sim.latency.profile import DEFAULT_PROFILE, Profile
from sim.plurals import counted
from sim.report.units import percent_tenths, signed_percent
from sim.sweeps.backends import MOST_JOBS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from calibrate.measured import Run
    from sim.config import EngineConfig

VERBS = {"live": Verb("calibrate.cli_live", "Compare with a real vLLM server that is started here.")}

_LABELS = {
    "throughput": ("Output throughput (tok/s)", 1.0),
    "makespan": ("Makespan (s)", 1.0),
    "ttft_mean": ("Mean TTFT (ms)", 1e3),
    "ttft_p50": ("Median TTFT (ms)", 1e3),
    "ttft_p99": ("P99 TTFT (ms)", 1e3),
    "tpot_mean": ("Mean TPOT (ms)", 1e3),
    "tpot_p99": ("P99 TPOT (ms)", 1e3),
    "itl_mean": ("Mean ITL (ms)", 1e3),
    "itl_p50": ("Median ITL (ms)", 1e3),
    "e2e_mean": ("Mean E2EL (ms)", 1e3),
    "cycle_mean": ("Mean cycle (ms)", 1e3),
    "cycle_p50": ("Median cycle (ms)", 1e3),
    "cycle_p99": ("P99 cycle (ms)", 1e3),
}

_STEP_LABELS = {
    "step_median_abs": "Step error, median",
    "step_p90_abs": "Step error, 90 % within",
    "step_median": "Step error, signed median",
}


class _Group(EngineCommand, VerbGroup):
    """The verb itself, with flags in sections, and below it the verb `live`."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Flags, then commands."""
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)


@click.group(
    cls=_Group,
    verbs=VERBS,
    invoke_without_command=True,
    subcommand_metavar="[live ...]",
    short_help="Replay a measured run; compare simulated with real times.",
)
@click.option("--profile", default=DEFAULT_PROFILE, show_default=True, help="Latency profile: a name or a JSON file.")
@click.option(
    "--measured",
    type=PathType(),
    help="CSV of requests, GuideLLM sweep, step cycles, folder with requests.jsonl and meta.json, or a result of"
    " vllm bench serve --save-detailed.",
)
@click.option(
    "--max-in-flight",
    "--max-concurrency",
    "max_in_flight",
    type=click.IntRange(min=1),
    help="The client's cap on requests in flight.",
)
@click.option("--select", default="", help="Only the runs of a file whose name has this text in it.")
@click.option(
    "--max-load",
    type=FiniteRange(min=0, min_open=True),
    help="Of a sweep, only constant rates below this share of the throughput that it reached.",
)
@click.option(
    "--jobs", default=1, show_default=True, type=click.IntRange(1, MOST_JOBS), help="Processes for many runs."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per run: real, simulated, errors.")
@click.option(
    "--plot",
    type=PathType(dir_okay=False),
    help="Draw running and waiting requests over the measured ones (PNG or SVG).",
)
@engine_options
def command(
    profile: str,
    measured: Path | None,
    max_in_flight: int | None,
    select: str,
    max_load: float | None,
    jobs: int,
    as_json: bool,
    plot: Path | None,
    **flags: Any,
) -> None:
    """Replay a measured run and compare each figure with the real one.

    Arrivals, lengths and the cap in flight are replayed; what the server did is simulated. Flags of `vllm serve` stand
    above the settings of the measured run, where its source has them, and those above the profile's.

    Example: elpase validate --measured open_8rps.csv --max-in-flight 256
    """
    ctx = click.get_current_context()
    if ctx.invoked_subcommand is not None:
        without_effect = given(ctx, *ctx.params)
        if without_effect:
            raise click.UsageError(
                f"{without_effect[0]} does nothing before {ctx.invoked_subcommand}, which is another run"
            )
        return
    if measured is None:
        raise click.UsageError("Missing option '--measured'.")
    if not measured.exists():
        raise InputError("no such file or folder", file=measured, field="--measured")
    config = engine_config(flags)
    loaded = Profile.load(profile)
    runs, others = of_profile(_selected(read_runs(measured), measured, select, max_load), loaded)
    if others:
        click.echo(f"note: {counted(len(others), 'run')} of other models left out, first {others[0]}", err=True)
    if max_in_flight is not None and not any(isinstance(run, Replay) for run in runs):
        raise InputError("--max-in-flight: single steps were measured here, and no client", file=measured)
    if plot is not None:
        _require_curves(runs, measured)
    done = _simulated(runs, loaded, config, max_in_flight, jobs)
    if any(math.isnan(value) for comparison in done for value in comparison.real.values()):
        click.echo("note: no TPOT or ITL where no answer has a second token: -, in JSON null", err=True)
    _tell(runs, done, loaded, as_json=as_json)
    if plot is not None:
        _draw(runs[0], done[0], plot)


def _selected(runs: list[Run], file: Path, text: str, max_load: float | None) -> list[Run]:
    chosen = [run for run in runs if text in run.name]
    if max_load is not None:
        chosen = [run for run in chosen if isinstance(run, Replay) and run.load is not None and run.load < max_load]
    if not chosen:
        raise InputError(f"none of {counted(len(runs), 'run')} is selected, first {runs[0].name}", file=file)
    return chosen


def _simulated(
    runs: list[Run], profile: Profile, config: EngineConfig, max_in_flight: int | None, jobs: int
) -> list[Comparison]:
    if len(runs) == 1:
        with progress_bar("validate", getattr(runs[0], "num_requests", None)) as on_progress:
            comparison, told = _one(runs[0], profile, config, max_in_flight, on_progress)
        return _warned([(comparison, told)])
    with counting("validate", "run", total=len(runs)) as on_run:
        work = Parallel(n_jobs=jobs, return_as="generator")(
            delayed(_of_many)(run, profile, config, max_in_flight) for run in runs
        )
        done = []
        for pair in work:
            done.append(pair)
            on_run()
    return _warned(done)


def _one(
    run: Run,
    profile: Profile,
    config: EngineConfig,
    max_in_flight: int | None,
    on_progress: Callable[[float, int], None] | None = None,
) -> tuple[Comparison, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        comparison = compare(run, profile, config, max_in_flight=max_in_flight, on_progress=on_progress)
    return comparison, [str(warning.message) for warning in caught]


def _of_many(
    run: Run, profile: Profile, config: EngineConfig, max_in_flight: int | None
) -> tuple[Comparison, list[str]]:
    """Without the simulated run itself: it comes from another process."""
    comparison, told = _one(run, profile, config, max_in_flight)
    return replace(comparison, result=None), told


def _warned(done: list[tuple[Comparison, list[str]]]) -> list[Comparison]:
    for text in dict.fromkeys(text for _, told in done for text in told):
        click.echo(f"warning: {text}", err=True)
    return [comparison for comparison, _ in done]


# -- what is printed ---------------------------------------------------------------------------------------------------


def _tell(runs: Sequence[Run], done: Sequence[Comparison], profile: Profile, *, as_json: bool) -> None:
    if as_json and len(runs) == 1:
        click.echo(json.dumps(_document(done[0]), indent=2))
    elif as_json:
        for run, comparison in zip(runs, done, strict=True):
            click.echo(json.dumps({"run": run.name, **_document(comparison)}))
    elif len(runs) == 1:
        count = getattr(runs[0], "num_requests", None)
        told = "" if count is None else f": {counted(count, 'request')}"
        show(_figures(done[0], title=f"{runs[0].name}{told}, profile {profile.name}"))
    else:
        show(_errors(runs, done, title=f"Errors (simulated / real - 1), profile {profile.name}"))


def _document(comparison: Comparison) -> dict[str, Any]:
    parts = {"real": comparison.real, "simulated": comparison.simulated, "errors": comparison.errors}
    return {name: _without_nan(part) for name, part in parts.items()}


def _without_nan(figures: Mapping[str, float]) -> dict[str, float | None]:
    """JSON has no NaN."""
    return {name: None if math.isnan(value) else value for name, value in figures.items()}


def _told(value: float) -> str:
    """A figure, or - for one that there is not."""
    return "-" if math.isnan(value) else f"{value:,.2f}"


def _figures(comparison: Comparison, title: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for column in ("real", "simulated", "error"):
        table.add_column(column, justify="right")
    errors = comparison.errors
    for name in comparison.real:
        label, unit = _LABELS[name]
        real, simulated = comparison.real[name] * unit, comparison.simulated[name] * unit
        table.add_row(label, _told(real), _told(simulated), signed_percent(errors[name]))
    for name, error in (comparison.steps or {}).items():
        told = signed_percent(error) if name == "step_median" else percent_tenths(error)
        table.add_row(_STEP_LABELS[name], "", "", told)
    return table


def _errors(runs: Sequence[Run], done: Sequence[Comparison], title: str) -> Table:
    """A row per run, and what the middle and the worst of them are."""
    names = list(dict.fromkeys(name for comparison in done for name in comparison.errors))
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for name in names:
        table.add_column(_STEP_LABELS.get(name) or _LABELS[name][0].partition(" (")[0], justify="right")
    all_errors = [comparison.errors for comparison in done]
    for run, errors in zip(runs, all_errors, strict=True):
        table.add_row(run.name, *(signed_percent(errors[name]) if name in errors else "" for name in names))
    table.add_section()
    found = {name: [errors[name] for errors in all_errors if name in errors] for name in names}
    sizes = {name: sorted(abs(error) for error in found[name] if not math.isnan(error)) or [math.nan] for name in names}
    table.add_row("median size", *(percent_tenths(_middle(sizes[name])) for name in names))
    table.add_row("largest", *(percent_tenths(sizes[name][-1]) for name in names))
    return table


def _middle(ordered: Sequence[float]) -> float:
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def _require_curves(runs: Sequence[Run], file: Path) -> None:
    if len(runs) != 1 or not isinstance(runs[0], Replay) or runs[0].timeseries is None:
        raise InputError(file=file, field="--plot", expected="one run with a timeseries.csv (t, running, waiting)")


def _draw(run: Run, comparison: Comparison, path: Path) -> None:
    from calibrate.plots_run import plot_curves  # matplotlib, only where somebody wants a picture

    assert isinstance(run, Replay)
    assert run.timeseries is not None
    assert comparison.result is not None
    plot_curves(run.name, run.timeseries, comparison.result.frames, path)
