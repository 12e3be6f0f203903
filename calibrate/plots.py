"""Pictures of a calibration: predicted against measured, errors by regime, and the law over its samples.

Not for numbers (report.py). The one idea: every point is a prediction of a law that had not seen it, where there is
one; a title states what the picture shows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from calibrate.fit import predict, thinned_rows
from calibrate.unknowns import fill
from sim.plurals import counted
from sim.report.plots import FAINT, GRID, PALETTE, STYLE, save_figure, titled_figure

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

    from calibrate.make_profile import Calibration
    from calibrate.samples import Column, Samples

PREDICTED, RESIDUALS, LAW = "predicted.png", "residuals.png", "law.png"
_MOST_POINTS = 1500
"""Per regime: more would only cover each other."""


def plot_predicted(made: Calibration, path: Path) -> None:
    """Predicted over measured time of every step, both logarithmic, with the 5 % band."""
    with mpl.rc_context(STYLE):
        figure = titled_figure(6.2, _headline(made), _origin(made))
        panel = figure.subplots()
        samples, errors = _points(made)
        for color, regime in zip(_colors(samples), np.unique(samples.regime), strict=True):
            own = samples.regime == regime
            measured = 1e3 * samples.seconds[own]
            label = f"{regime} ({int((made.samples.regime == regime).sum()):,})"
            panel.plot(measured, measured * (1 + errors[own]), "o", ms=3, alpha=0.55, mew=0, color=color, label=label)
        ends = np.array([0.9e3 * samples.seconds.min(), 1.1e3 * samples.seconds.max()])
        panel.plot(ends, ends, color=FAINT, linewidth=0.9)
        panel.fill_between(ends, 0.95 * ends, 1.05 * ends, color=FAINT, alpha=0.18, linewidth=0)
        panel.set_title(f"{_how(made)}; grey: within 5 %")
        panel.set_xlabel("Measured step (ms)")
        panel.set_ylabel("Predicted step (ms)")
        _logarithmic(panel, "xy")
        _finish(panel)
        save_figure(figure, path)


def plot_residuals(made: Calibration, path: Path) -> None:
    """Relative errors over the tokens of a step, one panel per regime."""
    samples, errors = _points(made)
    regimes = np.unique(samples.regime)
    rows = -(-regimes.size // 2)
    with mpl.rc_context(STYLE):
        figure = titled_figure(1.2 + 2.3 * rows, _headline(made), _origin(made))
        panels = np.atleast_1d(figure.subplots(rows, min(2, regimes.size), sharey=True, squeeze=False)).ravel()
        reach = float(np.clip(100 * np.quantile(np.abs(errors), 0.99), 5, 60))
        for panel, color, regime in zip(panels, _colors(samples), regimes, strict=False):
            own = samples.regime == regime
            percent = 100 * errors[own]
            panel.axhspan(-5, 5, color=FAINT, alpha=0.15, linewidth=0)
            panel.axhline(0, color=FAINT, linewidth=0.9)
            panel.plot(
                samples.num_tokens[own], np.clip(percent, -reach, reach), "o", ms=3, alpha=0.55, mew=0, color=color
            )
            panel.set_title(f"{regime}: median error {np.median(np.abs(percent)):.2g} %, mean {percent.mean():+.2g} %")
            panel.set_ylim(-1.05 * reach, 1.05 * reach)
            panel.set_xlabel("Tokens in the step")
            panel.set_ylabel("Error (%)")
            _logarithmic(panel, "x")
            _finish(panel, legend=False)
        for panel in panels[regimes.size :]:
            panel.set_visible(False)
        save_figure(figure, path)


def plot_law(made: Calibration, path: Path) -> None:
    """Time over tokens, less what the law says of attention: decodes, where graphs make a staircase, and chunks."""
    filled = fill(made.samples, made.fit.values)
    predicted = predict(made.samples, made.fit.values)
    attention = _attention(made, filled)
    with mpl.rc_context(STYLE):
        figure = titled_figure(4.7, "What a step costs beside its attention, measured and by the law", _origin(made))
        left, right = figure.subplots(1, 2)
        decode = filled.chunk_tokens == 0
        for panel, own, title in ((left, decode, "Decodes"), (right, ~decode, "Steps with chunks")):
            drawn = own & (filled.seconds > 1.5 * attention)
            panel.set_title(title if drawn.any() else f"{title}: none")
            panel.set_xlabel("Tokens in the step")
            panel.set_ylabel("Step less attention (ms)")
            if drawn.any():
                part, columns = _few(filled.where(drawn), np.stack([predicted, attention], axis=1)[drawn])
                measured, law = part.seconds - columns[:, 1], columns[:, 0] - columns[:, 1]
                panel.plot(part.num_tokens, 1e3 * measured, "o", ms=3.5, alpha=0.5, mew=0, label="measured")
                panel.plot(part.num_tokens, 1e3 * law, "_", ms=7, color=PALETTE[1], label="law")
                _logarithmic(panel, "xy")
            _finish(panel, legend=bool(drawn.any()))
        save_figure(figure, path)


def _attention(made: Calibration, filled: Samples) -> Column:
    """Seconds that the law has for attention. Steps that are mostly that are not drawn: what is left is its error."""
    law = made.profile.law
    decodes = law.context_s * filled.decode_context + law.mixed_context_s * filled.mixed_context
    return decodes + law.pair_s * filled.chunk_pairs


def shown_errors(made: Calibration) -> Column:
    """Held-out errors; the fit's own where cross-validation was not possible."""
    if made.held_out.regimes:
        return made.held_out.errors
    return predict(made.samples, made.fit.values) / made.samples.seconds - 1.0


