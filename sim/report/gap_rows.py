"""Gaps between the tokens of requests that are done, in the order in which they were done.

Not for what they are summed up to (`gap_totals`). The one idea: gaps of one request after the other in one array, and
beside it who that was and where the gaps end.
"""

from __future__ import annotations

from array import array

import numpy as np

from sim.report.frames import Itls


class GapRows:
    """A ragged array that grows."""

    def __init__(self) -> None:
        self._gaps_s = array("d")
        self._rows = array("q")
        self._stops = array("q")

    def add(self, row: int, times_s: array[float]) -> None:
        """The request of `row` is done: when each of its tokens came."""
        if len(times_s) > 1:
            self._gaps_s.frombytes(np.diff(np.frombuffer(times_s)).tobytes())
        self._rows.append(row)
        self._stops.append(len(self._gaps_s))

    def itls(self, num_rows: int) -> Itls:
        """In order of rows, all that there are; rows that were not added have no gaps. No `add` after it."""
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
