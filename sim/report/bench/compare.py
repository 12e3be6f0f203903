"""Two results side by side: the error of each figure by itself, and whether the two may be compared at all.

Not for the laws that each must obey (`laws`). The one idea: nothing is summed up into one score, as errors of TTFT and
TPOT can cancel in E2E latency; and what differs in the workload is said before anybody reads an error.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sim.report.bench.laws import Check, check
from sim.report.bench.run import METRICS
from sim.report.units import signed_percent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sim.report.bench.run import BenchRun, Floats

QUANTILES = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999)
_FEWEST_ABOVE = 2
"""A quantile is told when at least so many values lie above it."""
_SAME = 0.01
"""Mean lengths and rates closer than this are taken for the same workload."""
_ARRIVALS_SAME = 0.05
"""Rates that came about have chance in them."""
_CANCELS = 0.03


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of both."""

    key: str
    real: float
    simulated: float

    @property
    def error(self) -> float:
        """simulated / real - 1; NaN where the real one is 0."""
        return self.simulated / self.real - 1.0 if self.real else math.nan


@dataclass(frozen=True, slots=True)
class Quantiles:
    """One latency at `shares` of its values, in ms; errors at those shares."""

    metric: str
    shares: tuple[float, ...]
    real_ms: tuple[float, ...]
    simulated_ms: tuple[float, ...]

    @property
    def errors(self) -> tuple[float, ...]:
        """simulated / real - 1; NaN where the real one is 0."""
        pairs = zip(self.real_ms, self.simulated_ms, strict=True)
        return tuple(s / r - 1.0 if r else math.nan for r, s in pairs)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A measured result and a simulated one; neither needs to be what its place says."""

    real: BenchRun
    simulated: BenchRun
    figures: tuple[Figure, ...]
    """Of which both have the same, in the order of vLLM's table."""
    quantiles: tuple[Quantiles, ...]
    """Of the latencies that both list value by value."""
    differences: tuple[str, ...]
    """Why the two may not be compared as they stand; empty is good."""
    notes: tuple[str, ...]
    """What to know when reading the errors."""
    checks: tuple[tuple[str, Check], ...]
    """("real" or "simulated", law)."""

    @property
    def sound(self) -> bool:
        """No file breaks a law."""
        return all(law.ok for _, law in self.checks)


def compare(real: BenchRun, simulated: BenchRun) -> Comparison:
    """Side by side: figures, quantiles, what differs, and the laws."""
    left, right = real.figures(), simulated.figures()
    figures = tuple(Figure(key, left[key], right[key]) for key in left if key in right)
    sides = (("real", real), ("simulated", simulated))
    return Comparison(
        real=real,
        simulated=simulated,
        figures=figures,
        quantiles=tuple(_quantiles(real, simulated)),
        differences=tuple(_differences(real, simulated)),
        notes=(*_notes(figures), *(f"{side}: {told}" for side, run in sides for told in run.cautions)),
        checks=tuple((side, law) for side, run in sides for law in check(run)),
    )


def plain_model(model: str) -> str:
    """A model's name without owner and variant: a chat model takes as long as its base."""
    name = model.rpartition("/")[2].lower()
    return re.sub(r"(-(hf|instruct|chat|base|it))+$", "", name)


def _quantiles(real: BenchRun, simulated: BenchRun) -> Iterator[Quantiles]:
    for metric in METRICS:
        left, right = real.seconds(metric), simulated.seconds(metric)
        if left is not None and right is not None:
            shares = _shares(left, right)
            told = [tuple((1000 * np.quantile(values_s, shares)).tolist()) for values_s in (left, right)]
            yield Quantiles(metric, shares, *told)


def _shares(left: Floats, right: Floats) -> tuple[float, ...]:
    fewest = min(len(left), len(right))
    return tuple(q for q in QUANTILES if q <= 0.5 or (1 - q) * fewest >= _FEWEST_ABOVE)


def _differences(real: BenchRun, simulated: BenchRun) -> Iterator[str]:
    """In the workload, in the order in which they matter."""
    if real.model and simulated.model and plain_model(real.model) != plain_model(simulated.model):
        yield f"another model: {real.model}, {simulated.model}"
    if real.completed != simulated.completed:
        yield f"other request counts: {real.completed:,}, {simulated.completed:,}"
    for what in ("input", "output"):
        a, b = (getattr(run, f"{what}_tokens") / run.completed for run in (real, simulated))
        if a and b and _apart(a, b) > _SAME:
            yield f"other {what} lengths: {a:,.1f}, {b:,.1f} tokens on average"
    yield from _other_arrivals(real, simulated)
    caps = [_cap(run) for run in (real, simulated)]
    if caps[0] != caps[1]:
        a, b = (cap or "none" for cap in caps)
        yield f"another cap on requests in flight: {a}, {b}"
    if real.failed or simulated.failed:
        yield f"failed requests, which are left out: {real.failed:,}, {simulated.failed:,}"


def _cap(run: BenchRun) -> int | None:
    """The cap where it can have been at work: GuideLLM's default is one of 10,240."""
    cap = run.max_concurrency
    return cap if cap is not None and cap < run.completed else None


def _other_arrivals(real: BenchRun, simulated: BenchRun) -> Iterator[str]:
    """The rates that were asked for; where one is not known, or both were a trace's, what came about."""
    asked = [run.request_rate for run in (real, simulated)]
    if None not in asked and not all(map(_endless, asked)):
        a, b = (rate or 0.0 for rate in asked)
        if _endless(a) != _endless(b) or _apart(a, b) > _SAME:
            yield f"other request rates: {_rate(a)}, {_rate(b)}"
        return
    came = [_arrivals_per_s(run) for run in (real, simulated)]
    if came[0] is not None and came[1] is not None and _apart(came[0], came[1]) > _ARRIVALS_SAME:
        yield f"other arrivals: {came[0]:.3g}, {came[1]:.3g} requests/s sent"


def _endless(rate: float | None) -> bool:
    return rate == math.inf


def _rate(rate: float) -> str:
    return "all at once" if rate == math.inf else f"{rate:g} requests/s"


def _arrivals_per_s(run: BenchRun) -> float | None:
    """Requests sent per second between the first and the last; None where a cap or chance decides, or nothing is known.

    All at once is no rate.
    """
    if run.requests is None or run.sampled or run.max_concurrency is not None:
        return None
    start_s = run.requests["start_s"].to_numpy(np.float64)
    span_s = float(start_s[-1] - start_s[0])
    return (len(start_s) - 1) / span_s if span_s > 0.1 * run.duration_s else None


def _apart(a: float, b: float) -> float:
    return abs(a - b) / max(abs(a), abs(b)) if a or b else 0.0


def _notes(figures: tuple[Figure, ...]) -> Iterator[str]:
    """E2E latency that is right for the wrong reasons."""
    of = {figure.key: figure.error for figure in figures}
    total, first, later = (of.get(f"mean_{metric}_ms", math.nan) for metric in ("e2el", "ttft", "tpot"))
    opposite = first * later < 0 and min(abs(first), abs(later)) > _CANCELS
    if opposite and abs(total) < min(abs(first), abs(later)):
        parts = f"mean TTFT {signed_percent(first)} and TPOT {signed_percent(later)}"
        yield f"errors cancel: {parts} hide in an E2EL of {signed_percent(total)}"
