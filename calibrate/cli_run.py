"""`elpase calibrate run`: serve a small trace with real passes, simulate the same, compare."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table

from calibrate.cli_fit import require_place
from calibrate.torch_options import TorchCommand, device_of, make_bench, model_name, torch_options
from sim.cli.flags import engine_config, engine_options
from sim.cli.numbers import FiniteRange
from sim.cli.paths import PathType
from sim.cli.whole_table import show
from sim.cli.workload_flags import TRACE_HELP, workload_options
from sim.errors import InputError
from sim.plurals import counted
from sim.report.units import percent, signed_percent
from sim.workload import open_from, remarks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from calibrate.real_run import RealRun, StepErrors
    from calibrate.torch_options import Bench
    from calibrate.torch_session import Session
    from sim.core.config import SchedulerConfig
    from sim.latency.profile import Profile
    from workloads import Request

_LABELS = {
    "request_throughput": "Requests (req/s)",
    "output_throughput": "Output (tok/s)",
    "mean_ttft_ms": "TTFT mean (ms)",
    "median_ttft_ms": "TTFT median",
    "p99_ttft_ms": "TTFT p99",
    "mean_tpot_ms": "TPOT mean (ms)",
    "median_tpot_ms": "TPOT median",
    "p99_tpot_ms": "TPOT p99",
    "mean_itl_ms": "ITL mean (ms)",
    "median_itl_ms": "ITL median",
    "p99_itl_ms": "ITL p99",
}
_MOST_REQUESTS = 100_000
_ANY_BLOCKS = 10_000_000
"""A stand-in while it is not known how many fit."""
_WITH_CALIBRATION = ("samples", "save_profile", "max_tokens", "max_seqs", "max_context")
_FILE = PathType(dir_okay=False)


@dataclass(frozen=True, slots=True)
class _Compared:
    real: list[dict[str, float]]
    """Figures of each real run."""
    simulated: dict[str, float]
    steps: list[StepErrors]
    preemptions: list[int]
    """Of the simulated run, then of each real one."""

    def middle(self, name: str) -> float:
        return statistics.median(run[name] for run in self.real)

    def error(self, name: str) -> float:
        return self.simulated[name] / self.middle(name) - 1.0 if self.middle(name) else 0.0


@click.command(
    cls=TorchCommand,
    context_settings={"max_content_width": 120},
    short_help="Serve a small trace with real forward passes; compare the simulation.",
    help=f"""Serve a workload with real forward passes, by the wall clock, and simulate it with a profile.

    The project's own scheduler decides in both; the figures are those of `vllm bench serve`. The profile must be of
    this device: --calibrate-s makes one on the spot.

    {TRACE_HELP}

    Example: elpase calibrate run random --num-prompts 60 --request-rate 2 --model config.json --calibrate-s 120""",
)
@click.option("--profile", help="Latency profile: a name or a JSON file.")
@click.option(
    "--calibrate-s",
    type=FiniteRange(min=1),
    help="Instead: fit one here, to what so many seconds of measuring tell, before, between and after the real runs.",
)
@click.option("--samples", type=_FILE, help="With --calibrate-s: where its samples go; goes on with what is there.")
@click.option("--save-profile", type=_FILE, help="With --calibrate-s: where its profile goes.")
@click.option(
    "--max-tokens", type=click.IntRange(min=16), help="With --calibrate-s: its largest step. Default: the server's."
)
@click.option(
    "--max-seqs", type=click.IntRange(min=1), help="With it: most sequences of a step. Default: the server's."
)
@click.option("--max-context", type=click.IntRange(min=16), help="With it: longest context. Default: the workload's.")
@click.option("--repeats", default=1, show_default=True, type=click.IntRange(min=1), help="Real runs, one by one.")
@click.option("--run-samples", type=_FILE, help="Write the steps of the real runs as samples.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@torch_options(without=("--dtype",))
@workload_options
@engine_options
def command(profile: str | None, as_json: bool, **kwargs: Any) -> None:  # noqa: D103
    from calibrate.real_run import figures, predict, preemptions, step_errors
    from sim.latency.profile import Profile

    _check_flags(profile, kwargs)
    loaded = None if profile is None else Profile.load(profile)
    bench, config = _server(loaded, kwargs)
    for note in _differences(loaded, bench):
        click.echo(f"elpase: note: {note}", err=True)
    requests = _requests(kwargs, config)
    session = _session(bench, config, requests, kwargs) if loaded is None else None
    runs = _serve(requests, config, bench, session, kwargs)
    fitted = loaded or _fitted(session, kwargs["save_profile"])
    simulated = predict(requests, config, fitted, kwargs["max_concurrency"])
    compared = _Compared(
        [figures(run.frames) for run in runs],
        figures(simulated),
        [step_errors(run.steps, fitted) for run in runs],
        [preemptions(frames) for frames in (simulated, *(run.frames for run in runs))],
    )
    if kwargs["run_samples"] is not None:
        _write_samples(kwargs["run_samples"], bench, runs)
    if as_json:
        click.echo(json.dumps(_document(compared, bench, config, fitted, len(requests)), indent=2))
    else:
        _print(
            compared,
            f"{counted(len(requests), 'request')}, {bench.shape.name} on {bench.origin.device},"
            f" {counted(len(runs), 'real run')}",
        )


def _check_flags(profile: str | None, kwargs: Mapping[str, Any]) -> None:
    """Raise for flags that leave no profile, or two, and for files that could not be written in the end."""
    if (profile is None) == (kwargs["calibrate_s"] is None):
        raise click.UsageError("say --profile, or --calibrate-s to fit one here")
    for name in _WITH_CALIBRATION:
        if kwargs[name] is not None and profile is not None:
            raise click.UsageError(f"--{name.replace('_', '-')} goes with --calibrate-s")
    for name in ("samples", "save_profile", "run_samples"):
        if kwargs[name] is not None:
            require_place(kwargs[name])


def _server(profile: Profile | None, kwargs: dict[str, Any]) -> tuple[Bench, SchedulerConfig]:
    """The runner, and the scheduler's numbers for the KV cache that it has."""
    from calibrate.torch_options import model_source
    from sim.specs import ModelSpec

    # Synchronous, and no further than the profile was fitted, unless the flags say so.
    flags = engine_config({"async_scheduling": False, **{n: v for n, v in kwargs.items() if v is not None}})
    spec = ModelSpec.from_hf_config(model_source(kwargs["model"]), name=model_name(kwargs["model"]))
    defaults = _defaults(profile, kwargs)
    blocks = flags.num_gpu_blocks_override
    placed = replace(flags, num_gpu_blocks_override=blocks or _ANY_BLOCKS)
    config = placed.resolve(model=spec, server_defaults=defaults)
    bench = make_bench(
        kwargs,
        max_tokens=max(config.max_num_batched_tokens, kwargs["max_tokens"] or 0),
        max_seqs=max(config.max_num_seqs, kwargs["max_seqs"] or 0),
        block_size=config.block_size,
        num_blocks=blocks,
    )
    fits = replace(flags, num_gpu_blocks_override=bench.runner.cache.num_blocks)
    return bench, fits.resolve(model=spec, server_defaults=defaults)


