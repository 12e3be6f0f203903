"""`elpase sweep TRACE --vary NAME=a,b,c`: many replays, one table, and what it says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from sim.cli.flags import engine_config, engine_options
from sim.cli.paths import PathType
from sim.cli.replay import ReplayCommand, option
from sim.cli.sweep_inputs import axes, is_said, read_experiment, require_free, told_by, value_of
from sim.cli.sweep_run import carried_out, ended, running_options
from sim.cli.workload_flags import TRACE_HELP, workload_flags
from sim.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from sim.sweeps.settings import Setting
    from sim.sweeps.study import Study

_FILE = PathType(exists=True, dir_okay=False)
_SWEEP, _ANSWERS = "Sweep", "Answers"


@click.command(
    cls=ReplayCommand,
    context_settings={"max_content_width": 120},
    short_help="Try many settings on one workload: the table, the front, the best within bounds.",
    help=f"""Replay a workload under every combination of settings; say which is best, and which knob matters.

    {TRACE_HELP}
    A knob is any flag of `elpase replay` that stands for the server or the workload, by name, and `trace`.

    \b
    elpase sweep azure-conv --limit 400 --vary max_num_batched_tokens=512,2048,8192 --slo itl_p99=100 --out budget
    elpase sweep random --num-prompts 300 --vary request_rate=2,4,8 --vary max_num_seqs=16,64 --replications 5
    elpase sweep --experiment study.toml --out study""",
)
@option(_SWEEP, "--vary", multiple=True, metavar="NAME=A,B,C", help="A knob and its values; several: all combinations.")
@option(
    _SWEEP, "--experiment", type=_FILE, is_eager=True, expose_value=False, callback=read_experiment, metavar="FILE",
    help="A TOML file with flags by name and a table `vary`; the command line stands above it.",
)  # fmt: skip
@option(_SWEEP, "--serve-params", type=_FILE, metavar="FILE", help="JSON, as in vllm bench sweep serve.")
@option(_SWEEP, "--bench-params", type=_FILE, metavar="FILE", help="JSON, as in vllm bench sweep serve.")
@option(_SWEEP, "--link-vars", default="", metavar="A=B,...", help="As in vllm bench sweep serve.")
@option(
    _ANSWERS, "--slo", multiple=True, metavar="METRIC_STATISTIC=MS",
    help="Bounds such as ttft_p99=2000 and itl_p99=50: the highest rate within them, for each setting.",
)  # fmt: skip
@option(_ANSWERS, "--goodput", multiple=True, metavar="METRIC:MS", help="As in vllm bench serve: ttft:200 tpot:20.")
@option(
    _ANSWERS, "--best", default="mean_e2el_ms", show_default=True, metavar="COLUMN",
    help="What makes a setting the best at a load.",
)  # fmt: skip
@running_options
@click.argument("trace", metavar="[TRACE]", required=False)
@workload_flags
@engine_options
@click.pass_context
def command(ctx: click.Context, /, **kwargs: Any) -> None:  # noqa: D103  # its help is above
    from sim.sweeps.answers import objective, parse_slo

    slo = parse_slo(kwargs["slo"])
    objective(kwargs["best"])
    sweep = carried_out(_study(ctx, kwargs, free=bool(slo)), kwargs, slo, kwargs["best"])
    click.echo(str(sweep))
    ended(ctx, sweep, kwargs["out"], sweep.save, "sweep.json")


def _study(ctx: click.Context, kwargs: dict[str, Any], *, free: bool) -> Study:
    """What is asked. Raises InputError where nothing varies, unless a highest rate is asked for (`free`)."""
    from sim.report.summary import goodput_bounds
    from sim.sweeps.settings import combined, grid
    from sim.sweeps.study import Study, whole_workload
    from sim.sweeps.task import Measure

    varied = axes(ctx, kwargs["vary"])
    settings = combined(*_params(ctx, kwargs), grid(varied))
    if not free and not any(setting.knobs for setting in settings):
        raise InputError("nothing varies: say --vary NAME=A,B,C, --experiment, --serve-params or --bench-params")
    require_free(ctx, {name: None for setting in settings for name in setting.knobs})
    _require_effect(ctx, settings)
    traces = {setting.knobs["trace"]: None for setting in settings if "trace" in setting.knobs}
    if kwargs["trace"] is None and not traces:
        raise click.UsageError("Missing argument 'TRACE'.")
    workload = whole_workload(next(iter(traces)) if kwargs["trace"] is None else kwargs["trace"], {})
    return Study(
        workload={name: kwargs[name] for name in workload} | {"trace": workload["trace"]},
        settings=settings,
        engine=engine_config(kwargs),
        profile=kwargs["profile"],
        replications=kwargs["replications"],
        measure=Measure(goodput_bounds(kwargs["goodput"]), kwargs["warmup_s"], kwargs["cooldown_s"]),
        outside=kwargs["outside"],
    )


def _require_effect(ctx: click.Context, settings: Sequence[Setting]) -> None:
    """Raise InputError for a flag that changes nothing beside the others."""
    from sim.sweeps.answers import load_axis
    from sim.sweeps.settings import LOAD_KNOBS
    from sim.sweeps.sweep import axes_of

    if is_said(ctx, "link_vars") and not (ctx.params["serve_params"] or ctx.params["bench_params"]):
        raise InputError("--link-vars goes with --serve-params and --bench-params: there is nothing to link")
    if is_said(ctx, "best") and load_axis(axes_of(settings)) is None:
        raise InputError(f"--best goes with one load that varies: {', '.join(LOAD_KNOBS)} or trace")


def _params(ctx: click.Context, kwargs: dict[str, Any]) -> list[Sequence[Setting]]:
    """The settings of vLLM's parameter files, those that are linked."""
    from sim.sweeps.settings import combined
    from sim.sweeps.vllm_files import linked, read_params

    def read(path: Path, half: str) -> Sequence[Setting]:
        def ours(name: str, value: object) -> object:
            with told_by(path, name):
                return value_of(ctx, name, value)

        return read_params(path, half, ours)

    lists = [
        read(kwargs[flag], half)
        for flag, half in (("serve_params", "server"), ("bench_params", "client"))
        if kwargs[flag] is not None
    ]
    pairs = [pair for pair in kwargs["link_vars"].split(",") if pair]
    return [linked(combined(*lists), pairs)] if lists else []
