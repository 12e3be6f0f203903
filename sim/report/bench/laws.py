"""Whether a result can be true: laws that hold in every server, whatever its speed.

Not for judging one result by another (`compare`). The one idea: a file's figures come from several places, and Little's
law (number in the system = rate x time in the system) ties them together, so that a file whose parts belong to
different runs, or to other units, is caught before it is compared.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sim.report.bench.run import METRICS, statistics_ms

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from sim.report.bench.run import BenchRun

LITTLE = "Little's law"
_LATER = "output tokens after the first"
EXACT, CLOSE, LOOSE = 0.001, 0.05, 0.25
"""Relative. Exact: the same arithmetic once more. Loose: where a mean over requests stands for one over tokens, or a
window cuts requests."""


@dataclass(frozen=True, slots=True)
class Check:
    """Two ways to the same number. `at_most`: the first may be smaller than the second, not larger."""

    law: str
    left_name: str
    left: float
    right_name: str
    right: float
    tolerance: float
    at_most: bool = False

    @property
    def ok(self) -> bool:
        """Whether they agree."""
        if self.at_most:
            return self.left <= self.right * (1 + self.tolerance)
        return abs(self.left - self.right) <= self.tolerance * max(abs(self.right), abs(self.left))


def check(run: BenchRun) -> list[Check]:
    """The checks that a file has the figures for; may be none."""
    return [*_rates(run), *_lists(run), *_in_flight(run), *_decoding(run)]


def _rates(run: BenchRun) -> Iterator[Check]:
    """Rates are counts over the duration; in a window, first and last requests count on one side only."""
    tolerance = LOOSE if run.windowed else CLOSE
    for key, count, what in (
        ("request_throughput", run.completed, "requests"),
        ("output_throughput", run.output_tokens, "output tokens"),
    ):
        if key in run.stated and run.duration_s > 0:
            yield Check("Rates", key, run.stated[key], f"{what} / duration", count / run.duration_s, tolerance)


def _lists(run: BenchRun) -> Iterator[Check]:
    """What is stated is what the listed requests say; of latencies one check, of the mean that is furthest off.

    A chunk brings a token at least: more gaps than tokens say that the client counted with another tokenizer.
    """
    if run.requests is None or run.sampled:
        return
    listed_tokens = float(run.requests["output_tokens"].sum())
    if not run.windowed:
        yield Check("Lists", "output tokens stated", run.output_tokens, "output tokens listed", listed_tokens, EXACT)
    if run.gaps_s is not None:
        later = listed_tokens - len(run.requests)
        yield Check("Lists", "gaps between chunks", len(run.gaps_s), _LATER, later, CLOSE, at_most=True)
    made: dict[str, float] = {}
    for metric in METRICS:
        values_s = run.seconds(metric)
        if values_s is not None:
            made |= statistics_ms(metric, values_s)
    means = [key for key in made if key.startswith("mean_") and key in run.stated]
    if means:
        worst = max(means, key=lambda key: abs(made[key] - run.stated[key]) / max(made[key], 1e-9))
        tolerance = LOOSE if run.windowed else EXACT
        yield Check("Lists", f"{worst} stated", run.stated[worst], "from the requests", made[worst], tolerance)


def _in_flight(run: BenchRun) -> Iterator[Check]:
    """Little's law: throughput x mean latency is the mean number in flight, which is never above the client's cap."""
    figures = run.figures()
    rate, latency_ms = figures.get("request_throughput"), figures.get("mean_e2el_ms")
    counted, peak = _counted(run.requests) if _timed(run) else (run.in_flight, run.peak_in_flight)
    if rate and latency_ms:
        flow = rate * latency_ms / 1000
        if counted is not None:
            # The clock started before the first send: in a short run that is some of its time.
            tolerance = LOOSE if run.windowed else CLOSE + 2 / run.completed
            yield Check(LITTLE, "throughput x mean latency", flow, "mean in flight", counted, tolerance)
        elif peak is not None:
            yield Check(LITTLE, "throughput x mean latency", flow, "peak in flight", peak, CLOSE, at_most=True)
        if run.max_concurrency is not None:
            cap = float(run.max_concurrency)
            yield Check(LITTLE, "throughput x mean latency", flow, "max_concurrency", cap, CLOSE, at_most=True)
    if peak is not None and run.max_concurrency is not None and _timed(run):
        yield Check("Cap", "peak in flight", peak, "max_concurrency", float(run.max_concurrency), CLOSE, at_most=True)


def _timed(run: BenchRun) -> bool:
    return run.requests is not None and not run.sampled and not run.requests["start_s"].isna().any()


def _counted(requests: pd.DataFrame | None) -> tuple[float, float]:
    """Mean and peak of requests in flight, from when each was sent and answered, first send to last answer."""
    assert requests is not None
    start_s = requests["start_s"].to_numpy(np.float64)
    end_s = start_s + requests["latency_s"].to_numpy(np.float64)
    span_s = float(end_s.max() - start_s.min())
    # The next is sent the moment that one is answered: a microsecond decides who comes first.
    times_s = np.concatenate((start_s, end_s - 1e-6))
    change = np.repeat((1, -1), len(start_s))[np.argsort(times_s, kind="stable")]
    return (float((end_s - start_s).sum()) / span_s if span_s else math.nan), float(np.cumsum(change).max())


def _decoding(run: BenchRun) -> Iterator[Check]:
    """Little's law between the first token and the last: requests decoding / TPOT is the rate of later tokens."""
    figures = run.figures()
    keys = ("request_throughput", "output_throughput", "mean_ttft_ms", "mean_tpot_ms", "mean_e2el_ms")
    if not all(key in figures for key in keys):
        return
    rate, tokens_per_s, ttft_ms, tpot_ms, e2el_ms = (figures[key] for key in keys)
    tolerance = LOOSE
    if run.requests is not None and not run.sampled:
        tpot_ms, tolerance = _tpot_of_tokens_ms(run.requests), LOOSE if run.windowed else CLOSE
    later = tokens_per_s - rate
    # A hundredth of the tokens or less: rounding, not decoding.
    if tpot_ms > 0 and later > 0.01 * tokens_per_s:
        flow = rate * (e2el_ms - ttft_ms) / tpot_ms
        yield Check(LITTLE, "decoding / TPOT", flow, "output tokens/s after the first", later, tolerance)


def _tpot_of_tokens_ms(requests: pd.DataFrame) -> float:
    """The mean over tokens, not over requests."""
    several = requests[(requests["output_tokens"] > 1) & requests["ttft_s"].notna()]
    later = float((several["output_tokens"] - 1).sum())
    return 1000 * float((several["latency_s"] - several["ttft_s"]).sum()) / later if later else 0.0