def _defaults(profile: Profile | None, kwargs: Mapping[str, Any]) -> dict[str, object]:
    """What the server takes where the flags say nothing."""
    tokens, seqs = (1024, 32) if device_of(kwargs) == "cpu" else (2048, 256)
    if profile is None:
        return {"max_num_batched_tokens": tokens, "max_num_seqs": seqs}
    reach = {
        "max_num_batched_tokens": int(min(tokens, profile.domain.num_tokens[1])),
        "max_num_seqs": int(min(seqs, profile.domain.num_seqs[1])),
    }
    return reach | {n: v for n, v in profile.server.items() if n in ("block_size", *reach)}


def _session(bench: Bench, config: SchedulerConfig, requests: Sequence[Request], kwargs: Mapping[str, Any]) -> Session:
    """Measures what the server can come across: its own limits, and the longest request's context."""
    from calibrate.measure import Table
    from calibrate.torch_session import Session

    longest = max(request.prompt_tokens + request.output_tokens for request in requests)
    return Session.reaching(
        bench,
        Table.open(kwargs["samples"], bench.origin),
        max_tokens=kwargs["max_tokens"] or max(16, config.max_num_batched_tokens),
        max_seqs=kwargs["max_seqs"] or config.max_num_seqs,
        max_context=kwargs["max_context"] or max(16, min(longest, config.max_model_len)),
    )


def _fitted(session: Session | None, path: Path | None) -> Profile:
    """A profile of all that the session has measured."""
    from calibrate.cli import command_line
    from calibrate.make_profile import Target, calibrate
    from calibrate.samples import Samples
    from sim.cli.progress import counting
    from sim.output import write_text_atomic

    assert session is not None
    samples = Samples.of_steps(session.table.steps, session.table.origin)
    target = Target(name=path.stem if path else session.bench.shape.name, command=command_line())
    with counting("fit", "fit") as on_fold:
        made = calibrate(samples, target, on_fold=on_fold)
    if path is not None:
        write_text_atomic(path, made.profile.to_json())
    return made.profile


