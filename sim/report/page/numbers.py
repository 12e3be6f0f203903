"""The numbers that the page's figures are drawn from, small enough for a page and honest about what was left out.

Not for the drawing (page.js). The one idea: a run of up to `EXACT` moments is there step by step, so that zooming in
ends at single steps; a longer one as means and peaks of `BINS` bins, which the page says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sim.report.curves import StepCurves, spread_ms
from sim.report.insight import held_at_client, kv_usage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from sim.report.frames import Frames

    Floats = NDArray[np.float64]

EXACT = 25_000
BINS = 12_000
_UNIT_S = 1e-4
_MOST_MARKS = 2_000
_SPREAD_POINTS = 200


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the curves over time were made."""

    moments: int
    """Steps, and the beginnings of pauses between them."""
    bin_s: float | None
    """None: every moment is there."""
    marks_left_out: int
    """Preempting steps without a mark of their own."""


def end_s(frames: Frames) -> float:
    """Of the last step; 0 without any."""
    return float(frames.steps["end_s"].max()) if len(frames.steps) else 0.0


def per_step(frames: Frames) -> dict[str, NDArray[Any]]:
    """The curves, by name, one value per step; `kv` in percent."""
    steps = frames.steps
    told = {name: steps[name].to_numpy(dtype=np.int64) for name in ("running", "waiting", "num_tokens", "decodes")}
    return told | {"held": held_at_client(frames), "kv": 100 * kv_usage(frames)}


def over_time(frames: Frames) -> tuple[dict[str, Any], Sampling]:
    """What page.js calls `time`, with the moments of preemption, and how it was made."""
    curves = StepCurves(frames)
    exact = len(curves.times_s) <= EXACT
    times_s = curves.times_s if exact else np.linspace(0, end_s(frames), BINS, endpoint=False)
    edges_s = np.append(times_s, end_s(frames))
    series = {name: _series(curves, values, None if exact else edges_s) for name, values in per_step(frames).items()}
    ends = frames.steps["end_s"].to_numpy(dtype=np.float64)
    # A step's tokens are there when it ends: they belong to the stretch that ends then.
    at = np.searchsorted(edges_s, ends - 1e-9, side="right") - 1
    sampled = np.bincount(at, frames.steps["sampled"].to_numpy(dtype=np.float64), minlength=len(times_s))
    hit_s = frames.steps.loc[frames.steps["preempted"] > 0, "start_s"].to_numpy(dtype=np.float64)
    marks_s = hit_s if len(hit_s) <= _MOST_MARKS else hit_s[np.linspace(0, len(hit_s) - 1, _MOST_MARKS).astype(int)]
    ticks = np.round(times_s / _UNIT_S).astype(np.int64)
    time = {
        "unit_s": _UNIT_S,
        "t": np.diff(ticks, prepend=0).tolist(),
        "series": series,
        "sampled": _compact(sampled, 0),
    }
    bin_s = None if exact else end_s(frames) / BINS
    made = Sampling(len(curves.times_s), bin_s, len(hit_s) - len(marks_s))
    return {"time": time, "preempted_s": _compact(marks_s, 3), "end_s": end_s(frames)}, made


def _series(curves: StepCurves, per_step: NDArray[Any], edges_s: Floats | None) -> dict[str, list[float]]:
    values = curves.values(per_step)
    if edges_s is None:
        return {"mean": _compact(values, 1)}
    return {"mean": _compact(curves.means(values, edges_s), 1), "peak": _compact(curves.peaks(values, edges_s), 1)}


def spread(values_s: Floats) -> dict[str, list[float]]:
    """What page.js draws of a latency: `ms`, and the `height` of the share that waited no longer; last, the longest."""
    ms, height = spread_ms(values_s)
    at = np.linspace(0, len(ms) - 1, _SPREAD_POINTS).astype(int)
    return {"ms": [float(f"{value:.4g}") for value in ms[at]], "height": _compact(height[at], 3)}


def wait_groups(parts_s: Mapping[str, Floats]) -> list[tuple[str, dict[str, float]]]:
    """Mean parts of the wait for the first token in ms: of everybody, and of those who waited longest."""
    total = np.sum(list(parts_s.values()), axis=0)
    order = np.argsort(total, kind="stable")[::-1]
    groups = [("Everybody", order)]
    groups += [(f"Slowest {share} %", order[:n]) for share in (10, 1) if (n := len(order) * share // 100) >= 1]
    return [(name, {part: 1000 * float(s[rows].mean()) for part, s in parts_s.items()}) for name, rows in groups]


def _compact(values: NDArray[Any], digits: int) -> list[float]:
    """Rounded, and whole numbers without a point, which a page pays for."""
    return [int(v) if v == int(v) else v for v in np.round(values.astype(np.float64), digits).tolist()]
