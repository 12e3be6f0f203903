"""Times the grid's steps on a runner within a time budget, and keeps what it has on disk as it goes.

Not for what a step is (grid.py), nor for running one (harness). The one idea: the table on disk is the state, so a
measurement that was cut short goes on where it stopped, and is of use wherever it stops.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
from scipy.optimize import nnls

from calibrate.samples import Origin, Samples, TimedStep
from calibrate.samples_file import read_samples, write_samples
from sim.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from calibrate.grid import GridStep

SOURCE = "torch"
_SAVE_EVERY_S = 5.0
_SHARE_PER_STEP = 0.1
"""A step that would take more than this share of the budget is left out."""
_KNOWN_ENOUGH = 6
"""Timed steps from which the time of the next one can be foreseen."""


class Runner(Protocol):
    """What times a step."""

    block_size: int

    @property
    def kv_tokens(self) -> int:
        """Tokens that the KV cache holds."""

    def seconds(self, step: GridStep, repeats: int, limit_s: float) -> list[float]:
        """Device seconds of up to `repeats` passes; fewer, but one, once `limit_s` have gone by."""

    def padded(self, step: GridStep) -> tuple[int, str]:
        """Tokens that the device computes, and the kind of CUDA graph."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure. Seconds of wall time."""

    budget_s: float
    repeats: int
    per_step_s: float
    """Once they have gone by, a step gets no more repeats."""


@dataclass(slots=True)
class Table:
    """The samples of one origin, and the file that they are kept in."""

    path: Path | None
    """None: nowhere."""
    origin: Origin
    steps: list[TimedStep] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    """A step's description -> why it was not timed."""
    _saved_s: float = 0.0

    @classmethod
    def open(cls, path: Path | None, origin: Origin) -> Table:
        """A new table, or the one that is there. Raises InputError where that is of another device, model or build."""
        if path is None or not path.exists():
            return cls(path, origin)
        found = read_samples(path)
        old = found.origins[0]
        for name in ("device", "model", "tensor_parallel_size", "dtype", "engine_version", "capture_sizes"):
            if getattr(old, name) != getattr(origin, name):
                expected = f"{getattr(origin, name)}, to go on with this table; or another --out"
                raise InputError(file=path, field=name, value=getattr(old, name), expected=expected)
        return cls(path, origin, found.steps(), dict(old.notes.get("skipped", {})))

    def done(self) -> set[tuple[object, object]]:
        """Compositions that need not be timed again."""
        return {(step.chunks, step.decodes) for step in self.steps}

    def add(self, step: TimedStep) -> None:
        """Keep a sample; the file follows every few seconds."""
        self.steps.append(step)
        if time.monotonic() - self._saved_s > _SAVE_EVERY_S:
            self.save()

    def save(self) -> None:
        """Write the file."""
        self._saved_s = time.monotonic()
        if self.steps and self.path is not None:
            origin = replace(self.origin, notes={**self.origin.notes, "skipped": self.skipped})
            write_samples(self.path, Samples.of_steps(self.steps, origin))


def measure(
    steps: Iterable[GridStep],
    runner: Runner,
    table: Table,
    effort: Effort,
    *,
    memory_error: type[Exception],
    on_step: Callable[[GridStep], None] = lambda _step: None,
) -> int:
    """Time steps in their order until the budget is used up; how many were timed.

    A step that does not fit the memory, or would take too much of the budget, is noted in `table.skipped`.
    """
    started_s = time.monotonic()
    done, timed = table.done(), 0
    pace = Pace()
    try:
        for step in steps:
            left_s = effort.budget_s - (time.monotonic() - started_s)
            if left_s <= 0:
                break
            if (step.chunks, step.decodes) not in done:
                timed += _time(step, runner, table, effort, pace, memory_error)
            on_step(step)
    finally:
        table.save()
    return timed


def _time(
    step: GridStep, runner: Runner, table: Table, effort: Effort, pace: Pace, memory_error: type[Exception]
) -> bool:
    name = describe(step)
    # One warm-up pass and one timed one are the least.
    if 2 * pace.foresee(step) > _SHARE_PER_STEP * effort.budget_s:
        table.skipped[name] = "would take too much of the time budget"
        return False
    if step.blocks(runner.block_size) * runner.block_size > runner.kv_tokens:
        table.skipped[name] = "more context than the KV cache holds"
        return False
    try:
        seconds = runner.seconds(step, effort.repeats, effort.per_step_s)
    except memory_error:
        table.skipped[name] = "out of memory"
        return False
    sample = timed_step(step, seconds, *runner.padded(step))
    pace.learn(step, sample.seconds)
    table.add(sample)
    return True


def timed_step(step: GridStep, seconds: Sequence[float], padded_tokens: int, graph: str) -> TimedStep:
    """A sample from repeated timings."""
    median, spread = summary(seconds)
    return TimedStep.of(
        step.chunks,
        step.decodes,
        median,
        padded_tokens=padded_tokens,
        graph=graph,
        repeats=len(seconds),
        spread=spread,
        source=SOURCE,
    )


def summary(seconds: Sequence[float]) -> tuple[float, float]:
    """Median, and half the distance of the 16th and 84th percentile relative to it (NaN for a single one)."""
    low, median, high = np.quantile(seconds, [0.16, 0.5, 0.84]).tolist()
    return median, 0.5 * (high - low) / median if len(seconds) > 1 else float("nan")


def describe(step: GridStep) -> str:
    """A step in a few words, such as "512@2048 + 8 x 1024": chunks (tokens after context), decode rows."""
    parts = [f"{n}@{c}" for n, c in step.chunks]
    if step.decodes:
        parts.append(f"{len(step.decodes)} x {step.decode_context // len(step.decodes)}")
    return " + ".join(parts)


class Pace:
    """Foresees how long a step will take, from those that were timed: a sum of costs per step, token, row and pair."""

    def __init__(self) -> None:
        self._rows: list[list[float]] = []
        self._cost: np.ndarray[tuple[int], np.dtype[np.float64]] | None = None

    def learn(self, step: GridStep, seconds: float) -> None:
        """A step took so long."""
        self._rows.append([feature / seconds for feature in _features(step)])
        if len(self._rows) >= _KNOWN_ENOUGH:
            self._cost, _ = nnls(np.array(self._rows), np.ones(len(self._rows)))

    def foresee(self, step: GridStep) -> float:
        """Seconds; 0 while too little is known."""
        return 0.0 if self._cost is None else float(self._cost @ _features(step))


def _features(step: GridStep) -> list[float]:
    return [1.0, float(step.num_tokens), float(step.num_seqs), float(step.decode_context), step.chunk_pairs]
