"""A run of which nothing is kept but what its summary needs: no step, no token.

Not for runs that are kept whole (`kept`). The one idea: all but the requests' own columns is added up as it happens, so
memory grows with the requests by their rows only. A gap between two tokens is a step's: as many requests have it as got
a token in this step and in the one before.
"""

from __future__ import annotations

from array import array
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from sim.report.gap_totals import GapTotals, TokensPerSecond
from sim.report.step_totals import StepTotals, load_columns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sim.core.request import Request as CoreRequest
    from sim.report.request_rows import RequestRows
    from sim.report.step_rows import StepBlock


class Totals:
    """What is added up of a run; `RunLog` tells it what happens, as it tells `Kept`."""

    def __init__(self, response_s: float) -> None:
        self.steps = StepTotals()
        self.gaps = GapTotals()
        self._response_s = response_s
        self._tokens: TokensPerSecond | None = None
        self._last_s: dict[CoreRequest, float] = {}
        """Live requests that get no token now -> when they got their last one."""
        self._long_gaps_s = array("d")
        """Over more than one step."""
        self._queue = _ClientQueue()

    def arrived(self, arrival_s: float) -> None:
        """Somebody's time has come, or will come next."""
        self._queue.arrivals_s.append(arrival_s)
        self._queue.known_until_s = arrival_s

    def due(self, now_s: float) -> None:
        """The time of a follow-up turn has come."""
        self._queue.arrivals_s.append(now_s)

    def sent(self, now_s: float) -> None:
        """The client has sent a request."""
        self._queue.sends_s.append(now_s)

    def add(self, steps: StepBlock, requests: RequestRows) -> None:
        """Steps that have ended, in order, sooner or later."""
        ends_s = steps["end_s"]
        if not len(ends_s):
            return
        before_s = steps["start_s"][0] if self.steps.steps == 0 else self.steps.end_s
        self.gaps.add(np.diff(ends_s, prepend=before_s), steps["continued"])
        long_gaps_s = np.array(self._long_gaps_s)
        self.gaps.add(long_gaps_s, np.ones(len(long_gaps_s), dtype=np.int64))
        del self._long_gaps_s[:]
        if self._tokens is None:
            self._tokens = TokensPerSecond(requests.first_send_s())
        self._tokens.add(ends_s + self._response_s, steps["streams"])
        self.steps.add(steps)
        self._queue.add(steps, self.steps)

    def run_over(self, request: CoreRequest, _first: int, _stop: int, end_s: float) -> None:
        """It got a token in the last step, which ended at `end_s`, but gets none in the next; or it is done."""
        self._last_s[request] = end_s

    def resumed(self, request: CoreRequest, end_s: float) -> None:
        """It gets a token again, at `end_s`."""
        self._long_gaps_s.append(end_s - self._last_s.pop(request))

    def settled(self, request: CoreRequest, _row: int) -> None:
        """It gets no more tokens."""
        self._last_s.pop(request, None)

    def close(self) -> None:
        """No more steps."""
        self._queue.known_until_s = inf
        self._queue.settle(self.steps)

    def most_tokens_per_s(self) -> float:
        """In any whole second."""
        return float(self._tokens.most()) if self._tokens is not None else 0.0


class _ClientQueue:
    """Who the client's own cap holds back while a step runs.

    A client that lags behind has not read its next requests yet, though their time has come: steps wait here until all
    arrivals before them are known.
    """

    def __init__(self) -> None:
        self.arrivals_s, self.sends_s = array("d"), array("d")
        """Since the last step that was settled."""
        self.known_until_s = 0.0
        self._held = 0
        """Before those."""
        self._waiting: list[dict[str, NDArray[Any]]] = []

    def add(self, steps: StepBlock, totals: StepTotals) -> None:
        """The next steps."""
        self._waiting.append(load_columns(steps))
        self.settle(totals)

    def settle(self, totals: StepTotals) -> None:
        """Count the load of steps of which that can be done."""
        while self._waiting and self._waiting[0]["start_s"][-1] < self.known_until_s:
            rows = self._waiting.pop(0)
            arrived, self.arrivals_s = _counted(self.arrivals_s, rows["start_s"])
            sent, self.sends_s = _counted(self.sends_s, rows["start_s"])
            at_client = self._held + arrived - sent
            totals.load.add(rows, at_client)
            self._held = int(at_client[-1])


def _counted(moments_s: array[float], starts_s: NDArray[np.float64]) -> tuple[NDArray[np.int64], array[float]]:
    """How many moments there are up to each start; and those after the last one."""
    moments = np.array(moments_s)
    num_starts = len(starts_s)
    next_start = np.searchsorted(starts_s, moments)
    counts = np.cumsum(np.bincount(next_start, minlength=num_starts)[:num_starts])
    return counts, array("d", moments[next_start == num_starts].tobytes())
