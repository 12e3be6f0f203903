"""A live validation from end to end: real runs, the profile of one of them, and the simulated others beside the real.

Not for flags and tables (cli_live.py). The one idea: repeats go round by round, so that a machine which others slow
down for a while does not slow down one cell alone.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from calibrate.live import (
    FIGURES,
    WIDENING,
    Bed,
    Cell,
    Load,
    Preemptions,
    Setting,
    cells,
    checks,
    figures,
    orders,
    rates,
    scheduler_config,
)
from calibrate.live_calibrate import live_profile, sent
from sim.experiment import ExtrapolationWarning, simulate
from sim.report.summary import SummaryOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from calibrate.live import Check, Order
    from calibrate.live_runs import LiveRuns, Run
    from sim.core.config import SchedulerConfig
    from sim.experiment import Result
    from sim.latency.profile import Profile
    from workloads import Request

ORDERED = ("itl_p99", "ttft_mean")
"""Figures by which budgets are ranked."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is run, how often, and where it is calibrated."""

    bed: Bed
    repeats: int = 3
    calibrate_budget: int = 1024
    budgets: tuple[int, ...] = (128, 512, 2048)
    rates: tuple[float | None, ...] | None = None
    """Requests per second, None for all at once; as a whole None: chosen by what the server can do."""
    num_prompts: int = 60
    starved_blocks: int = 100

    @property
    def calibration(self) -> Cell:
        """One run through all loads: a rate that rises until the server is full."""
        return Cell(Setting(self.calibrate_budget), Load(num_prompts=2 * self.num_prompts, ramp=(1, 12)))

    @property
    def starved(self) -> Cell:
        """Short prompts and long answers in a small KV cache: requests outgrow it and are preempted."""
        return Cell(Setting(512, self.starved_blocks), Load(self.num_prompts, input_len=100, output_len=160))


@dataclass(frozen=True, slots=True)
class Outcome:
    """All that was found."""

    profile: Profile
    checks: Sequence[Check]
    orders: Sequence[Order]
    preemptions: Sequence[Preemptions]
    runs: int
    load_averages: Sequence[float]

    @property
    def inside(self) -> int:
        """Checks that hold."""
        return sum(check.inside for check in self.checks)

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "inside": self.inside,
            "checks": [{**asdict(c), "inside": c.inside, "error": c.error} for c in self.checks],
            "orders": [asdict(order) for order in self.orders],
            "preemptions": [{**asdict(p), "inside": p.inside, "error": p.error} for p in self.preemptions],
            "widening": WIDENING,
            "real_runs": self.runs,
            "load_average": {"min": min(self.load_averages), "max": max(self.load_averages)},
            "profile": json.loads(self.profile.to_json()),
        }


def validate_live(plan: Plan, real: LiveRuns, facts: Mapping[str, Any], on_run: Callable[[], None]) -> Outcome:
    """The real runs, round by round, then the simulated ones. `on_run` is called after each real run.

    `facts`: what `live_profile` wants to know of device and model. Raises InputError where a server or benchmark fails.
    """
    first = real.run(plan.calibration, 1)
    loads = plan.rates or rates(_capacity_per_s(plan, first, facts))
    wanted = cells(plan.budgets, loads, plan.num_prompts, plan.starved)
    made: dict[Cell, list[Run]] = {cell: [] for cell in (plan.calibration, *wanted)}
    for repeat in range(1, plan.repeats + 1):
        for cell, runs in made.items():
            runs.append(real.run(cell, repeat))
            on_run()
    calibration = made.pop(plan.calibration)
    return _compare(plan, _profile(plan, calibration, facts), made, calibration)


def _capacity_per_s(plan: Plan, calibration: Run, facts: Mapping[str, Any]) -> float:
    """Requests per second when all come at once, as simulated."""
    profile = _profile(plan, [calibration], facts)
    config = scheduler_config(plan.bed, plan.calibration.setting, calibration.facts["num_gpu_blocks"])
    done = _quietly([replace(request, arrival_s=0.0) for request in sent(calibration)], config, profile).requests
    return len(done) / float(done["finish_s"].max())


def _profile(plan: Plan, calibration: Sequence[Run], facts: Mapping[str, Any]) -> Profile:
    config = scheduler_config(plan.bed, plan.calibration.setting, calibration[0].facts["num_gpu_blocks"])
    return live_profile(calibration, plan.bed, plan.calibration, config, facts)


def _compare(plan: Plan, profile: Profile, made: dict[Cell, list[Run]], calibration: Sequence[Run]) -> Outcome:
    real: dict[str, list[dict[str, float]]] = {}
    simulated: dict[str, dict[str, float]] = {}
    preempted = []
    for cell, runs in made.items():
        real[cell.title] = [figures(run.result) for run in runs]
        each = [_simulated(plan, profile, cell, run) for run in runs]
        simulated[cell.title] = {name: float(np.median([run[name] for run in each])) for name in FIGURES}
        counts = tuple(int(run.facts["preemptions"]) for run in runs)
        foretold = round(float(np.median([run["preemptions"] for run in each])))
        if any(counts) or foretold:
            preempted.append(Preemptions(cell.title, counts, foretold))
    found = checks(real, simulated)
    plain = {
        cell.title: (f"{cell.setting.max_num_batched_tokens}", cell.load.title)
        for cell in made
        if cell.setting.num_gpu_blocks_override is None
    }
    everything = [*calibration, *(run for runs in made.values() for run in runs)]
    return Outcome(
        profile=profile,
        checks=found,
        orders=orders(found, plain, ORDERED),
        preemptions=preempted,
        runs=len(everything),
        load_averages=[float(run.facts["load_average"]) for run in everything],
    )


def _simulated(plan: Plan, profile: Profile, cell: Cell, run: Run) -> dict[str, float]:
    """The figures of one run's arrivals and lengths, simulated."""
    config = scheduler_config(plan.bed, cell.setting, run.facts["num_gpu_blocks"])
    result = _quietly(sent(run), config, profile)
    told = figures(result.summary(SummaryOptions(percentiles=(50.0, 99.0))))
    return {**told, "preemptions": float(result.requests["preemptions"].sum())}


def _quietly(requests: Iterable[Request], config: SchedulerConfig, profile: Profile) -> Result:
    """A simulation that says nothing of the steps beyond those of the calibration: foretelling them is the point."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExtrapolationWarning)
        return simulate(requests, config, profile)
