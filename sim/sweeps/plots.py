"""The sweep's one picture: output throughput against ITL p99 and TTFT p99, the Pareto front marked.

Not for numbers. The one idea: both panels share the points and their names, so a setting that is good on the left can
be found on the right; the same sweep gives the same bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter
from matplotlib.transforms import Bbox

from sim.plurals import counted
from sim.report.plots import FAINT, GRID, INK, PALETTE, STYLE, any_script, note, save_figure, titled_figure
from sim.report.units import as_ms
from sim.sweeps.answers import load_axis
from sim.sweeps.words import said, spelled

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation

    from sim.sweeps.sweep import Sweep

_PANELS = (("p99_itl_ms", "P99 inter-token latency"), ("p99_ttft_ms", "P99 time to first token"))
_LABELLED = 14
"""Points on the front that get a name; more would cover each other."""
_MARKS = "os"
"""Of lines that have a colour for themselves, and of those that share one."""
_RING = 10
"""How wide the mark of the front is, in points."""
_BESIDE = (7, 6)
"""From a point to its name's left end, in points: above the middle, where an error bar would go through it."""
_MOST_ROOM = 0.6
"""Of a panel's width, for names on the right."""


def plot_sweep(sweep: Sweep, path: Path) -> None:
    """Draw the settings that ran, as PNG or SVG by extension: a line along the load, or along the only knob."""
    table = sweep.table[sweep.table["status"] == "ok"]
    with mpl.rc_context(STYLE):
        figure = titled_figure(5.8, _headline(sweep), origin(sweep))
        panels = figure.subplots(1, 2)
        if len(table):
            lines = _lines(sweep, table)
            for panel, (column, title) in zip(panels, _PANELS, strict=True):
                _draw(panel, sweep, lines, column)
                _dress(panel, title, empty=not (table[column] > 0).any())
            names = _front_names(sweep, lines, legend=_legend(figure, panels[0]))
            with any_script():
                figure.draw_without_rendering()  # from here on it is known how wide a panel is, and what is near what
            for panel, (column, _) in zip(panels, _PANELS, strict=True):
                _name_front(panel, sweep, column, names)
        save_figure(figure, path)


def _draw(panel: Axes, sweep: Sweep, lines: list[tuple[str, pd.DataFrame]], column: str) -> None:
    for number, (name, line) in enumerate(lines):
        color, mark = _color(number), _MARKS[number // len(PALETTE) % len(_MARKS)]
        panel.plot(line["output_throughput"], line[column], "-", color=color, linewidth=1, alpha=0.5)
        panel.plot(line["output_throughput"], line[column], mark, color=color, markersize=5, label=name or "_")
        if f"{column}_ci95" in line:
            panel.errorbar(
                line["output_throughput"], line[column], line[f"{column}_ci95"], line["output_throughput_ci95"],
                fmt="none", ecolor=color, elinewidth=0.8, alpha=0.7,
            )  # fmt: skip
    best = sweep.table[sweep.table["front"]]
    panel.plot(best["output_throughput"], best[column], "o", markersize=_RING, markerfacecolor="none",
               markeredgecolor=INK, markeredgewidth=1.2, label="on the front")  # fmt: skip
    if column in sweep.slo:
        panel.axhline(sweep.slo[column], color=FAINT, linewidth=1, linestyle=(0, (4, 3)))


def _color(line: int) -> str:
    return PALETTE[line % len(PALETTE)]


def _dress(panel: Axes, title: str, *, empty: bool) -> None:
    if empty:
        panel.margins(0.12)
        note(panel, "no answer has a second token")
        panel.set_yticks([])
    else:
        least, most = panel.dataLim.minposy, panel.dataLim.y1
        if most < 1.001 * least:  # too near each other for a margin that is a share of their distance
            panel.set_ylim(least / 1.2, most * 1.2)
        panel.set_yscale("log")
        panel.margins(0.12)
        low, high = panel.get_ylim()
        panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high > 5 * low else (1, 1.5, 2, 3, 4, 5, 6, 8)))
        panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: as_ms(value)))
        panel.yaxis.set_minor_formatter(NullFormatter())
    panel.xaxis.set_major_locator(MaxNLocator(6))
    panel.xaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    panel.set_title(title)
    panel.set_xlabel("Output tokens per second")
    panel.grid(color=GRID, linewidth=0.8)
    panel.set_axisbelow(True)


def _legend(figure: Figure, panel: Axes) -> bool:
    """Say which colour and mark is which line, if each line has its own; whether it was said."""
    handles, labels = panel.get_legend_handles_labels()
    if len(labels) - 1 > len(_MARKS) * len(PALETTE):
        return False
    figure.legend(handles, labels, loc="outside lower left", ncols=2, fontsize=8, frameon=False)
    return True


