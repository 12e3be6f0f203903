"""The dress of all pictures, and the one of how long clients waited.

Not for numbers (`summary`, `insight`) nor for the server over time (`plots_time`). The one idea: a title states what
the picture shows, so that it can stand alone.
Figures are made without pyplot, hence without global state; the same run gives the same bytes.
"""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from io import BytesIO
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import Formatter, FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from sim.errors import InputError
from sim.output import write_bytes_atomic
from sim.report.curves import ABOVE_THE_REST, spread_ms, spread_top
from sim.report.units import as_ms
from sim.report.words import latency_headline, provenance

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from sim.report.frames import Frames

    Floats = NDArray[np.float64]

INK, FAINT, GRID = "#22303c", "#6b7884", "#dfe4e8"
PALETTE = ("#2b6ca3", "#d97a1f", "#2f8f6b", "#7256a8", "#c0362c", "#8a6a4f")
"""Blue, orange, green, purple, red and brown that can be told apart, also in grey and by most eyes."""
_TTFT, _ITL = PALETTE[0], PALETTE[3]
_DPI = 120
STYLE: dict[Any, Any] = {
    "font.size": 10, "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": "#9aa5ae", "axes.linewidth": 0.8,
    "xtick.color": FAINT, "ytick.color": FAINT, "axes.titlelocation": "left", "axes.titlesize": 10,
    "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "elpase", "path.simplify_threshold": 0.3,
}  # fmt: skip


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
        _draw_spread(left, ("TTFT", "Time to first token", "requests"), ttft_s, _TTFT)
        _draw_spread(right, ("ITL", "Inter-token latency", "gaps"), frames.itls.values_s, _ITL)
        save_figure(figure, path)


# -- spreads -----------------------------------------------------------------------------------------------------------

_NINES = {0.0: "0 %", 0.5: "50 %", 0.9: "90 %", 0.99: "99 %", 0.999: "99.9 %", 0.9999: "99.99 %", 0.99999: "99.999 %"}


def _draw_spread(panel: Axes, names: tuple[str, str, str], values_s: Floats, color: str) -> None:
    short, name, unit = names
    if len(values_s) == 0:
        panel.set_axis_off()
        note(panel, f"{name}: there are no {unit}")
        return
    top = spread_top(len(values_s))
    x_ms, height = spread_ms(values_s)
    panel.fill_between(x_ms, height, color=color, alpha=0.12, linewidth=0)
    panel.plot(x_ms, height, color=color, linewidth=1.8)
    finish_spread(panel, x_ms, top, unit)
    p50, p99, longest = (1000 * np.quantile(values_s, (0.5, 0.99, 1.0))).tolist()
    _mark(panel, f"p50  {as_ms(p50)}", p50, _height(0.5), top, color)
    _mark(panel, f"p99  {as_ms(p99)}", p99, _height(0.99), top, color)
    _mark(panel, f"longest  {as_ms(longest)}", longest, top, top, color)
    panel.set_title(f"{short}: half within {as_ms(p50)}, 99 % within {as_ms(p99)}")
    panel.set_xlabel(f"{name} of {len(values_s):,} {unit if len(values_s) > 1 else unit[:-1]}")


def finish_spread(panel: Axes, x_ms: Floats, top: float, unit: str) -> None:
    """Scales, ticks and grid of a panel with spreads of `unit` that cover `x_ms` and reach up to `top`."""
    _scale_ms(panel, x_ms)
    panel.set_ylabel(f"Share of {unit} within that time")
    panel.set_ylim(0, 1.04 * top)
    shown = {_height(q): text for q, text in _NINES.items() if _height(q) <= top - ABOVE_THE_REST + 1e-9} | {
        top: "100 %"
    }
    panel.set_yticks(list(shown), list(shown.values()))
    panel.grid(color=GRID, linewidth=0.8)
    panel.set_axisbelow(True)


def _height(share: float) -> float:
    """Where a share stands on the stretched axis: one unit per nine."""
    return float(-np.log10(1 - share))


def _mark(panel: Axes, text: str, x: float, y: float, top: float, color: str) -> None:
    """A point of the curve, and its name where the curve does not run: below on the right, at the top on the left."""
    panel.plot([x], [y], "o", color=color, markersize=6, markeredgecolor="white", markeredgewidth=1.2, zorder=5)
    aside, down = (-9, 0) if y == top else (9, 0) if y < 0.075 * top else (9, -4)  # above the axis there is no room
    panel.annotate(
        text, (x, y), xytext=(aside, down), textcoords="offset points", fontsize=9.5, weight="bold",
        ha="left" if aside > 0 else "right", va="top" if down else "center",
        bbox={"boxstyle": "round,pad=0.15", "fc": "white", "ec": "none", "alpha": 0.75},
    )  # fmt: skip


def _scale_ms(panel: Axes, x_ms: Floats) -> None:
    """Logarithmic where the spread asks for it, with room for the labels on the right."""
    low, high = float(x_ms[x_ms > 0].min(initial=np.inf)), float(x_ms.max())
    if high < 3 * low or not np.isfinite(low):
        # At least so much around them, that values which hardly differ are drawn as such.
        room = max(high - min(low, high), 0.2 * high, 0.001)
        panel.set_xlim(max(0.0, x_ms.min() - 0.5 * room), high + 0.6 * room)
        panel.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
        panel.xaxis.set_major_formatter(_LinearMs())
        return
    panel.set_xscale("log")
    ratio = high / low
    panel.set_xlim(low / ratio**0.04, high * ratio**0.34)
    subs = (1, 2, 5) if ratio < 20 else (1, 3) if ratio < 150 else (1,)
    panel.xaxis.set_major_locator(LogLocator(subs=subs, numticks=5 if ratio > 3e4 else None))
    panel.xaxis.set_minor_formatter(NullFormatter())
    panel.xaxis.set_major_formatter(FuncFormatter(lambda v, _: as_ms(v)))


class _LinearMs(Formatter):
    """Evenly spaced times in one unit, with as many decimals as tell them apart."""

    def format_ticks(self, values: Sequence[float]) -> list[str]:
        unit, name = (1000.0, "s") if max(values, default=0.0) >= 1000 else (1.0, "ms")
        step = float(np.diff(values).min()) / unit if len(values) > 1 else 1.0
        decimals = max(0, -int(np.floor(np.log10(step) + 1e-9)))
        return [f"{value / unit:,.{decimals}f} {name}" for value in values]


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


def note(panel: Axes, text: str) -> None:
    """A word in the middle of a panel that has little else."""
    panel.text(0.5, 0.5, text, transform=panel.transAxes, ha="center", va="center", color=FAINT, style="italic",
               zorder=5, bbox={"boxstyle": "round,pad=0.3", "fc": "white", "ec": "none"})  # fmt: skip


@contextmanager
def any_script() -> Iterator[None]:
    """Letters that the font lacks, such as those of a trace's name, become boxes without a line on each."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph \d+ .*missing from font")
        yield


def save_figure(figure: Figure, path: Path) -> None:
    """Write PNG or SVG, by extension, whole or not at all; the same figure gives the same bytes."""
    kind = path.suffix.lower()
    if kind not in (".png", ".svg"):
        raise InputError(file=path, field="extension", value=kind, expected=".png or .svg")
    # Neither the date nor the library's version, so that equal pictures are equal files.
    metadata = {"Software": None} if kind == ".png" else {"Date": None, "Creator": None}
    drawn = BytesIO()
    with any_script():
        figure.savefig(drawn, format=kind[1:], metadata=metadata)
    write_bytes_atomic(path, drawn.getvalue())
