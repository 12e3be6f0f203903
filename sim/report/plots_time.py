"""What the server did over time, in one picture: running, waiting, KV cache, throughput.

Not for how long clients waited (`plots`). The one idea: a title states what its panel shows, and idle hours do not push
what happened out of sight (`TimeAxis`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib.ticker import FuncFormatter, MaxNLocator

from sim.report.curves import StepCurves
from sim.report.insight import held_at_client, kv_usage
from sim.report.plots import FAINT, GRID, INK, PALETTE, STYLE, note, save_figure, titled_figure
from sim.report.time_axis import TimeAxis
from sim.report.units import as_seconds, percent
from sim.report.words import provenance, run_headline

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from sim.report.frames import Frames

    Floats = NDArray[np.float64]

_BLUE, _ORANGE, _GREEN, _PURPLE, _RED, _BROWN = PALETTE
_RAW_STEPS = 1500
"""Up to so many steps each is drawn; beyond, a picture 1200 pixels wide shows means and peaks of bins."""
_BINS = 500
_NICE_S = (
    0.001,
    0.002,
    0.005,
    0.01,
    0.02,
    0.05,
    0.1,
    0.2,
    0.5,
    1,
    2,
    5,
    10,
    20,
    30,
    60,
    120,
    300,
    600,
    1200,
    1800,
    3600,
)
_PIXELS, _PIXELS_PER_LETTER = 1110, 10.5
"""About: of the panels' width, and of a tick label's letter."""


def plot_timeseries(frames: Frames, path: Path) -> None:
    """Running, waiting, KV cache usage with preemptions, and output throughput over time, as PNG or SVG by extension.

    A short run is drawn step by step; a long one as means over time (line) and peaks (shade) of 500 bins. Idle
    stretches that would take most of the picture are cut.
    """
    starts_s, ends_s = (frames.steps[name].to_numpy(dtype=np.float64) for name in ("start_s", "end_s"))
    axis = TimeAxis.of_steps(starts_s, ends_s)
    with mpl.rc_context(STYLE):
        figure = titled_figure(7.5, run_headline(frames), provenance(frames))
        panels = figure.subplots(4, 1, sharex=True)
        curves = _Curves(frames, axis)
        _draw_running(panels[0], curves, frames)
        _draw_waiting(panels[1], curves, frames)
        _draw_kv(panels[2], curves, frames)
        _draw_throughput(panels[3], frames, axis)
        for panel in panels:
            _draw_cuts(panel, axis, named=panel is panels[0])
        _mark_time(panels[3], axis)
        save_figure(figure, path)


class _Curves:
    """Draws a value per step as a curve over time: exact for a short run, binned for a long one; 0 while idle."""

    def __init__(self, frames: Frames, axis: TimeAxis) -> None:
        self._steps = StepCurves(frames)
        self.axis = axis
        binned = len(frames.steps) > _RAW_STEPS
        self.caption = f" (line: mean, shade: peak of each {as_seconds(axis.width / _BINS)})" if binned else ""

    def draw(self, panel: Axes, per_step: NDArray[np.float64] | NDArray[np.int64], color: str, label: str = "") -> None:
        values = self._steps.values(per_step)
        if len(per_step) <= _RAW_STEPS:
            x = self.axis.place(self._steps.times_s)
            panel.fill_between(x, values, step="post", color=color, alpha=0.18, linewidth=0)
            panel.plot(x, values, drawstyle="steps-post", color=color, linewidth=1.2, label=label)
            return
        edges = np.linspace(0, self.axis.width, _BINS + 1)
        x, edges_s = (edges[:-1] + edges[1:]) / 2, self.axis.time_s(edges)
        panel.fill_between(x, self._steps.peaks(values, edges_s), color=color, alpha=0.3, linewidth=0)
        panel.plot(x, self._steps.means(values, edges_s), color=color, linewidth=1.3, label=label)


def _draw_running(panel: Axes, curves: _Curves, frames: Frames) -> None:
    running = frames.steps["running"].to_numpy(dtype=np.int64)
    curves.draw(panel, running, _BLUE)
    peak = running.max(initial=0)
    config = frames.meta.get("config")
    limit = config.get("max_num_seqs") if isinstance(config, dict) else None
    if isinstance(limit, int) and peak >= 0.6 * limit:
        panel.axhline(limit, color=FAINT, linewidth=1, linestyle=(0, (4, 3)))
        panel.annotate(
            f"max_num_seqs {limit}", (1, limit), xycoords=("axes fraction", "data"), xytext=(-4, 3),
            textcoords="offset points", ha="right", color=FAINT, fontsize=8,
        )  # fmt: skip
        peak = limit
    _finish(panel, f"Requests running{curves.caption}", peak, whole=True)


def _draw_waiting(panel: Axes, curves: _Curves, frames: Frames) -> None:
    """The server's queue, and those whom the client's own cap keeps from being sent."""
    waiting = frames.steps["waiting"].to_numpy(dtype=np.int64)
    held = held_at_client(frames)
    curves.draw(panel, waiting, _ORANGE, "in the server's queue")
    if held.any():
        curves.draw(panel, held, _BROWN, "held back by the client's cap")
        panel.legend(loc="upper left", fontsize=8, frameon=False, ncols=2, borderaxespad=0.1)
    elif not waiting.any():
        note(panel, "nobody was left waiting by any step")
    _finish(panel, "Requests waiting", max(waiting.max(initial=0), 1.2 * held.max(initial=0)), whole=True)


def _draw_kv(panel: Axes, curves: _Curves, frames: Frames) -> None:
    usage = 100 * kv_usage(frames)
    curves.draw(panel, usage, _GREEN)
    peak = float(usage.max(initial=0.0))
    hit = frames.steps.loc[frames.steps["preempted"] > 0, "start_s"].to_numpy(dtype=np.float64)
    title = "KV cache usage"
    if len(hit):
        x = curves.axis.place(hit)
        panel.vlines(x, 102, 112, color=_RED, linewidth=0.9, alpha=max(0.25, min(1.0, 80 / len(hit))))
        title += f"; red: the {len(hit):,} steps that preempted" if len(hit) > 1 else "; red: the step that preempted"
    elif peak < 50:
        told = percent(peak / 100)
        title += f", always {told}" if told.startswith("<") else f", never above {told}"
    _finish(panel, title, 100 if len(hit) or peak >= 50 else peak)
    panel.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g} %"))


def _draw_throughput(panel: Axes, frames: Frames, axis: TimeAxis) -> None:
    ends_s, sampled = (frames.steps[name].to_numpy(dtype=np.float64) for name in ("end_s", "sampled"))
    width_s = _bin_width_s(axis.shown_s, len(ends_s))
    edges_s = axis.edges_s(width_s)
    rates = _rates(ends_s, sampled, edges_s)
    panel.stairs(rates, axis.place(edges_s), fill=True, color=_PURPLE, alpha=0.25)
    panel.stairs(rates, axis.place(edges_s), color=_PURPLE, linewidth=1.2)
    _finish(panel, f"Output tokens per second, over {as_seconds(width_s)} each", rates.max(initial=0))


def _rates(ends_s: Floats, sampled: Floats, edges_s: Floats) -> Floats:
    """Tokens per second of each bin. A token comes at its step's end, so a bin has its later edge and not its first."""
    bins = np.clip(np.searchsorted(edges_s, ends_s, side="left") - 1, 0, len(edges_s) - 2)
    counts = np.bincount(bins, sampled, minlength=len(edges_s) - 1)
    return np.asarray(counts / np.diff(edges_s), dtype=np.float64)


