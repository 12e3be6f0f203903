"""A simulated run's curves over the measured ones: requests running and waiting.

Not for samples and laws (plots.py) nor for a run by itself (sim.report.plots). The one idea: both servers are drawn on
one clock, so that what a mean hides (who waited when) can be seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib.ticker import MaxNLocator

from sim.plurals import counted
from sim.report.plots import FAINT, PALETTE, STYLE, save_figure, titled_figure

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from sim.report.frames import Frames

_REAL, _SIMULATED = FAINT, PALETTE[0]


def plot_curves(name: str, measured: pd.DataFrame, frames: Frames, path: Path) -> None:
    """Draw `measured` (columns t, running, waiting) and the simulated run; PNG or SVG by extension."""
    steps = frames.steps
    far = {curve: _distance(measured, steps, curve) for curve in ("running", "waiting")}
    headline = f"Running requests differ by {far['running']:.1f} on average, waiting ones by {far['waiting']:.1f}"
    origin = f"{name}, {counted(len(frames.requests), 'request')}, profile {frames.meta['profile']}"
    with mpl.rc_context(STYLE):
        figure = titled_figure(5.2, headline, origin)
        panels = figure.subplots(2, 1, sharex=True)
        for panel, curve in zip(panels, ("running", "waiting"), strict=True):
            panel.step(measured["t"], measured[curve], where="mid", color=_REAL, linewidth=2.4, label="measured")
            panel.plot(steps["end_s"], steps[curve], color=_SIMULATED, linewidth=1.0, label="simulated")
            panel.set_title(f"Requests {curve}")
            panel.set_ylim(bottom=0)
            panel.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        panels[0].legend(frameon=False, ncols=2, loc="upper right")
        panels[1].set_xlabel("Time since the first request (s)")
        panels[1].set_xlim(0, max(float(measured["t"].max()), float(steps["end_s"].max())))
        save_figure(figure, path)


def _distance(measured: pd.DataFrame, steps: pd.DataFrame, curve: str) -> float:
    """Mean distance of the two curves, at the measured times."""
    at = np.searchsorted(steps["end_s"].to_numpy(float), measured["t"].to_numpy(float))
    simulated = np.append(steps[curve].to_numpy(float), 0.0)[at]
    return float(np.abs(simulated - measured[curve].to_numpy(float)).mean())
