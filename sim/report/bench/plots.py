"""Pictures of comparisons: the distributions of two results over each other, or the errors of many pairs.

Not for numbers (`told`). The one idea: as of a run by itself, the axis of shares is stretched towards the top, so that
a tail that differs is seen as well as a median.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np

from sim.plurals import counted
from sim.report.curves import spread_ms, spread_top
from sim.report.plots import FAINT, GRID, PALETTE, STYLE, finish_spread, save_figure, titled_figure
from sim.report.units import signed_percent

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from matplotlib.axes import Axes

    from sim.report.bench.compare import Comparison

_REAL, _SIMULATED = FAINT, PALETTE[0]
_NAMES = {
    "ttft": ("Time to first token", "requests"),
    "tpot": ("Time per output token", "requests"),
    "itl": ("Inter-token latency", "gaps"),
    "e2el": ("End-to-end latency", "requests"),
}
_ERRORS = {
    "output_throughput": "tokens/s",
    "mean_ttft_ms": "TTFT, mean",
    "p99_ttft_ms": "TTFT, p99",
    "mean_tpot_ms": "TPOT, mean",
    "p99_tpot_ms": "TPOT, p99",
    "p99_itl_ms": "ITL, p99",
}


def plot_comparison(pairs: Mapping[str, Comparison], path: Path) -> None:
    """One pair: its distributions, real and simulated; several: each one's errors. PNG or SVG by extension."""
    with mpl.rc_context(STYLE):
        if len(pairs) == 1:
            _distributions(next(iter(pairs.values())), path)
        else:
            _errors(pairs, path)


def _distributions(told: Comparison, path: Path) -> None:
    metrics = [q.metric for q in told.quantiles]
    rows = max(1, (len(metrics) + 1) // 2)
    figure = titled_figure(0.9 + 3.4 * rows, _headline(told), f"{told.real.file}  ·  {told.simulated.file}")
    panels = figure.subplots(rows, min(2, max(1, len(metrics))), squeeze=False).ravel()
    for panel, metric in zip(panels, metrics, strict=False):
        _overlay(panel, told, metric)
    for panel in panels[len(metrics) :]:
        panel.set_axis_off()
    if metrics:
        panels[0].legend(frameon=False, loc="lower right")
    else:
        panels[0].text(0.5, 0.5, "neither file lists the same latency", ha="center", color=FAINT, style="italic")
    save_figure(figure, path)


def _overlay(panel: Axes, told: Comparison, metric: str) -> None:
    name, unit = _NAMES[metric]
    drawn = (
        (told.real.seconds(metric), _REAL, 3.2, "real"),
        (told.simulated.seconds(metric), _SIMULATED, 1.6, "simulated"),
    )
    top = spread_top(max(len(values_s) for values_s, *_ in drawn if values_s is not None))
    reach = []
    for values_s, color, width, word in drawn:
        assert values_s is not None
        x_ms, height = spread_ms(values_s, top)
        panel.plot(x_ms, height, color=color, linewidth=width, label=word, solid_capstyle="round")
        reach.append(x_ms)
    finish_spread(panel, np.concatenate(reach), top, unit)
    panel.set_title(f"{metric.upper()}: {_halves(told, metric)}")
    panel.set_xlabel(name)


def _halves(told: Comparison, metric: str) -> str:
    quantiles = next(q for q in told.quantiles if q.metric == metric)
    errors = dict(zip(quantiles.shares, quantiles.errors, strict=True))
    words = {0.5: "median", 0.99: "p99"}
    return ", ".join(f"{word} {signed_percent(errors[share])}" for share, word in words.items() if share in errors)


def _headline(told: Comparison) -> str:
    of = {figure.key: signed_percent(figure.error) for figure in told.figures}
    names = {"output_throughput": "output throughput", "mean_ttft_ms": "mean TTFT", "mean_tpot_ms": "mean TPOT"}
    errors = [f"{name} {of[key]}" for key, name in names.items() if key in of]
    return f"Simulated over real: {', '.join(errors) or 'no figure that both have'}"


def _errors(pairs: Mapping[str, Comparison], path: Path) -> None:
    figure = titled_figure(
        1.6 + 0.34 * len(pairs), f"Errors of {counted(len(pairs), 'run')}, simulated over real", "0 is right"
    )
    panels = figure.subplots(1, len(_ERRORS), sharey=True)
    rows = np.arange(len(pairs))[::-1]
    for panel, (key, title) in zip(panels, _ERRORS.items(), strict=True):
        of = [{f.key: 100 * f.error for f in told.figures}.get(key, np.nan) for told in pairs.values()]
        panel.axvline(0, color=_REAL, linewidth=1)
        panel.hlines(rows, 0, of, color=_SIMULATED, linewidth=1.4, alpha=0.6)
        panel.plot(of, rows, "o", color=_SIMULATED, markersize=5)
        reach = max(5.0, 1.15 * float(np.nanmax(np.abs(of), initial=0.0)))
        panel.set_xlim(-reach, reach)
        panel.set_title(title)
        panel.tick_params(labelsize=8)
        panel.grid(axis="y", color=GRID, linewidth=0.8)
        panel.set_axisbelow(True)
    panels[0].set_yticks(rows, list(pairs))
    panels[0].set_ylim(-0.6, len(pairs) - 0.4)
    panels[len(panels) // 2].set_xlabel("error (%)")
    save_figure(figure, path)
