"""Simulated time as a picture shows it: long idle stretches are cut, so that what happened keeps its room.

Not for drawing. The one idea: one rising, piecewise linear map from seconds to places; a cut is a piece that hardly
rises.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_CUT_SHARE = 0.75
"""Idle stretches are cut where together they would take more than this of the picture."""
_LONG_SHARE = 0.05
"""Of the time shown: a stretch shorter than that is left alone."""
_MOST_CUTS = 8
_CUT_WIDTH = 0.04
"""Of what is shown, for each cut."""
_UNITS = ((86400.0, "days", 4 * 86400.0), (3600.0, "h", 4 * 3600.0), (60.0, "min", 300.0), (1.0, "s", 0.0))
"""Unit, its name, and the length from which on it is used."""


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """Knots of the map, and the stretches that were cut, (start, end) in seconds. Places count the seconds shown."""

    knots_s: Floats
    places: Floats
    cuts: tuple[tuple[float, float], ...]

    @classmethod
    def of_steps(cls, starts_s: Floats, ends_s: Floats) -> TimeAxis:
        """From 0 to the last step's end, for steps in order of time."""
        end_s = float(ends_s[-1]) if len(ends_s) else 0.0
        idle_from_s = np.concatenate(([0.0], ends_s))[: len(starts_s)]
        cuts, shown_s = _cuts(idle_from_s, starts_s, end_s)
        knots, places = [0.0], [0.0]
        for start_s, stop_s in cuts:
            places += [places[-1] + start_s - knots[-1]]
            places += [places[-1] + _CUT_WIDTH * shown_s]
            knots += [start_s, stop_s]
        knots, places = [*knots, end_s], [*places, places[-1] + end_s - knots[-1]]
        return cls(np.array(knots), np.array(places), cuts)

    @property
    def width(self) -> float:
        """Where the axis ends."""
        return float(self.places[-1])

    def place(self, times_s: Floats) -> Floats:
        """Seconds -> places."""
        return np.interp(times_s, self.knots_s, self.places)

    def time_s(self, places: Floats) -> Floats:
        """Places -> seconds."""
        return np.interp(places, self.places, self.knots_s)

    def pieces(self) -> list[tuple[float, float]]:
        """What is shown between the cuts, (start, end) in seconds; there may be nothing before the first one."""
        edges = [0.0, *(edge for cut in self.cuts for edge in cut), float(self.knots_s[-1])]
        return [(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if b > a]

    @property
    def shown_s(self) -> float:
        """Seconds that are shown."""
        return sum(b - a for a, b in self.pieces())

    def unit(self) -> tuple[float, str]:
        """Seconds of the unit that suits what is shown, and its name."""
        return next((unit_s, name) for unit_s, name, least_s in _UNITS if self.shown_s >= least_s)

    def edges_s(self, width_s: float) -> Floats:
        """Edges of bins of `width_s`, that begin anew after every cut. A rest below half a bin joins the last one."""
        edges: list[float] = []
        for start_s, stop_s in self.pieces():
            count = max(1, math.floor((stop_s - start_s) / width_s + 0.5))
            edges += [*(start_s + width_s * np.arange(count)).tolist(), stop_s]
        return np.unique(np.array(edges or [0.0, 1.0]))


def _cuts(starts_s: Floats, stops_s: Floats, end_s: float) -> tuple[tuple[tuple[float, float], ...], float]:
    """The idle stretches to cut, in order of time, and the seconds that are left to show.

    Again and again, as what was short beside a gap of hours is long beside the seconds that remain.
    """
    lengths_s = stops_s - starts_s
    cut: set[int] = set()
    shown_s = end_s
    while True:
        longest = np.argsort(-lengths_s, kind="stable")[:_MOST_CUTS]
        more = [i for i in longest.tolist() if i not in cut and lengths_s[i] > _LONG_SHARE * shown_s]
        idle_s = float(lengths_s[more].sum())
        if not more or idle_s <= _CUT_SHARE * shown_s:
            return tuple((float(starts_s[i]), float(stops_s[i])) for i in sorted(cut)), shown_s
        cut.update(more)
        shown_s -= idle_s
