"""`elpase calibrate run`: serve a small trace with real passes, simulate the same, compare."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table

from calibrate.torch_options import TorchCommand, make_bench, model_name, torch_options
from sim.cli.flags import engine_config, engine_options
from sim.cli.workload_flags import TRACE_HELP, open_from, workload_options
from sim.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from calibrate.real_run import RealRun, StepErrors
    from calibrate.torch_options import Bench
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


@dataclass(frozen=True, slots=True)
class _Compared:
    real: list[dict[str, float]]
    """Figures of each real run."""
    simulated: dict[str, float]
    steps: list[StepErrors]

    def middle(self, name: str) -> float:
        return statistics.median(run[name] for run in self.real)

    def error(self, name: str) -> float:
        return self.simulated[name] / self.middle(name) - 1.0 if self.middle(name) else 0.0


@click.command(
    cls=TorchCommand,
    context_settings={"max_content_width": 120},
    short_help="Serve a small trace with real forward passes; compare the simulation.",
    help=f"""Serve a workload with real forward passes, by the wall clock, and simulate it with a profile.

    The project's own scheduler decides in both; the figures are those of `vllm bench serve`. Use a profile that was
    fitted on this device.

    {TRACE_HELP}

    Example: elpase calibrate run random --num-prompts 60 --request-rate 2 --model config.json --profile cpu.json""",
)
@click.option("--profile", required=True, help="Latency profile: a name or a JSON file.")
@click.option("--repeats", default=1, show_default=True, type=click.IntRange(min=1), help="Real runs, one by one.")
@click.option("--samples", type=click.Path(dir_okay=False, path_type=Path), help="Write the real steps as samples.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@torch_options(without=("--dtype",))
@workload_options
@engine_options
def command(profile: str, repeats: int, samples: Path | None, as_json: bool, **kwargs: Any) -> None:  # noqa: D103
    from calibrate.real_run import predict, step_errors
    from sim.latency.profile import Profile

    loaded = Profile.load(profile)
    bench, config = _server(loaded, kwargs)
    for note in _differences(loaded, bench):
        click.echo(f"elpase: note: {note}", err=True)
    requests = _requests(kwargs, config)
    runs = _serve(requests, config, bench, repeats, kwargs["max_concurrency"])
    simulated = predict(requests, config, loaded, kwargs["max_concurrency"])
    compared = _Compared([run.figures for run in runs], simulated, [step_errors(run.steps, loaded) for run in runs])
    if samples is not None:
        _write_samples(samples, bench, runs)
    if as_json:
        click.echo(json.dumps(_document(compared, bench, config, loaded, len(requests)), indent=2))
    else:
        _print(compared, f"{len(requests)} requests, {bench.shape.name} on {bench.origin.device}, {repeats} real runs")


def _server(profile: Profile, kwargs: dict[str, Any]) -> tuple[Bench, SchedulerConfig]:
    """The runner, and the scheduler's numbers for the KV cache that it has."""
    from calibrate.torch_options import model_source
    from sim.specs import ModelSpec

    # Synchronous, and no further than the profile was fitted, unless the flags say so.
    reach = {
        "max_num_batched_tokens": int(min(2048, profile.domain.num_tokens[1])),
        "max_num_seqs": int(min(256, profile.domain.num_seqs[1])),
    }
    flags = engine_config({"async_scheduling": False, **{n: v for n, v in kwargs.items() if v is not None}})
    spec = ModelSpec.from_hf_config(model_source(kwargs["model"]), name=model_name(kwargs["model"]))
    defaults = reach | {n: v for n, v in profile.server.items() if n in ("block_size", *reach)}
    blocks = flags.num_gpu_blocks_override
    placed = replace(flags, num_gpu_blocks_override=blocks or _MOST_REQUESTS)
    config = placed.resolve(model=spec, server_defaults=defaults)
    bench = make_bench(
        kwargs,
        max_tokens=config.max_num_batched_tokens,
        max_seqs=config.max_num_seqs,
        block_size=config.block_size,
        num_blocks=blocks,
    )
    fits = replace(flags, num_gpu_blocks_override=bench.runner.cache.num_blocks)
    return bench, fits.resolve(model=spec, server_defaults=defaults)


def _differences(profile: Profile, bench: Bench) -> list[str]:
    """What of the profile's origin is not as here. Raises InputError for another model or type."""
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
    return requests


def _serve(
    requests: Sequence[Request], config: SchedulerConfig, bench: Bench, repeats: int, cap: int | None
) -> list[RealRun]:
    from calibrate.real_run import serve_for_real
    from sim.cli.progress import progress_bar, working

    with working("warming up"):
        bench.runner.warm_up(config.max_num_seqs, config.max_num_batched_tokens)
    runs = []
    for index in range(repeats):
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
            f"{compared.error(name):+.1%}",
        )
        table.add_row(label, *row)
    Console().print(table)
    for errors in compared.steps:
        share = errors.host_measured_s / errors.measured_s
        click.echo(
            f"{errors.steps:,} real steps, priced one by one: all together {errors.total:+.1%},"
            f" median of the errors {errors.median_abs:.1%}; host {share:.1%} of the time"
        )
