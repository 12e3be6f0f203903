"""Replays a measured run and compares: each figure real, simulated, and the error, by itself.

Not for fitting: nothing measured here flows back. The one idea: the client's behaviour is replayed (arrivals, lengths,
the cap in flight), the server's never is, and both sides are summed up by the same formulas.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from calibrate.measured import Replay, requests_of
from calibrate.requests_csv import COLUMNS, FIGURES, figures, read_measured, table_of
from calibrate.step_cycles import StepCycles
from sim.config import EngineConfig
from sim.errors import InputError
from sim.experiment import settle, simulate
from sim.plurals import counted
from sim.report.bench.compare import plain_model

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pandas as pd

    from calibrate.measured import Run
    from sim.experiment import Result
    from sim.latency.profile import Profile

__all__ = ["COLUMNS", "FIGURES", "Comparison", "compare", "figures", "of_profile", "read_measured", "validate"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Figures of a measured and a simulated run: throughput in output tokens per second, times in seconds."""

    real: Mapping[str, float]
    simulated: Mapping[str, float]
    steps: Mapping[str, float] | None = None
    """How far single steps are off, where steps were measured."""
    result: Result | None = None
    """The simulated run."""

    @property
    def errors(self) -> dict[str, float]:
        """Signed fractions: simulated / real - 1. NaN for a TPOT where no request had a second token."""
        told = {name: self.simulated[name] / real - 1.0 for name, real in self.real.items()}
        return told | dict(self.steps or {})


def validate(
    measured: pd.DataFrame,
    profile: Profile,
    config: EngineConfig | None = None,
    *,
    max_in_flight: int | None = None,
    on_progress: Callable[[float, int], None] | None = None,
) -> Comparison:
    """Replay a measured run (a frame of `read_measured`) and compare.

    Raises InputError when requests did not finish: their figures would flatter the rest.
    """
    result = simulate(requests_of(measured), config, profile, max_in_flight=max_in_flight, on_progress=on_progress)
    return Comparison(figures(measured), figures(table_of(result)), result=result)


def compare(
    run: Run,
    profile: Profile,
    config: EngineConfig | None = None,
    *,
    max_in_flight: int | None = None,
    on_progress: Callable[[float, int], None] | None = None,
) -> Comparison:
    """Simulate a run of `measured.read_runs` and compare.

    Flags of `config` stand above those that the run was measured under, and those above the profile's.
    """
    config = _over(config or EngineConfig(), run.settings if isinstance(run, Replay) else {})
    if isinstance(run, StepCycles):
        priced = run.priced(profile, async_scheduling=settle(config, profile).async_scheduling)
        return Comparison(run.real(), run.simulated(priced), steps=run.step_errors(priced))
    stop = _Stop(run.until_s, on_progress)
    cap = max_in_flight or run.max_in_flight
    result = simulate(run.requests(), config, profile, max_in_flight=cap, on_progress=stop)
    return Comparison(run.real, run.measure(result), result=result)


@dataclass(frozen=True, slots=True)
class _Stop:
    """Ends a simulation whose client stopped looking at a certain time."""

    until_s: float | None
    on_progress: Callable[[float, int], None] | None

    def __call__(self, now_s: float, done: int) -> None:
        if self.on_progress is not None:
            self.on_progress(now_s, done)
        if self.until_s is not None and now_s > self.until_s:
            raise KeyboardInterrupt  # how an onlooker ends a run


def _over(config: EngineConfig, settings: Mapping[str, object]) -> EngineConfig:
    known = {f.name for f in fields(EngineConfig)}
    unset = {n: v for n, v in settings.items() if n in known and getattr(config, n) is None}
    return replace(config, **unset)  # type: ignore[arg-type]


def of_profile(runs: list[Run], profile: Profile) -> tuple[list[Run], list[str]]:
    """The runs of a profile's model (and number of GPUs, where a run says it), and the others' names.

    Raises InputError where none is left.
    """
    own = [run for run in runs if _fits(run, profile)]
    if not own:
        seen = ", ".join(sorted({_what(run) for run in runs}))
        wanted = f"{profile.model} on {profile.tensor_parallel_size} GPU, which profile {profile.name} is of"
        raise InputError(field="model", value=seen, expected=wanted)
    return own, [run.name for run in runs if run not in own]


def _what(run: Run) -> str:
    return f"{run.model} on {counted(run.tensor_parallel_size, 'GPU')}" if isinstance(run, StepCycles) else run.model


def _fits(run: Run, profile: Profile) -> bool:
    if isinstance(run, StepCycles) and run.tensor_parallel_size != profile.tensor_parallel_size:
        return False
    return not run.model or plain_model(run.model) == plain_model(profile.model)