def _bin_width_s(shown_s: float, steps: int) -> float:
    """A round width: at most 120 bins, and ten steps or more in one, but some bins even of a few steps."""
    wanted = max(shown_s / 120, min(10 * shown_s / max(steps, 1), shown_s / 8))
    return next((width for width in _NICE_S if width >= wanted), max(wanted, 0.001))


def _draw_cuts(panel: Axes, axis: TimeAxis, *, named: bool) -> None:
    for start_s, stop_s in axis.cuts:
        left, right = axis.place(np.array([start_s, stop_s])).tolist()
        panel.axvspan(left, right, facecolor="white", edgecolor=GRID, hatch="////", linewidth=0, zorder=3)
        if named:
            panel.annotate(
                f"idle for {as_seconds(stop_s - start_s)}", ((left + right) / 2, 0.5), va="center", ha="center",
                xycoords=("data", "axes fraction"), rotation=90, fontsize=8, color=FAINT, zorder=4,
                bbox={"boxstyle": "round,pad=0.2", "fc": "white", "ec": "none"},
            )  # fmt: skip


def _mark_time(panel: Axes, axis: TimeAxis) -> None:
    """Ticks at round times of each piece, as many as there is room for."""
    unit_s, unit = axis.unit()
    decimals, step = _tick_step(axis, unit_s)
    ticks: dict[float, str] = {}
    free_from = -np.inf
    for start_s, stop_s in axis.pieces():
        for value in _round_values(start_s / unit_s, stop_s / unit_s, step):
            label = f"{value:,.{decimals}f}"
            place = float(axis.place(np.array([value * unit_s]))[0])
            middle, half = place / (axis.width or 1.0) * _PIXELS, _PIXELS_PER_LETTER * len(label) / 2
            if middle - half >= free_from:
                ticks[place], free_from = label, middle + half + 8
    panel.set_xlim(0, axis.width or 1)
    panel.set_xticks(list(ticks), list(ticks.values()))
    panel.set_xlabel(f"Simulated time ({unit})")


def _round_values(start: float, stop: float, step: float) -> list[float]:
    """Multiples of `step` from start to stop; the start where there is none."""
    first, last = np.ceil(start / step - 1e-6), np.floor(stop / step + 1e-6)
    return [float(value) + 0.0 for value in np.arange(first, last + 1) * step] or [start]  # no -0.0


def _tick_step(axis: TimeAxis, unit_s: float) -> tuple[int, float]:
    """Decimals and distance of ticks, so that neighbours' labels do not touch."""
    shown = axis.shown_s / unit_s or 1.0
    letters = len(f"{axis.knots_s[-1] / unit_s:,.0f}") + 3
    ticks = min(12.0, _PIXELS / (_PIXELS_PER_LETTER * letters + 24))
    wanted = shown / ticks
    power = 10.0 ** np.floor(np.log10(wanted))
    step = next(float(f * power) for f in (1, 2, 5, 10) if f * power >= wanted * (1 - 1e-9))
    return max(0, -int(np.floor(np.log10(step) + 1e-9))), step


def _finish(panel: Axes, title: str, peak: float, *, whole: bool = False) -> None:
    panel.set_title(title, color=INK)
    panel.set_ylim(0, 1.13 * peak if peak else 1)
    panel.yaxis.set_major_locator(MaxNLocator(4, integer=whole, steps=[1, 2, 2.5, 5, 10]))
    panel.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.0f}" if v == int(v) else f"{v:g}"))
    panel.grid(axis="y", color=GRID, linewidth=0.8)
    panel.set_axisbelow(True)
    panel.tick_params(length=3)
