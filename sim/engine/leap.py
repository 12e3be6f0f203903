"""When each of many quiet steps starts and ends, worked out at once. (Quiet: see `sim.core.decode_run`.)"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sim.core.step import StepPlan
    from sim.report.log import QuietStep


@dataclass(slots=True)
class Leap:
    """Rounds of scheduling a step and landing one. Async lands the step before the one that it schedules."""

    began_s: float
    host_s: list[float]
    start_s: list[float]
    end_s: list[float]
    """When the device works on the steps that the rounds schedule."""
    landed_s: list[float]
    """When each round is over: its step is landed, and the next round's is scheduled."""
    stops: list[int]
    """After how many rounds there is something to do: somebody finishes, or the leap is over."""
    landed: int = 0
    """Rounds that are over, and that everybody knows of."""
    scheduled: list[QuietStep] = field(default_factory=list)
    """Their steps that have not run yet (async: one)."""
    last: StepPlan | None = None
    """The plan of the last of them."""

    def rounds_until(self, now_s: float) -> int:
        """Rounds that are over."""
        return bisect_right(self.landed_s, now_s)

    def scheduled_s(self, round_: int) -> float:
        """When a round's step is scheduled."""
        return self.landed_s[round_ - 1] if round_ else self.began_s


def plan_leap(
    now_s: float,
    device_free_s: float,
    costs_s: Iterable[tuple[float, float]],
    in_flight_end_s: float | None,
    finishes: list[int],
) -> Leap:
    """The times of rounds that schedule steps of so many host and device seconds each.

    in_flight_end_s: the end of the step in flight (async), which the first round lands; None where each round lands
    its own step (sync). finishes: after how many rounds somebody finishes.
    """
    began_s, landing_s = now_s, in_flight_end_s
    hosts_s: list[float] = []
    starts_s: list[float] = []
    ends_s: list[float] = []
    landed_s: list[float] = []
    for host_s, seconds in costs_s:
        host_free_s = now_s + host_s
        start_s = host_free_s if host_free_s > device_free_s else device_free_s
        device_free_s = start_s + seconds
        if landing_s is None:
            now_s = device_free_s
        else:
            now_s = landing_s if landing_s > host_free_s else host_free_s
            landing_s = device_free_s
        hosts_s.append(host_s)
        starts_s.append(start_s)
        ends_s.append(device_free_s)
        landed_s.append(now_s)
    rounds = len(landed_s)
    stops = [stop for stop in finishes if stop < rounds]
    return Leap(began_s, hosts_s, starts_s, ends_s, landed_s, [*stops, rounds])
