"""All of a run, kept: every step as a row, every gap between two tokens.

Not for runs that are too long for that (`totals`). The one idea: a request's tokens are *runs* of steps
`(first, last)`, and its gaps are differences of these steps' ends, worked out once, for all requests.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import numpy as np

from sim.report.frames import Itls
from sim.report.step_rows import StepColumns

if TYPE_CHECKING:
    import pandas as pd

    from sim.core.request import Request as CoreRequest
    from sim.report.request_rows import RequestRows
    from sim.report.step_rows import StepBlock


class Kept:
    """What is kept of a run; `RunLog` tells it what happens."""

    def __init__(self) -> None:
        self._columns = StepColumns()
        self._runs: dict[CoreRequest, list[tuple[int, int]]] = {}
        """Live requests -> (first, last + 1) of their runs that are over."""
        self._settled = array("q")
        """(row, first, last + 1) of the runs of who is done, flat."""

    def arrived(self, arrival_s: float) -> None:
        """Somebody's time has come, or will come next."""

    def due(self, now_s: float) -> None:
        """The time of a follow-up turn has come."""

    def sent(self, now_s: float) -> None:
        """The client has sent a request."""

    def add(self, steps: StepBlock, _requests: RequestRows) -> None:
        """Steps that have ended, in order, sooner or later."""
        self._columns.add(steps)

    def run_over(self, request: CoreRequest, first: int, stop: int, _end_s: float) -> None:
        """It got a token in each step from `first` to the one before `stop`, but gets none in that."""
        self._runs.setdefault(request, []).append((first, stop))

    def resumed(self, request: CoreRequest, end_s: float) -> None:
        """It gets a token again, at `end_s`."""

    def settled(self, request: CoreRequest, row: int) -> None:
        """It gets no more tokens."""
        for first, stop in self._runs.pop(request, ()):
            self._settled.extend((row, first, stop))

    def steps(self) -> pd.DataFrame:
        """The table `Frames.steps`; no `add` after it."""
        return self._columns.frame()

    def itls(self, num_rows: int) -> Itls:
        """All gaps in order of rows, whoever has none included; nobody may be settled after it."""
        runs = np.frombuffer(self._settled, dtype=np.int64).reshape(-1, 3)
        rows, firsts, stops = runs[np.argsort(runs[:, 0], kind="stable")].T
        num_tokens = np.zeros(num_rows, dtype=np.int64)
        np.add.at(num_tokens, rows, stops - firsts)
        offsets = np.concatenate(([0], np.cumsum(np.maximum(num_tokens - 1, 0))))
        ends_s = self._columns.ends_s()
        gaps_s = ends_s[1:] - ends_s[:-1]
        values_s = np.empty(offsets[-1])
        at, row_before, stop_before = 0, -1, 0
        for row, first, stop in zip(rows.tolist(), firsts.tolist(), stops.tolist(), strict=True):
            if row == row_before:
                values_s[at] = ends_s[first] - ends_s[stop_before - 1]
                at += 1
            values_s[at : at + stop - first - 1] = gaps_s[first : stop - 1]
            at, row_before, stop_before = at + stop - first - 1, row, stop
        return Itls(values_s, offsets)
