"""`elpase replay TRACE`: one run, from a workload to result.json, tables, pictures and the console table."""

from __future__ import annotations

import re
import warnings
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sim.cli.flags import EngineCommand, GroupedOption, engine_config, engine_options
from sim.cli.made_by import made_by
from sim.cli.paths import PathType
from sim.cli.progress import progress_bar, working
from sim.cli.start import EXIT_INTERRUPTED
from sim.cli.workload_flags import TRACE_HELP, workload_options
from sim.interrupt import SecondCtrlC, handling_ctrl_c
from sim.latency.profile import DEFAULT_PROFILE
from sim.output import result_directory
from sim.plurals import counted
from sim.workload import open_from, remarks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from sim.config import Settled
    from sim.experiment import Result
    from sim.latency.profile import Profile
    from sim.report.frames import Frames
    from sim.report.summary import SummaryOptions
    from workloads import Trace

Decorated = TypeVar("Decorated", bound="Callable[..., Any]")

RESULT_FILES = (
    "result.json",
    "requests.parquet",
    "steps.parquet",
    "timeseries.png",
    "latency.png",
    "timeline.json.gz",
)
MOST_KEPT = 50_000
"""Requests whose steps and tokens are kept unasked: they take some 7 kB each."""


_SERVICE_LEVEL = re.compile(r"[a-z_0-9]+:[^:]*")
"""What may follow `--goodput`, as often as one likes."""


class ReplayCommand(EngineCommand):
    """Takes `--goodput ttft:200 tpot:20`, as vLLM does, beside one flag for each."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Give every service level a flag of its own, which is all that click knows."""
        split: list[str] = []
        for arg in args:
            if len(split) > 1 and split[-2] == "--goodput" and _SERVICE_LEVEL.fullmatch(arg):
                split.append("--goodput")
            split.append(arg)
        return super().parse_args(ctx, split)


def option(group: str, *names: str, **settings: Any) -> Callable[[Decorated], Decorated]:
    """A flag, in a section of the help text."""
    return click.option(*names, cls=GroupedOption, group=group, **settings)


@click.command(
    cls=ReplayCommand,
    context_settings={"max_content_width": 120},
    short_help="Replay a trace or a built-in workload: throughput, TTFT, TPOT, ITL.",
    help=f"""Replay a workload through vLLM's scheduler, and print what `vllm bench serve` would print.

    {TRACE_HELP}
    Flags of `vllm serve` stand above the settings that the profile was measured under.

    \b
    elpase replay azure-conv --limit 200 --max-num-batched-tokens 2048 --out run
    elpase replay random --request-rate 8 --random-input-len 2048 --num-prompts 500
    elpase replay AzureLLMInferenceTrace_conv.csv --rate-scale 1.5""",
)
@option(
    "Results",
    "--out",
    type=PathType(file_okay=False),
    metavar="PATH",
    help="Folder for result.json, tables and pictures.",
)
@option("Results", "--timeline", is_flag=True, help="Also write timeline.json.gz, for ui.perfetto.dev, into --out.")
@option("Results", "--percentile-metrics", default="ttft,tpot,itl", show_default=True, help="As in vllm bench serve.")
@option("Results", "--metric-percentiles", default="99", show_default=True, help="As in vllm bench serve.")
@option("Results", "--goodput", multiple=True, metavar="METRIC:MS", help="Service levels: ttft:200 tpot:20 e2el:9000.")
@option(
    "Simulation", "--profile", default=DEFAULT_PROFILE, show_default=True, help="Latency profile: a name or a file."
)
@option(
    "Simulation",
    "--outside",
    type=click.Choice(["warn", "raise", "clip"]),
    default="warn",
    show_default=True,
    help="What to do with steps that the profile was not fitted for.",
)
@option("Simulation", "--check", is_flag=True, help="Verify the scheduler's invariants at every step (slow).")
@option("Simulation", "--leap/--no-leap", default=True, help="Take quiet steps many at once; same result.")
@option(
    "Results",
    "--keep-steps/--no-keep-steps",
    default=None,
    help=f"Keep steps and tokens, for pictures and steps.parquet. Default: up to {MOST_KEPT:,} requests.",
)
@workload_options
@engine_options
@click.pass_context
def command(ctx: click.Context, /, **kwargs: Any) -> None:  # noqa: D103  # its help is above
    # Heavy libraries are loaded only when there is something to run.
    from sim.experiment import settled, unpriced
    from sim.host import require_link_used
    from sim.latency.profile import Profile
    from sim.report.summary import SummaryOptions

    if kwargs["timeline"] and kwargs["out"] is None:
        raise click.UsageError("--timeline needs --out")
    options = SummaryOptions.parse(kwargs["percentile_metrics"], kwargs["metric_percentiles"], kwargs["goodput"])
    profile = Profile.load(kwargs["profile"])
    flags = engine_config(kwargs)
    require_link_used([asdict(flags)])
    for note in flags.notes():
        say(f"note: {note}")
    for line in unpriced(flags, profile):
        say(f"warning: {line}")
    config = settled(flags, profile)
    trace = open_from(kwargs, config.scheduler.max_model_len)
    kwargs |= {"keep_steps": _keep_steps(trace, kwargs)}
    second = SecondCtrlC(lambda: say("interrupted: the results are still written; Ctrl-C again drops them"))
    place = result_directory(kwargs["out"], supersedes=RESULT_FILES) if kwargs["out"] else nullcontext(None)
    with handling_ctrl_c(second), place as folder:
        result = _run(trace, config, profile, kwargs)
        if result.meta["partial"]:
            second.first_came = True
            say("interrupted: what has finished is kept, marked partial; Ctrl-C again drops it")
        result = result.noting(made_by(kwargs, trace))
        summary = _summary(result, options)
        if folder is not None:
            _write(result, summary, folder, timeline=kwargs["timeline"])
    # After the files: a reader of stdout that leaves early (`| head`) must not cost them.
    _show(summary)
    if kwargs["out"]:
        say(f"wrote {kwargs['out']}/")
    if second.first_came:
        ctx.exit(EXIT_INTERRUPTED)


