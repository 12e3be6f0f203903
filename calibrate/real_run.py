"""One workload, served for real and simulated: the same figures of both, by the same formulas.

Not for fitting. The one idea: the real run's own steps are priced as well, so an error of the law, or a machine that
has become slower since it was calibrated, is told apart from an error of the simulation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from calibrate.closed_loop import ClosedLoop, WallClock
from sim.experiment import simulate
from sim.latency.shape import StepShape
from sim.report.log import RunLog
from sim.report.summary import summarize

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from calibrate.closed_loop import Clock, Forward, RealStep
    from sim.core.config import SchedulerConfig
    from sim.latency.profile import Profile
    from sim.report.frames import Frames
    from workloads import Request

FIGURES = (
    "request_throughput",
    "output_throughput",
    "mean_ttft_ms",
    "median_ttft_ms",
    "p99_ttft_ms",
    "mean_tpot_ms",
    "median_tpot_ms",
    "p99_tpot_ms",
    "mean_itl_ms",
    "median_itl_ms",
    "p99_itl_ms",
)
"""Keys of `vllm bench serve`'s result that are compared."""


@dataclass(frozen=True, slots=True)
class RealRun:
    """What one real run left."""

    frames: Frames
    steps: list[RealStep]


@dataclass(frozen=True, slots=True)
class StepErrors:
    """How well a profile prices the steps that were really run. Seconds; fractions (predicted / measured - 1)."""

    steps: int
    measured_s: float
    predicted_s: float
    median_abs: float
    host_measured_s: float
    host_predicted_s: float

    @property
    def total(self) -> float:
        """Of all steps together."""
        return self.predicted_s / self.measured_s - 1.0


def serve_for_real(
    requests: Sequence[Request],
    config: SchedulerConfig,
    forward: Forward,
    *,
    clock: Clock | None = None,
    max_in_flight: int | None = None,
    on_done: Callable[[float, int], None] = lambda _seconds, _done: None,
) -> RealRun:
    """Serve a workload with real passes."""
    log = RunLog()
    steps: list[RealStep] = []
    loop = ClosedLoop(
        config,
        forward,
        log,
        clock or WallClock(),
        max_in_flight=max_in_flight,
        on_step=steps.append,
        on_done=on_done,
    )
    loop.serve(requests)
    return RealRun(log.frames({}), steps)


def predict(
    requests: Sequence[Request], config: SchedulerConfig, profile: Profile, max_in_flight: int | None
) -> Frames:
    """What the simulated run left."""
    return simulate(requests, config, profile, max_in_flight=max_in_flight).frames


def preemptions(frames: Frames) -> int:
    """How often a request had to give its blocks back."""
    return int(frames.requests["preemptions"].sum())


def figures(frames: Frames) -> dict[str, float]:
    """See FIGURES."""
    summary: Mapping[str, object] = summarize(frames)
    return {name: float(summary[name]) for name in FIGURES}  # type: ignore[arg-type]  # numbers, all of them


def step_errors(steps: Sequence[RealStep], profile: Profile) -> StepErrors:
    """Price the real steps."""
    times = [profile.step_time(StepShape.from_plan(step.plan)) for step in steps]
    host, device = (np.array(column) for column in zip(*times, strict=True))
    measured_host = np.array([step.host_s for step in steps])
    measured = np.array([step.device_s for step in steps]) + measured_host
    predicted = host + device
    return StepErrors(
        steps=len(steps),
        measured_s=float(measured.sum()),
        predicted_s=float(predicted.sum()),
        median_abs=float(np.median(np.abs(predicted / measured - 1.0))),
        host_measured_s=float(measured_host.sum()),
        host_predicted_s=float(host.sum()),
    )