def _along(sweep: Sweep) -> str | None:
    """The knob that a line goes along: the load, or else the one with most values."""
    return load_axis(sweep.axes) or max(_varied(sweep), key=lambda name: len(sweep.axes[name]), default=None)


def _varied(sweep: Sweep) -> list[str]:
    return [name for name, values in sweep.axes.items() if len(values) > 1]


def _lines(sweep: Sweep, table: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Rows that differ in one knob alone, with what their line is called."""
    others = _telling([name for name in _varied(sweep) if name != _along(sweep)], table)
    if not others:
        return [("", table)]
    return [
        (spelled({name: rows[name].iloc[0] for name in others}) or "as it is", rows)
        for _, rows in table.groupby(others, sort=False, dropna=False)
    ]


def _telling(names: list[str], table: pd.DataFrame) -> list[str]:
    """Those without which two lines would have the same name: of a record's knobs, one is often enough."""
    told = list(names)
    lines = table[names].astype(str).drop_duplicates()
    for name in reversed(names):
        fewer = [other for other in told if other != name]
        if fewer and len(lines[fewer].drop_duplicates()) == len(lines):
            told = fewer
    return told


def _front_names(sweep: Sweep, lines: list[tuple[str, pd.DataFrame]], *, legend: bool) -> dict[Any, tuple[str, str]]:
    """Row on the front -> its name and its colour. Where the legend tells a line's knobs by its colour, the name says
    the rest; else the name says all."""
    along = _along(sweep)
    best = sweep.table[sweep.table["front"]]
    if along is None or len(best) > _LABELLED:
        return {}
    knobs = [along] if legend else _telling(_varied(sweep), sweep.table)
    colors = {row: _color(number) for number, (_, line) in enumerate(lines) for row in line.index}
    return {
        row: (", ".join(said(knobs_of[knob]) for knob in knobs), colors[row] if legend else INK)
        for row, knobs_of in zip(best.index, best.to_dict("records"), strict=True)
    }


def _name_front(panel: Axes, sweep: Sweep, column: str, names: dict[Any, tuple[str, str]]) -> None:
    """Put each name on the right of its point, or where that is taken, as near above or below as there is room."""
    best = sweep.table.loc[list(names)].sort_values(column, ascending=False)
    ends = best[["output_throughput", column]].to_numpy(dtype=float)
    texts = [
        panel.annotate(
            names[row][0], (x, y), xytext=_BESIDE, textcoords="offset points", fontsize=8, color=names[row][1],
            va="center", in_layout=False, bbox={"boxstyle": "round,pad=0.1", "fc": "white", "ec": "none", "alpha": 0.7},
        )
        for row, (x, y) in zip(best.index, ends, strict=True)
    ]  # fmt: skip
    _make_room(panel, texts)
    points = panel.figure.dpi / 72  # pixels of one
    taken = [Bbox.from_bounds(x, y, 0, 0).padded(_RING * points / 2) for x, y in panel.transData.transform(ends)]
    for text in texts:
        box = text.get_window_extent()
        steps = sorted((box.height * step for step in range(-len(texts), len(texts) + 1)), key=abs)
        free = (step for step in steps if not any(box.translated(0, step).overlaps(other) for other in taken))
        step = next(free, 0.0)
        text.set_position((_BESIDE[0], _BESIDE[1] + step / points))
        taken.append(box.translated(0, step))


def _make_room(panel: Axes, texts: list[Annotation]) -> None:
    """Move the right edge out until no name crosses it, but for names that would leave no room for the points."""
    left, right = panel.get_xlim()
    wide = panel.get_window_extent().width
    for text in texts:
        x, y = text.xy
        share = (text.get_window_extent().x1 - panel.transData.transform((x, y))[0]) / wide
        right = max(right, left + (x - left) / (1 - min(share + 0.01, _MOST_ROOM)))
    panel.set_xlim(left, right)


def _headline(sweep: Sweep) -> str:
    ran, on_front = int((sweep.table["status"] == "ok").sum()), int(sweep.table["front"].sum())
    if sweep.best is not None and sweep.best.rate_rps is not None:
        return f"Within bounds up to {sweep.best.rate_rps:.3g} requests/s: {spelled(sweep.best.knobs) or 'as it is'}"
    are = "is" if on_front == 1 else "are"
    return f"{on_front} of {counted(ran, 'setting')} {are} on the front of throughput against both latencies"


def origin(sweep: Sweep) -> str:
    """What it was made of, in a line."""
    about = sweep.provenance
    runs = f"{sweep.study.replications} runs each" if sweep.study.replications > 1 else "one run each"
    version = f"elpase {about['elpase_version']}, vLLM {about['vllm_semantics']}"
    held = [str(about[name]) for name in ("trace", "profile") if name not in sweep.axes]
    parts = [*held, runs, f"seed {about['seed']}", version]
    return "  ·  ".join(parts) + ("  ·  cut short" if sweep.partial else "")