def _differences(profile: Profile | None, bench: Bench) -> list[str]:
    """What of the profile's origin is not as here. Raises InputError for another model or type."""
    if profile is None:
        return []
    for field, here in (("model", bench.shape.name), ("dtype", bench.dtype)):
        if getattr(profile, field) != here:
            raise InputError(field=f"{field} of profile {profile.name}", value=getattr(profile, field), expected=here)
    if profile.known_gpu() is None and profile.gpu != bench.origin.device:
        return [f"profile {profile.name} is of {profile.gpu}, this is {bench.origin.device}"]
    return []


def _requests(kwargs: dict[str, Any], config: SchedulerConfig) -> list[Request]:
    trace = open_from(kwargs, config.max_model_len)
    if trace.at_most is None or trace.at_most > _MOST_REQUESTS:
        raise InputError(f"a real run takes as long as the trace: say --limit, at most {_MOST_REQUESTS:,}")
    requests = list(trace)
    if not requests:
        raise InputError(field="TRACE", value=kwargs["trace"], expected="at least one request")
    for line in remarks(trace, config):
        click.echo(f"elpase: note: {line}", err=True)
    return requests


def _serve(
    requests: Sequence[Request],
    config: SchedulerConfig,
    bench: Bench,
    session: Session | None,
    kwargs: Mapping[str, Any],
) -> list[RealRun]:
    """The real runs, with a share of the measuring before, between and after them."""
    from calibrate.real_run import serve_for_real
    from sim.cli.progress import progress_bar, working

    with working("warming up"):
        bench.runner.warm_up(config.max_num_seqs, config.max_num_batched_tokens)
    repeats, cap = kwargs["repeats"], kwargs["max_concurrency"]
    runs: list[RealRun] = []
    for index in range(repeats + 1):
        if session is not None:
            session.go(kwargs["calibrate_s"] / (repeats + 1))
        if index < repeats:
            with progress_bar(f"real run {index + 1}/{repeats}", len(requests)) as on_done:
                runs.append(serve_for_real(requests, config, bench.runner, max_in_flight=cap, on_done=on_done))
    return runs


def _write_samples(path: Path, bench: Bench, runs: Sequence[RealRun]) -> None:
    from calibrate.samples import Samples
    from calibrate.samples_file import write_samples
    from calibrate.served_steps import padded_by, sample

    padded = padded_by(bench.runner)
    steps = [sample(step, *padded(step)) for run in runs for step in run.steps]
    write_samples(path, Samples.of_steps(steps, bench.origin))


def _document(
    compared: _Compared, bench: Bench, config: SchedulerConfig, profile: Profile, requests: int
) -> dict[str, Any]:
    return {
        "real": {name: compared.middle(name) for name in _LABELS},
        "real_runs": compared.real,
        "simulated": compared.simulated,
        "errors": {name: compared.error(name) for name in _LABELS},
        "steps": [asdict(errors) | {"total": errors.total} for errors in compared.steps],
        "preemptions": {"real": compared.preemptions[1:], "simulated": compared.preemptions[0]},
        "requests": requests,
        "profile": profile.name,
        "config": asdict(config),
        "origin": {name: value for name, value in asdict(bench.origin).items() if name != "model_config"},
    }


def _print(compared: _Compared, title: str) -> None:
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for column in ("real (median)", "real (range)", "simulated", "error"):
        table.add_column(column, justify="right")
    for name, label in _LABELS.items():
        values = [run[name] for run in compared.real]
        span = f"{min(values):,.2f} - {max(values):,.2f}"
        row = (
            f"{compared.middle(name):,.2f}",
            span,
            f"{compared.simulated[name]:,.2f}",
            signed_percent(compared.error(name)),
        )
        table.add_row(label, *row)
    told, *real = compared.preemptions
    if told or any(real):
        span = f"{min(real)} - {max(real)}"
        table.add_row("Preemptions", f"{statistics.median(real):g}", span, f"{told}", "")
    show(table)
    for errors in compared.steps:
        share = errors.host_measured_s / errors.measured_s
        click.echo(
            f"{counted(errors.steps, 'real step')}, priced one by one: all together {signed_percent(errors.total)},"
            f" median of the errors {percent(errors.median_abs)}; host {percent(share)} of the time"
        )
