"""`elpase replay TRACE`: one run, from a workload to result.json, tables, pictures and the console table."""

from __future__ import annotations

import warnings
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sim.cli.flags import EngineCommand, engine_config, engine_options
from sim.cli.output import result_directory
from sim.cli.progress import progress_bar
from sim.cli.workload_flags import TRACE_HELP, open_from, workload_options
from sim.latency.profile import DEFAULT_PROFILE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sim.experiment import Result
    from workloads import Trace

RESULT_FILES = (
    "result.json",
    "requests.parquet",
    "steps.parquet",
    "timeseries.png",
    "latency.png",
    "timeline.json.gz",
)
EXIT_PARTIAL = 130


@click.command(
    cls=EngineCommand,
    short_help="Replay a trace or a built-in workload: throughput, TTFT, TPOT, ITL.",
    help=f"""Replay a workload through vLLM's scheduler, and print what `vllm bench serve` would print.

    {TRACE_HELP} Flags of `vllm serve` stand above the settings that the profile was measured under.

    Example: elpase replay azure-conv --limit 200 --max-num-batched-tokens 2048 --out run""",
)
@workload_options
@click.option("--profile", default=DEFAULT_PROFILE, show_default=True, help="Latency profile: a name or a JSON file.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder for result.json, tables and pictures.")
@click.option("--timeline", is_flag=True, help="Also write timeline.json.gz for ui.perfetto.dev into --out.")
@click.option("--max-concurrency", type=click.IntRange(min=1), help="The client's cap on requests in flight.")
@click.option(
    "--outside",
    type=click.Choice(["warn", "raise", "clip"]),
    default="warn",
    show_default=True,
    help="What to do with steps that the profile was not fitted for.",
)
@click.option("--check", is_flag=True, help="Verify the scheduler's invariants at every step (slow).")
@click.option("--percentile-metrics", default="ttft,tpot,itl", show_default=True, help="As in vllm bench serve.")
@click.option("--metric-percentiles", default="99", show_default=True, help="As in vllm bench serve.")
@click.option("--goodput", multiple=True, metavar="METRIC:MS", help="Service level, such as ttft:200; repeatable.")
@engine_options
@click.pass_context
def command(ctx: click.Context, /, **kwargs: Any) -> None:  # noqa: D103  # its help is above
    # Heavy libraries are loaded only when there is something to run.
    from sim.experiment import settle, simulate
    from sim.latency.profile import Profile
    from sim.report.console import bench_table, sim_table
    from sim.report.summary import SummaryOptions

    if kwargs["timeline"] and kwargs["out"] is None:
        raise click.UsageError("--timeline needs --out")
    options = SummaryOptions.parse(kwargs["percentile_metrics"], kwargs["metric_percentiles"], kwargs["goodput"])
    profile = Profile.load(kwargs["profile"])
    flags = engine_config(kwargs)
    for note in flags.notes():
        _say(f"note: {note}")
    config = settle(flags, profile)
    trace = open_from(kwargs, config.max_model_len)
    with result_directory(kwargs["out"], supersedes=RESULT_FILES) if kwargs["out"] else nullcontext(None) as folder:
        with progress_bar("replay") as on_progress, _warnings_as_lines():
            result = simulate(
                trace,
                config,
                profile,
                max_in_flight=kwargs["max_concurrency"],
                outside=kwargs["outside"],
                check=kwargs["check"],
                on_progress=on_progress,
                meta={"trace": str(kwargs["trace"]), "seed": kwargs["seed"]},
            )
        _tell_skipped(trace)
        summary = result.summary(options)
        click.echo(bench_table(summary))
        click.echo(sim_table(summary))
        if folder is not None:
            _write(result, summary, folder, timeline=kwargs["timeline"])
    if kwargs["out"]:
        _say(f"wrote {kwargs['out']}/")
    if result.frames.meta["partial"]:
        _say("interrupted: what has finished is there, marked partial")
        ctx.exit(EXIT_PARTIAL)


def _write(result: Result, summary: dict[str, object], folder: Path, *, timeline: bool) -> None:
    from sim.report.plots import plot_latency, plot_timeseries
    from sim.report.summary import write_json
    from sim.report.tables import write_frames
    from sim.report.timeline import write_timeline

    write_json(summary, folder / "result.json")
    write_frames(result.frames, folder)
    plot_timeseries(result.frames, folder / "timeseries.png")
    plot_latency(result.frames, folder / "latency.png")
    if timeline:
        write_timeline(result.frames, folder / "timeline.json.gz")


def _tell_skipped(trace: Trace) -> None:
    for reason, count in trace.skipped.items():
        _say(f"skipped {count:,} rows: {reason}")


@contextmanager
def _warnings_as_lines() -> Iterator[None]:
    """Warnings of the run as one line each, when it is over."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for warning in caught:
        _say(f"warning: {warning.message}")


def _say(text: str) -> None:
    click.echo(f"elpase: {text}", err=True)
