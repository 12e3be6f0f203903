"""Two pictures of a run: what the server did over time, and how long clients waited. The only importer of matplotlib.

Not for numbers (`summary`, `insight`). The one idea: a title states what the picture shows, so that it can stand alone.
Figures are made without pyplot, hence without global state; the same run gives the same bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from sim.errors import InputError
from sim.report.curves import StepCurves, spread_ms
from sim.report.insight import held_at_client, kv_usage
from sim.report.words import as_ms, as_percent, as_seconds, latency_headline, provenance, run_headline

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from sim.report.frames import Frames

    Floats = NDArray[np.float64]

_BLUE, _ORANGE, _BROWN = "#2b6ca3", "#d97a1f", "#8a6a4f"
_GREEN, _PURPLE, _RED = "#2f8f6b", "#7256a8", "#c0362c"
_INK, FAINT, GRID = "#22303c", "#6b7884", "#dfe4e8"
PALETTE = (_BLUE, _ORANGE, _GREEN, _PURPLE, _RED, _BROWN)
"""Colors that can be told apart, also in grey and by most eyes."""
_DPI = 120
STYLE: dict[Any, Any] = {
    "font.size": 10, "text.color": _INK, "axes.labelcolor": _INK, "axes.edgecolor": "#9aa5ae", "axes.linewidth": 0.8,
    "xtick.color": FAINT, "ytick.color": FAINT, "axes.titlelocation": "left", "axes.titlesize": 10,
    "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "elpase", "path.simplify_threshold": 0.3,
}  # fmt: skip
_RAW_STEPS = 1500
"""Up to so many steps each is drawn; beyond, a picture 1200 pixels wide shows means and peaks of bins."""
_BINS = 500
_NICE_S = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600)


def plot_timeseries(frames: Frames, path: Path) -> None:
    """Running, waiting, KV cache usage with preemptions, and output throughput over time, as PNG or SVG by extension.

    A short run is drawn step by step; a long one as means over time (line) and peaks (shade) of 500 bins.
    """
    with mpl.rc_context(STYLE):
        figure = titled_figure(7.5, run_headline(frames), provenance(frames))
        panels = figure.subplots(4, 1, sharex=True)
        end_s = _span_s(frames)
        unit_s, unit = _time_unit(end_s)
        curves = _Curves(frames, end_s, unit_s)
        _draw_running(panels[0], curves, frames)
        _draw_waiting(panels[1], curves, frames)
        _draw_kv(panels[2], curves, frames)
        _draw_throughput(panels[3], frames, end_s, unit_s)
        panels[3].set_xlim(0, end_s / unit_s or 1)
        panels[3].set_xlabel(f"Simulated time ({unit})")
        panels[3].xaxis.set_major_locator(MaxNLocator(12, steps=[1, 2, 5, 10]))
        save_figure(figure, path)


def plot_latency(frames: Frames, path: Path) -> None:
    """How TTFT (per request) and ITL (per token gap) spread, median and tail in one picture; PNG or SVG by extension.

    The upward axis is the share that waited no longer, stretched towards the top so that each further nine takes as
    much room as the one before it.
    """
    requests = frames.requests[frames.requests["first_token_s"].notna()]
    ttft_s = (requests["first_token_s"] - requests["send_s"]).to_numpy(dtype=np.float64)
    with mpl.rc_context(STYLE):
        figure = titled_figure(4.7, latency_headline(ttft_s, frames), provenance(frames))
        left, right = figure.subplots(1, 2)
        _draw_spread(left, ("TTFT", "Time to first token", "requests"), ttft_s, _BLUE)
        _draw_spread(right, ("ITL", "Inter-token latency", "gaps"), frames.itls.values_s, _PURPLE)
        save_figure(figure, path)


# -- over time ---------------------------------------------------------------------------------------------------------


class _Curves:
    """Draws a value per step as a curve over time: exact for a short run, binned for a long one; 0 while idle."""

    def __init__(self, frames: Frames, end_s: float, unit_s: float) -> None:
        self._steps = StepCurves(frames)
        self._end_s, self.unit_s = end_s, unit_s
        binned = len(frames.steps) > _RAW_STEPS
        self.caption = f" (line: mean, shade: peak of each {as_seconds(end_s / _BINS)})" if binned else ""

    def draw(self, panel: Axes, per_step: NDArray[np.float64] | NDArray[np.int64], color: str, label: str = "") -> None:
        values = self._steps.values(per_step)
        if len(per_step) <= _RAW_STEPS:
            x, y = self._steps.times_s / self.unit_s, values
            panel.fill_between(x, y, step="post", color=color, alpha=0.18, linewidth=0)
            panel.plot(x, y, drawstyle="steps-post", color=color, linewidth=1.2, label=label)
            return
        edges_s = np.linspace(0, self._end_s, _BINS + 1)
        x = (edges_s[:-1] + edges_s[1:]) / 2 / self.unit_s
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
        _note(panel, "nobody was left waiting by any step")
    _finish(panel, "Requests waiting", max(waiting.max(initial=0), 1.2 * held.max(initial=0)), whole=True)


def _draw_kv(panel: Axes, curves: _Curves, frames: Frames) -> None:
    usage = 100 * kv_usage(frames)
    curves.draw(panel, usage, _GREEN)
    peak = float(usage.max(initial=0.0))
    hit = frames.steps.loc[frames.steps["preempted"] > 0, "start_s"].to_numpy(dtype=np.float64)
    title = "KV cache usage"
    if len(hit):
        panel.vlines(hit / curves.unit_s, 102, 112, color=_RED, linewidth=0.9, alpha=max(0.25, min(1.0, 80 / len(hit))))
        title += f"; red: the {len(hit):,} steps that preempted" if len(hit) > 1 else "; red: the step that preempted"
    elif peak < 50:
        title += f", never above {as_percent(peak)}"
    _finish(panel, title, 100 if len(hit) or peak >= 50 else peak)
    panel.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g} %"))


def _draw_throughput(panel: Axes, frames: Frames, end_s: float, unit_s: float) -> None:
    ends_s = frames.steps["end_s"].to_numpy(dtype=np.float64)
    width_s = _bin_width_s(end_s, len(ends_s))
    edges_s = np.append(np.arange(0, end_s, width_s), end_s) if end_s else np.array([0.0, 1.0])
    sampled = frames.steps["sampled"].to_numpy(dtype=np.float64)
    counts, _ = np.histogram(ends_s, bins=edges_s, weights=sampled)
    # A sliver at the end would show a rate made of chance.
    keep = np.diff(edges_s) > 0.3 * width_s
    rates = np.where(keep, counts / np.diff(edges_s), 0.0)
    panel.stairs(rates, edges_s / unit_s, fill=True, color=_PURPLE, alpha=0.25)
    panel.stairs(rates, edges_s / unit_s, color=_PURPLE, linewidth=1.2)
    _finish(panel, f"Output tokens per second, over {as_seconds(width_s)} each", rates.max(initial=0))


def _finish(panel: Axes, title: str, peak: float, *, whole: bool = False) -> None:
    panel.set_title(title, color=_INK)
    panel.set_ylim(0, 1.13 * peak if peak else 1)
    panel.yaxis.set_major_locator(MaxNLocator(4, integer=whole, steps=[1, 2, 2.5, 5, 10]))
    panel.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.0f}" if v == int(v) else f"{v:g}"))
    panel.grid(axis="y", color=GRID, linewidth=0.8)
    panel.set_axisbelow(True)
    panel.tick_params(length=3)


def _bin_width_s(end_s: float, steps: int) -> float:
    """A round width: at most 120 bins, and ten steps or more in one."""
    wanted = max(end_s / 120, 10 * end_s / max(steps, 1))
    return next((width for width in _NICE_S if width >= wanted), max(wanted, 1.0))


# -- spreads -----------------------------------------------------------------------------------------------------------

_NINES = {0.0: "0 %", 0.5: "50 %", 0.9: "90 %", 0.99: "99 %", 0.999: "99.9 %", 0.9999: "99.99 %", 0.99999: "99.999 %"}


def _draw_spread(panel: Axes, names: tuple[str, str, str], values_s: Floats, color: str) -> None:
    short, name, unit = names
    if len(values_s) == 0:
        panel.set_axis_off()
        _note(panel, f"{name}: no {unit} to show")
        return
    x_ms, height = spread_ms(values_s)
    panel.fill_between(x_ms, height, color=color, alpha=0.12, linewidth=0)
    panel.plot(x_ms, height, color=color, linewidth=1.8)
    finish_spread(panel, x_ms, height[-1], unit)
    p50, p99 = (1000 * np.quantile(values_s, (0.5, 0.99))).tolist()
    _mark(panel, f"p50  {as_ms(p50)}", p50, _height(0.5), color)
    _mark(panel, f"p99  {as_ms(p99)}", p99, _height(0.99), color)
    panel.set_title(f"{short}: half within {as_ms(p50)}, 99 % within {as_ms(p99)}")
    panel.set_xlabel(f"{name} of {len(values_s):,} {unit if len(values_s) > 1 else unit[:-1]}")


def finish_spread(panel: Axes, x_ms: Floats, top: float, unit: str) -> None:
    """Scales, ticks and grid of a panel with spreads of `unit` that cover `x_ms` and reach up to `top`."""
    _scale_ms(panel, x_ms)
    panel.set_ylabel(f"Share of {unit} within that time")
    panel.set_ylim(0, 1.04 * top)
    shown = {_height(q): text for q, text in _NINES.items() if _height(q) <= top + 1e-9}
    panel.set_yticks(list(shown), list(shown.values()))
    panel.grid(color=GRID, linewidth=0.8)
    panel.set_axisbelow(True)


def _height(share: float) -> float:
    """Where a share stands on the stretched axis: one unit per nine."""
    return float(-np.log10(1 - share))


def _mark(panel: Axes, text: str, x: float, y: float, color: str) -> None:
    panel.plot([x], [y], "o", color=color, markersize=6, markeredgecolor="white", markeredgewidth=1.2, zorder=5)
    panel.annotate(text, (x, y), xytext=(9, -4), textcoords="offset points", va="top", fontsize=9.5, weight="bold",
                   bbox={"boxstyle": "round,pad=0.15", "fc": "white", "ec": "none", "alpha": 0.75})  # fmt: skip


def _scale_ms(panel: Axes, x_ms: Floats) -> None:
    """Logarithmic where the spread asks for it, with room for the labels on the right."""
    low, high = float(x_ms[x_ms > 0].min(initial=np.inf)), float(x_ms.max())
    if high < 3 * low or not np.isfinite(low):
        pad = max(high - min(low, high), 0.04 * high, 0.001)
        panel.set_xlim(max(0.0, x_ms.min() - 0.25 * pad), high + 0.6 * pad)
        panel.xaxis.set_major_locator(MaxNLocator(5))
    else:
        panel.set_xscale("log")
        panel.set_xlim(low / (high / low) ** 0.04, high * (high / low) ** 0.36)
        panel.xaxis.set_major_locator(
            LogLocator(subs=(1, 2, 5) if high < 20 * low else (1, 3) if high < 150 * low else (1,))
        )
        panel.xaxis.set_minor_formatter(NullFormatter())
    panel.xaxis.set_major_formatter(FuncFormatter(lambda v, _: as_ms(v)))


# -- words and files ---------------------------------------------------------------------------------------------------


def titled_figure(height_in: float, headline: str, origin: str) -> Figure:
    """1200 pixels wide, with the headline and where the numbers are from above the panels' room."""
    figure = Figure(figsize=(10, height_in), dpi=_DPI)
    room = ConstrainedLayoutEngine(rect=(0.004, 0, 0.982, 1 - 0.68 / height_in), h_pad=0.06, w_pad=0.06)
    figure.set_layout_engine(room)
    figure.text(
        0.012, 1 - 0.1 / height_in, headline, va="top", fontsize=13 * min(1.0, 82 / len(headline)), weight="bold"
    )
    figure.text(0.012, 1 - 0.38 / height_in, origin, va="top", fontsize=9, color=FAINT)
    return figure


def _note(panel: Axes, text: str) -> None:
    panel.text(0.5, 0.5, text, transform=panel.transAxes, ha="center", va="center", color=FAINT, style="italic")


def _span_s(frames: Frames) -> float:
    return float(frames.steps["end_s"].max()) if len(frames.steps) else 0.0


def _time_unit(end_s: float) -> tuple[float, str]:
    return (1.0, "s") if end_s <= 300 else (60.0, "min") if end_s <= 4 * 3600 else (3600.0, "h")


def save_figure(figure: Figure, path: Path) -> None:
    """Write PNG or SVG, by extension; the same figure gives the same bytes."""
    kind = path.suffix.lower()
    if kind not in (".png", ".svg"):
        raise InputError(file=path, field="extension", value=kind, expected=".png or .svg")
    # Neither the date nor the library's version, so that equal pictures are equal files.
    metadata = {"Software": None} if kind == ".png" else {"Date": None, "Creator": None}
    figure.savefig(path, format=kind[1:], metadata=metadata)
