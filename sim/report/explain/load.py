"""How the run stood against its capacity: saturation, thrash, and where the wait for the first token went."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sim.report.explain.explanation import Saturation, State, Thrash, TtftPart
from sim.report.insight import load, ttft_parts_s
from sim.report.units import percent

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sim.report.explain.run import Run

THRASHING = 0.1
"""Recomputed over useful tokens from which on preemption is no longer a hiccup (a run that loses one request in
thirteen, once each, stays far below)."""
CYCLE = 3
"""Preemptions of one request that make it a cycle."""
_BACKLOGGED = 0.05
"""Share of time with somebody waiting."""
_GROWN = 1.2
"""The queue at the last arrival over the queue half way, from which on it was still growing."""
_NOISE = 3.0
"""Standard deviations of a Poisson count: a shorter queue is chance."""


def thrash(run: Run) -> Thrash:
    """Work that preemption threw away, and who was hit again and again."""
    preemptions = run.requests("preemptions")
    recomputed = int(run.requests("recomputed_tokens").sum())
    useful = int(run.column("num_tokens").sum()) - recomputed
    share = recomputed / useful if useful > 0 else 0.0
    worst = int(np.argmax(preemptions))
    most = int(preemptions[worst])
    return Thrash(
        preemptions=int(preemptions.sum()),
        preempted_requests=int((preemptions > 0).sum()),
        recomputed_tokens=recomputed,
        useful_tokens=useful,
        recomputed_share=share,
        cycling_requests=int((preemptions >= CYCLE).sum()),
        most_preempted=str(run.requests("request_id")[worst]) if most else None,
        most_preemptions=most,
        thrashing=share >= THRASHING,
    )


def ttft_parts(run: Run) -> tuple[TtftPart, ...]:
    """Mean and 99th percentile of each part, from the arrival on; empty when no request saw a token."""
    parts_s = ttft_parts_s(run.frames)
    means = {name: float(values.mean()) if len(values) else 0.0 for name, values in parts_s.items()}
    total = sum(means.values())
    if not total:
        return ()
    return tuple(
        TtftPart(name, means[name] * 1e3, float(np.percentile(values, 99)) * 1e3, means[name] / total)
        for name, values in parts_s.items()
    )


@dataclass(frozen=True, slots=True)
class _Queue:
    """Requests not yet taken, over the time in which requests came."""

    arrivals: int
    window_s: float
    half_way: int
    at_end: int
    at_client: int

    @property
    def grows(self) -> bool:
        """More than chance, and more than half way: the server took fewer than came."""
        chance = _NOISE * self.arrivals**0.5
        return self.at_end > max(chance, 0.05 * self.arrivals) and self.at_end >= _GROWN * self.half_way


def saturation(run: Run) -> Saturation:
    """Stable: nearly nobody waits. Backlogged: a queue that is worked off. Overloaded: one that grows with the time.

    Arrivals that end before the first requests are done are a burst, however many wait at its end.
    """
    queue, of_load = _queue(run), load(run.frames)
    per_s = queue.arrivals / queue.window_s if queue.window_s > 0 else 0.0
    taken_per_s = (queue.arrivals - queue.at_end) / queue.window_s if queue.window_s > 0 else 0.0
    burst = queue.window_s < _median_service_s(run)
    state: State = "stable"
    if queue.grows and not burst:
        state = "overloaded"
    elif of_load["queued_share"] >= _BACKLOGGED:
        state = "backlogged"
    return Saturation(
        state=state,
        burst=burst,
        told=_told(state, queue, burst=burst, queued=of_load["queued_share"]),
        arrivals_per_s=per_s,
        taken_per_s=taken_per_s,
        waiting_at_last_arrival=queue.at_end,
        waiting_at_client=queue.at_client,
        busy_share=of_load["busy_share"],
        queued_share=of_load["queued_share"],
        utilization=of_load["utilization"],
        ordering_only=of_load["ordering_only"],
    )


def _told(state: State, queue: _Queue, *, burst: bool, queued: float) -> str:
    n, window_s, left = queue.arrivals, queue.window_s, queue.at_end
    if state == "overloaded":
        taken = n - left
        was = "was" if taken == 1 else "were"
        return (
            f"in {window_s:,.1f} s {n:,} requests came ({n / window_s:,.2f}/s) and {taken:,} {was} taken"
            f" ({taken / window_s:,.2f}/s): {left:,} waited at the last arrival, {queue.half_way:,} half way"
        )
    if burst and state == "backlogged":
        when = "at once" if window_s == 0 else f"within {window_s:,.1f} s, less than one takes"
        return f"all {n:,} requests came {when}: a burst that was worked off, which says nothing of a lasting rate"
    if state == "backlogged":
        return (
            f"somebody waited {percent(queued)} of the time, but the queue was worked off: {left:,} at the last arrival"
        )
    return f"somebody waited {percent(queued)} of the time"


def _queue(run: Run) -> _Queue:
    arrival_s = run.requests("arrival_s")
    sent_s, taken_s = np.nan_to_num(run.requests("send_s"), nan=np.inf), run.requests("scheduled_s")
    rejected = (run.frames.requests["status"] == "rejected").to_numpy(dtype=bool)
    taken_s = np.where(rejected, sent_s, np.nan_to_num(taken_s, nan=np.inf))
    first_s, last_s = float(arrival_s.min()), float(arrival_s.max())
    # Whoever is on the way to the server's queue does not wait in it.
    path_s = float(np.nan_to_num(run.requests("queued_s") - run.requests("send_s")).max(initial=0.0))

    def left(at_s: float, done_s: NDArray[np.float64]) -> int:
        return int((arrival_s <= at_s - path_s).sum() - (done_s <= at_s).sum())

    half_s = (first_s + last_s) / 2
    at_end = max(0, left(last_s, taken_s))
    at_client = min(at_end, max(0, int((sent_s > last_s).sum())))
    return _Queue(len(arrival_s), last_s - first_s, max(0, left(half_s, taken_s)), at_end, at_client)


def _median_service_s(run: Run) -> float:
    """From a request's first step to its end."""
    service_s = run.requests("finish_s") - run.requests("scheduled_s")
    return float(np.nanmedian(service_s)) if np.isfinite(service_s).any() else 0.0
