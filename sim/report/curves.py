"""The curves of a run, as numbers: what each step said, as a function of time, and latencies as spreads.

Not for drawing. The one idea: a step's value holds from its start until the next step's, and is 0 while nothing runs;
long curves are shown as means and peaks of bins, so that no moment gets lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sim.report.frames import Frames

    Floats = NDArray[np.float64]


class StepCurves:
    """The times at which the curves of one run change, `times_s`, and what can be asked of any value per step."""

    def __init__(self, frames: Frames) -> None:
        starts_s = frames.steps["start_s"].to_numpy(dtype=np.float64)
        ends_s = frames.steps["end_s"].to_numpy(dtype=np.float64)
        idle = np.append(starts_s[1:], np.inf) > ends_s + 1e-9 if len(starts_s) else np.zeros(0, dtype=bool)
        times_s = np.concatenate(([0.0], starts_s, ends_s[idle]))
        self._order = np.argsort(times_s, kind="stable")
        self._pauses = int(idle.sum())
        self.times_s: Floats = times_s[self._order]

    def values(self, per_step: NDArray[np.float64] | NDArray[np.int64]) -> Floats:
        """One per entry of `times_s`."""
        return np.concatenate(([0.0], per_step.astype(np.float64), np.zeros(self._pauses)))[self._order]

    def means(self, values: Floats, edges_s: Floats) -> Floats:
        """Over time, of each bin: differences of the curve's integral."""
        area = np.concatenate(([0.0], np.cumsum(values[:-1] * np.diff(self.times_s))))
        return np.diff(np.interp(edges_s, self.times_s, area)) / np.diff(edges_s)

    def peaks(self, values: Floats, edges_s: Floats) -> Floats:
        """Largest value that begins in each bin or reaches into it."""
        first = np.searchsorted(self.times_s, edges_s[:-1], side="right") - 1
        last = np.searchsorted(self.times_s, edges_s[1:], side="left")
        return np.array([values[max(a, 0) : b].max(initial=0.0) for a, b in zip(first, last, strict=True)])


ABOVE_THE_REST = 0.6
"""How far above the last share that can be told stands 100 %, which has no place on an axis of nines."""


def spread_top(most_values: int) -> float:
    """Where 100 % stands on the stretched axis of spreads of so many values."""
    return max(2.0, float(np.log10(most_values))) + ABOVE_THE_REST


def spread_ms(values_s: Floats, top: float | None = None) -> tuple[Floats, Floats]:
    """A spread's curve: times in ms, and the share that waited no longer as a height, one unit for each nine.

    It ends with the longest wait, at `top`: where 100 % stands, beside spreads of more values.
    """
    top = spread_top(len(values_s)) if top is None else top
    height = np.append(np.linspace(0, top - ABOVE_THE_REST, 600), top)
    shares = np.append(1 - 10 ** -height[:-1], 1.0)
    return 1000 * np.quantile(values_s, shares), height
