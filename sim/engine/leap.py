"""When each of many quiet steps starts and ends, worked out at once. (Quiet: see `sim.core.decode_run`.)"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import NamedTuple


class Span(NamedTuple):
    """When the device works on a step."""

    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Leap:
    """Rounds of scheduling a step and landing one. Async lands the step before the one that it schedules."""

    began_s: float
    host_s: float
    spans: list[Span]
    """Of the steps that the rounds schedule."""
    landed_s: list[float]
    """When each round is over: its step is landed, and the next round's is scheduled."""

    def rounds_until(self, now_s: float) -> int:
        """Rounds that are over."""
        return bisect_right(self.landed_s, now_s)

    def scheduled_s(self, round_: int) -> float:
        """When a round's step is scheduled."""
        return self.landed_s[round_ - 1] if round_ else self.began_s


def plan_leap(
    now_s: float, device_free_s: float, host_s: float, device_s: list[float], in_flight_end_s: float | None
) -> Leap:
    """The times of rounds that schedule steps of `device_s` seconds each.

    in_flight_end_s: the end of the step in flight (async), which the first round lands; None where each round lands
    its own step (sync).
    """
    began_s = now_s
    spans: list[Span] = []
    landed_s: list[float] = []
    landing_s = in_flight_end_s
    for seconds in device_s:
        host_free_s = now_s + host_s
        start_s = max(host_free_s, device_free_s)
        device_free_s = start_s + seconds
        spans.append(Span(start_s, device_free_s))
        if landing_s is None:
            now_s = max(device_free_s, host_free_s)
        else:
            now_s = max(landing_s, host_free_s)
            landing_s = device_free_s
        landed_s.append(now_s)
    return Leap(began_s, host_s, spans, landed_s)
