"""A profile from the real runs of one setting: their iteration logs give the law, their clients the rest.

Not for files. The one idea: a robust law follows the typical step, but a run is as long as all of its steps, slow ones
too; so the law's level is set last, to the time that the calibration runs took as a whole.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from calibrate.fit import fit, thinned
from calibrate.iteration_log import host_seconds, read_iteration_log
from calibrate.log_samples import SOURCE, compose, is_clear
from calibrate.make_profile import domain
from calibrate.samples import Origin, Samples, TimedStep
from sim.errors import InputError
from sim.experiment import simulate
from sim.latency.model import UNITS
from sim.latency.profile import ClientTerms, Profile
from sim.plurals import counted
from sim.specs import ModelSpec
from workloads import read_trace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from calibrate.live import Bed, Cell
    from calibrate.live_runs import Run
    from sim.core.config import SchedulerConfig
    from workloads import Request

_FIT_ROWS = 300
"""Steps of each regime that the law is fitted to: a run's steps repeat each other, and a search has to be short."""

_ONE_AFTER_THE_OTHER = {"sharpness": 1.0, "batch_slowdown": 0.0, "weight_read_s": 0.0}
"""A core reads and computes by turns, where a GPU does both at once: no roofline, each token and row adds its time."""

_LEAST_COMPOSED = 0.5
"""Of the steps' compositions; with fewer the runs were not what they are taken for."""


def live_profile(
    runs: Sequence[Run], bed: Bed, cell: Cell, config: SchedulerConfig, facts: Mapping[str, Any]
) -> Profile:
    """Fit the law to the runs' steps and the client's time to their first tokens.

    `facts`: device, device_memory_bytes, is_cpu, engine_version, model_config. Raises InputError where the logs do
    not fit.
    """
    steps = (step for run in runs for step in run_steps(run, cell))
    samples = Samples.of_steps(steps, _origin(bed, cell, facts))
    level = leveled(_profile(samples, facts), samples)
    return replace(level, client=ClientTerms(client_s(runs, level, config)))


def _profile(samples: Samples, facts: Mapping[str, Any]) -> Profile:
    """The law that the samples' typical steps follow, without the cross-validation that one use is not worth."""
    origin = samples.origins[0]
    found = fit(thinned(samples, _FIT_ROWS), terms=(), fixed=_ONE_AFTER_THE_OTHER if facts["is_cpu"] else None)
    model = ModelSpec.from_hf_config(facts["model_config"], name=origin.model, dtype=origin.dtype)
    return Profile(
        name="live",
        model=origin.model,
        gpu=origin.device,
        tensor_parallel_size=1,
        dtype=origin.dtype,
        engine="vllm",
        engine_version=origin.engine_version,
        law=found.law,
        domain=domain(samples),
        client=ClientTerms(),
        server=origin.server,
        kv_bytes_per_token=model.kv_bytes_per_token(),
        device_memory_bytes=int(facts["device_memory_bytes"]),
        residuals=found.residuals,
        provenance={"samples": len(samples), "date": origin.date, "source": "iteration logs of validate live"},
        model_config=facts["model_config"],
    )


def run_steps(run: Run, cell: Cell) -> Iterator[TimedStep]:
    """The steps of a run with their compositions."""
    log = read_iteration_log(run.log)
    log.require_synchronous(run.log)
    steps = list(log.iterations)
    requests = [(request.prompt_tokens, request.output_tokens) for request in sent(run)]
    compositions = compose(steps, requests, cell.setting.max_num_batched_tokens)
    composed = sum(composition is not None for composition in compositions)
    if composed < _LEAST_COMPOSED * len(steps):
        raise InputError(
            f"only {composed} of {counted(len(steps), 'logged step')} can come from the requests of {run.bench}",
            file=run.log,
        )
    hosts = host_seconds(steps, log.resolution_s)
    for step, composition, host_s in zip(steps, compositions, hosts, strict=True):
        if composition is not None and is_clear(step):
            # Two regimes only: prompts alone are few, and would weigh as much as all the rest.
            regime = "with prompts" if composition[0] else "decode"
            yield TimedStep.of(*composition, step.elapsed_s, host_seconds=host_s, source=SOURCE, regime=regime)


def sent(run: Run) -> list[Request]:
    """What the client of a run sent, when it did."""
    return list(read_trace(run.bench))


def leveled(profile: Profile, samples: Samples) -> Profile:
    """The profile with device and host times scaled so that they sum up to the samples'."""
    law = profile.law
    priced = law.device_s(
        samples.padded_tokens, samples.num_seqs, samples.decode_context, samples.mixed_context, samples.chunk_pairs
    )
    device = float(samples.seconds.sum() / priced.sum())
    known = np.isfinite(samples.host_seconds)
    host_s = (law.host_step_s + law.host_row_s * samples.num_seqs)[known].sum()
    host = float(samples.host_seconds[known].sum() / host_s) if host_s > 0 else 1.0
    scales = {name: host if name.startswith("host_") else device for name, unit in UNITS.items() if unit != "1"}
    changed = {name: getattr(law, name) * scale for name, scale in scales.items()}
    told = {"level, device": round(device, 4), "level, host": round(host, 4)}
    return replace(profile, law=replace(law, **changed), provenance={**profile.provenance, **told})


def client_s(runs: Sequence[Run], profile: Profile, config: SchedulerConfig) -> float:
    """Seconds of a request's way to the engine and back: what first tokens took longer than simulated, in the middle.

    Of the first half of each run's requests, as queues make small differences large later on.
    """
    late: list[float] = []
    for run in runs:
        requests = sent(run)
        simulated = simulate(requests, config, profile, outside="clip").requests
        ttft = (simulated["first_token_s"] - simulated["send_s"]).to_numpy()
        result = run.result
        order = np.argsort(np.array(result["start_times"]), kind="stable")
        real = np.array(result["ttfts"])[order]
        half = len(requests) // 2
        late += (real[:half] - ttft[:half]).tolist()
    return max(0.0, float(np.median(late)))


def _origin(bed: Bed, cell: Cell, facts: Mapping[str, Any]) -> Origin:
    return Origin(
        device=facts["device"],
        model="live",
        dtype=bed.dtype,
        engine="vllm",
        engine_version=facts["engine_version"],
        date=datetime.now(tz=UTC).isoformat(timespec="seconds"),
        model_config=facts["model_config"],
        server={"max_num_batched_tokens": cell.setting.max_num_batched_tokens, "async_scheduling": False},
        notes={"device_memory_bytes": facts["device_memory_bytes"], "threads": bed.threads},
    )


def model_config(model: Path) -> dict[str, Any]:
    """A model folder's config.json."""
    document = json.loads((model / "config.json").read_text(encoding="utf-8"))
    return document if isinstance(document, dict) else {}
