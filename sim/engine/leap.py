"""When each of many quiet steps starts and ends, worked out at once. (Quiet: see `sim.core.decode_run`.)"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sim.latency.profile import DecodeCost


@dataclass(slots=True)
class Leap:
    """Rounds of scheduling a step and landing one. Async lands the step before the one that it schedules."""

    began_s: float
    num_waiting: int
    """Requests that wait all the while: somebody who comes shortens it, and waits no sooner than it is over."""
    start_s: list[float]
    end_s: list[float]
    """When the device works on the steps that the rounds schedule."""
    landed_s: list[float]
    """When each round is over: its step is landed, and the next round's is scheduled."""
    stops: list[int]
    """After how many rounds there is something to do: somebody finishes, or the leap is over."""
    landed: int = 0
    """Rounds that are over, and that everybody knows of."""

    def scheduled_s(self, round_: int) -> float:
        """When a round's step is scheduled."""
        return self.landed_s[round_ - 1] if round_ else self.began_s

    def rounds_begun(self, now_s: float) -> int:
        """Rounds whose step is scheduled already: the last of them is going on."""
        return bisect_right(self.landed_s, now_s) + 1

    def shorten(self, now_s: float) -> None:
        """End with the round that is going on."""
        rounds = self.rounds_begun(now_s)
        if rounds < self.stops[-1]:
            self.stops[bisect_left(self.stops, rounds) :] = [rounds]


def plan_leap(
    now_s: float,
    num_waiting: int,
    priced: list[tuple[DecodeCost, range]],
    in_flight_end_s: float | None,
    finishes: list[int],
) -> Leap:
    """The times of rounds that schedule steps of decodes: what each stretch of them costs, and its context in each.

    The same numbers, bit for bit, as `FusedLaw.price` makes of each step.
    in_flight_end_s: the end of the step in flight (async), which the first round lands; None where each round lands
    its own step (sync). finishes: after how many rounds somebody finishes.
    """
    start_s: list[float] = []
    end_s: list[float] = []
    if in_flight_end_s is None:
        _one_by_one(now_s, priced, start_s, end_s)
        landed_s = end_s
    else:
        _overlapping(now_s, in_flight_end_s, priced, start_s, end_s)
        landed_s = start_s  # a step starts when the one before is over, and it has been prepared
    rounds = len(landed_s)
    stops = [*finishes[: bisect_left(finishes, rounds)], rounds]
    return Leap(now_s, num_waiting, start_s, end_s, landed_s, stops)


def _one_by_one(now_s: float, priced: list[tuple[DecodeCost, range]], start_s: list[float], end_s: list[float]) -> None:
    """Host, device, host, device."""
    for (host_s, still_s, context_s, *_), contexts in priced:
        for context in contexts:
            now_s += host_s
            start_s.append(now_s)
            now_s += still_s + context_s * context
            end_s.append(now_s)


def _overlapping(
    now_s: float,
    device_free_s: float,
    priced: list[tuple[DecodeCost, range]],
    start_s: list[float],
    end_s: list[float],
) -> None:
    """The host prepares a step while the device is busy with the one before."""
    for (host_s, still_s, context_s, *_), contexts in priced:
        for context in contexts:
            now_s += host_s
            if now_s < device_free_s:
                now_s = device_free_s
            device_free_s = now_s + (still_s + context_s * context)
            start_s.append(now_s)
            end_s.append(device_free_s)