def _keep_steps(trace: Trace, kwargs: Mapping[str, Any]) -> bool:
    """As asked; where nobody did, those of short runs."""
    if kwargs["keep_steps"] is False and kwargs["timeline"]:
        raise click.UsageError("--timeline needs --keep-steps")
    if kwargs["keep_steps"] is not None or kwargs["timeline"]:
        return kwargs["keep_steps"] is not False
    if trace.at_most is None or trace.at_most <= MOST_KEPT:
        return True
    say(
        f"note: up to {trace.at_most:,} requests, more than {MOST_KEPT:,}: steps and tokens are not kept (no pictures,"
        " no steps.parquet, ITL percentiles within 0.02 %); --keep-steps keeps them"
    )
    return False


def _summary(result: Result, options: SummaryOptions) -> dict[str, object]:
    """The result's, in little memory."""
    from sim.report.frames import Digest
    from sim.report.summary import summarize_as_arrays, summarize_digest

    of = result.record
    return summarize_digest(of, options) if isinstance(of, Digest) else summarize_as_arrays(of, options)


def _run(trace: Trace, config: Settled, profile: Profile, kwargs: Mapping[str, Any]) -> Result:
    """The run, with its bar, and what there is to say of it."""
    from sim.experiment import simulate
    from sim.report.frames import refusals

    with progress_bar("replay", trace.at_most) as on_progress, _warnings_as_lines():
        result = simulate(
            trace,
            config,
            profile,
            max_in_flight=kwargs["max_concurrency"],
            seed=kwargs["seed"],
            outside=kwargs["outside"],
            check=kwargs["check"],
            leap=kwargs["leap"],
            keep_steps=kwargs["keep_steps"],
            on_progress=on_progress,
        )
    for line in remarks(trace, config.scheduler):
        say(f"note: {line}")
    refused = refusals(result.record)
    if refused:
        say(f"note: the server refused {len(refused):,} of {counted(len(result.requests), 'request')}: {refused[0]}")
    return result


def _show(summary: Mapping[str, object]) -> None:
    from sim.report.console import bench_table, sim_table

    click.echo(bench_table(summary))
    click.echo(sim_table(summary))


def _write(result: Result, summary: Mapping[str, object], folder: Path, *, timeline: bool) -> None:
    from sim.report.frames import Digest
    from sim.report.result_file import write_json
    from sim.report.tables import write_frames, write_requests

    try:
        with working("writing results"):
            write_json(summary, folder / "result.json")
            if isinstance(result.record, Digest):
                write_requests(result.record, folder)
            else:
                write_frames(result.record, folder)
                _write_pictures(result.record, folder, timeline=timeline)
    except OSError:
        _show(summary)  # nor must a full disk cost the figures
        raise


def _write_pictures(frames: Frames, folder: Path, *, timeline: bool) -> None:
    import logging

    # Where matplotlib may keep its list of fonts is no news of this run.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)

    from sim.report.plots import plot_latency
    from sim.report.plots_time import plot_timeseries
    from sim.report.timeline import write_timeline

    plot_timeseries(frames, folder / "timeseries.png")
    plot_latency(frames, folder / "latency.png")
    if timeline:
        write_timeline(frames, folder / "timeline.json.gz")


@contextmanager
def _warnings_as_lines() -> Iterator[None]:
    """Warnings of the run as one line each, when it is over."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for warning in caught:
        say(f"warning: {warning.message}")


def say(text: str) -> None:
    """A line of ours, apart from results."""
    click.echo(f"elpase: {text}", err=True)
