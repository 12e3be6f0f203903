"""All of a run, kept: every step as a row, every gap between two tokens.

Not for runs that are too long for that (`totals`). The one idea: a request's tokens are *runs* of steps
`(first, last)`, and its gaps are differences of these steps' ends, worked out once, when it is done.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import numpy as np

from sim.report.frames import Itls
from sim.report.step_rows import StepColumns

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from sim.core.request import Request as CoreRequest
    from sim.report.request_rows import RequestRows


class Kept:
    """What is kept of a run; `RunLog` tells it what happens."""

    def __init__(self) -> None:
        self._columns = StepColumns()
        self._ends_s = array("d")
        """End of every step."""
        self._runs: dict[CoreRequest, list[tuple[int, int]]] = {}
        """Live requests -> (first, last + 1) of their runs that are over."""
        self._gaps_s = array("d")
        self._rows = array("q")
        self._stops = array("q")
        """Gaps of one request after the other; who that was, and where its gaps end."""

    def arrived(self, arrival_s: float) -> None:
        """Somebody's time has come, or will come next."""

    def due(self, now_s: float) -> None:
        """The time of a follow-up turn has come."""

    def sent(self, now_s: float) -> None:
        """The client has sent a request."""

    def ended(self, ends_s: list[float]) -> None:
        """The next steps: when they ended."""
        self._ends_s.fromlist(ends_s)

    def add(self, rows: NDArray[np.void], _requests: RequestRows) -> None:
        """Steps that have ended, in order, sooner or later."""
        self._columns.add(rows)

    def run_over(self, request: CoreRequest, first: int) -> None:
        """It got a token in each step from `first` to the last one that ended, but gets none in the next."""
        self._runs.setdefault(request, []).append((first, len(self._ends_s)))

    def resumed(self, request: CoreRequest, end_s: float) -> None:
        """It gets a token again, at `end_s`."""

    def settled(self, request: CoreRequest, row: int) -> None:
        """It gets no more tokens."""
        times_s = array("d")
        for first, stop in self._runs.pop(request, ()):
            times_s += self._ends_s[first:stop]
        if len(times_s) > 1:
            ends_s = np.frombuffer(times_s)
            self._gaps_s.frombytes((ends_s[1:] - ends_s[:-1]).tobytes())
        self._rows.append(row)
        self._stops.append(len(self._gaps_s))

    def steps(self) -> pd.DataFrame:
        """The table `Frames.steps`; no `add` after it."""
        return self._columns.frame()

    def itls(self, num_rows: int) -> Itls:
        """All gaps in order of rows, whoever has none included; nobody may be settled after it."""
        gaps_s = np.frombuffer(self._gaps_s)
        rows, stops = np.frombuffer(self._rows, dtype=np.int64), np.frombuffer(self._stops, dtype=np.int64)
        starts = np.concatenate(([0], stops))[: len(stops)]
        offsets = np.zeros(num_rows + 1, dtype=np.int64)
        offsets[rows + 1] = stops - starts
        np.cumsum(offsets, out=offsets)
        values_s = np.empty(len(gaps_s))
        for start, stop, at in zip(starts.tolist(), stops.tolist(), offsets[rows].tolist(), strict=True):
            values_s[at : at + stop - start] = gaps_s[start:stop]
        return Itls(values_s, offsets)