def _points(made: Calibration) -> tuple[Samples, Column]:
    """Samples to draw, with their errors."""
    errors = shown_errors(made)
    known = np.isfinite(errors)
    return _few(made.samples.where(known), errors[known])


def _few(samples: Samples, values: Column) -> tuple[Samples, Column]:
    """At most so many points per regime, each with its value."""
    if not len(samples):
        return samples, values
    rows = thinned_rows(samples, _MOST_POINTS)
    return samples.where(rows), values[rows]


def _colors(samples: Samples) -> list[str]:
    return [PALETTE[i % len(PALETTE)] for i in range(np.unique(samples.regime).size)]


def _headline(made: Calibration) -> str:
    size = 100 * np.abs(shown_errors(made))
    size = size[np.isfinite(size)]
    half, most = np.median(size), np.quantile(size, 0.9)
    return f"Half of the steps are predicted within {half:.2g} %, nine of ten within {most:.2g} %"


def _how(made: Calibration) -> str:
    if not made.held_out.regimes:
        return "Steps of the fit itself: too few shapes to hold any out"
    return "Each step foretold by a law fitted without its block of shapes"


def _origin(made: Calibration) -> str:
    profile = made.profile
    parts = [profile.name, f"{profile.model} on {made.samples.origins[0].device}"]
    if profile.tensor_parallel_size > 1:
        parts.append(f"TP {profile.tensor_parallel_size}")
    parts.append(f"{profile.engine} {profile.engine_version}")
    return "  ·  ".join([*parts, counted(len(made.samples), "timed step")])


def _logarithmic(panel: Axes, which: str) -> None:
    for name in which:
        panel.set(**{f"{name}scale": "log"})
        axis, (low, high) = (panel.xaxis, panel.get_xlim()) if name == "x" else (panel.yaxis, panel.get_ylim())
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 60 * low else (1,)))
        axis.set_minor_formatter(NullFormatter())
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def _finish(panel: Axes, *, legend: bool = True) -> None:
    panel.grid(color=GRID, linewidth=0.8)
    panel.set_axisbelow(True)
    if legend:
        panel.legend(loc="upper left", frameon=False, fontsize=8.5, markerscale=1.6)  # "best" searches, slowly
