"""The comparison's one picture: throughput, ITL p99 and time lost, a row of panels for each axis that varies.

Not for numbers. The one idea: a colour is a mode in every panel, and an axis' values stand evenly side by side, as
2,000 and 8,000 blocks, or 16 and 50 GB/s, are cases and not a scale.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.ticker import StrMethodFormatter

from sim.config import KV_PREEMPTIONS
from sim.report.plots import FAINT, GRID, PALETTE, STYLE, save_figure, titled_figure
from sim.report.units import percent
from sim.sweeps.plots import origin
from sim.sweeps.preemption.comparison import EVEN, KV, LINK, MODE, PLACE, SEQS
from sim.sweeps.preemption.words import HEADINGS, spelled_place
from sim.sweeps.words import SHORT_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pandas as pd
    from matplotlib.axes import Axes

    from sim.sweeps.preemption.comparison import PreemptionComparison

_PANELS = (
    ("output_throughput", 1.0, "Output tokens per second"),
    ("p99_itl_ms", 1.0, "P99 inter-token latency (ms)"),
    ("lost_share", 100.0, "GPU time lost (%)"),
)
_COLORS = dict(zip(KV_PREEMPTIONS, PALETTE, strict=False))
_MARKS = dict(zip(KV_PREEMPTIONS, "osD", strict=True))
_ROW_HEIGHT = 2.9
_HEADER = 1.4
_NAME_HEIGHT = 0.07
"""Of a panel's height, for a line's name."""


def plot_comparison(comparison: PreemptionComparison, path: Path) -> None:
    """Draw what ran, as PNG or SVG by extension."""
    table = comparison.table[comparison.table["status"] == "ok"]
    axes = [name for name in PLACE if table[name].nunique() > 1] or [KV]
    with mpl.rc_context(STYLE):
        height = _HEADER + _ROW_HEIGHT * len(axes)
        figure = titled_figure(height, _headline(comparison), origin(comparison.sweep))
        panels = figure.subplots(len(axes), len(_PANELS), squeeze=False)
        for row, along in zip(panels, axes, strict=True):
            for panel, (column, factor, title) in zip(row, _PANELS, strict=True):
                _draw(panel, table, along, column, factor)
                panel.set_title(title)
        handles, labels = panels[0][0].get_legend_handles_labels()
        named = dict(zip(labels, handles, strict=True))
        figure.legend(named.values(), named.keys(), loc="outside lower left", ncols=3, fontsize=9, frameon=False)
        save_figure(figure, path)


def _draw(panel: Axes, table: pd.DataFrame, along: str, column: str, factor: float) -> None:
    values = sorted(table[along].dropna().unique())
    ends: list[tuple[float, str]] = []
    for mode, held, line in _lines(table, along):
        color = _COLORS[mode]
        name = f"{mode} (a counterfactual)" if mode == "swap" else mode
        if line[along].isna().all():  # the same at every value
            panel.axhline(factor * line[column].iloc[0], color=color, linewidth=1.4, label=name)
            continue
        x = [values.index(value) for value in line[along]]
        y = factor * line[column]
        panel.plot(x, y, "-", marker=_MARKS[mode], color=color, linewidth=1.4, markersize=4, alpha=0.85, label=name,
                   clip_on=False)  # fmt: skip  # a mark at 0 is whole
        if held and mode == table[MODE].iloc[0]:  # once: the other modes' lines end beside it
            ends.append((float(y.iloc[-1]), held))
    panel.set_xticks(range(len(values)), [f"{value:,g}" for value in values])
    panel.set_xlabel(f"{HEADINGS[along]}{_held(table, along)}" if values else "", fontsize=9)
    panel.margins(x=0.25 if along == SEQS else 0.12)
    panel.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    panel.set_ylim(
        0, 1.12 * max(panel.dataLim.y1, 0.0) or 1.0
    )  # margins are of what the data spans, and say nothing of 0
    _name(panel, len(values) - 1, ends)
    panel.grid(color=GRID, linewidth=0.8)
    panel.set_axisbelow(True)


def _name(panel: Axes, x: int, ends: list[tuple[float, str]]) -> None:
    """Names beside the ends of lines: where these are near each other, one above the other, and all in the panel."""
    top = panel.get_ylim()[1]
    height, least, names = _NAME_HEIGHT * top, 0.0, sorted(ends)
    for row, (y, _) in enumerate(names):
        # Those above it need room, too.
        least = max(least, min(y, top - (len(names) - 0.5 - row) * height))
        panel.annotate(names[row][1], (x, least), xytext=(5, 0), textcoords="offset points", fontsize=7, color=FAINT,
                       va="center")  # fmt: skip
        least += height


def _lines(table: pd.DataFrame, along: str) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Mode, what tells its line from others of the mode, and rows in order. KV sizes have a line each over
    max_num_seqs.
    """
    apart = KV if along == SEQS and table[KV].nunique() > 1 else None
    for name, value in _tightest(table, along).items():
        if name != apart:
            table = table[(table[name] == value) | table[name].isna()]
    for mode, rows in table.groupby(MODE, sort=False):
        for value, line in rows.groupby(apart, sort=False) if apart else [(None, rows)]:
            told: Any = "" if apart is None else spelled_place({apart: value})
            yield str(mode), told, line.sort_values(along)


def _tightest(table: pd.DataFrame, along: str) -> dict[str, Any]:
    """Of the axes that vary beside this one: fewest blocks, slowest link, most requests."""
    held = {KV: min, LINK: min, SEQS: max}
    return {name: pick(table[name].dropna()) for name, pick in held.items() if name != along and _varies(table, name)}


def _varies(table: pd.DataFrame, name: str) -> bool:
    return bool(table[name].nunique() > 1)


def _held(table: pd.DataFrame, along: str) -> str:
    held = spelled_place(
        {name: value for name, value in _tightest(table, along).items() if not (along == SEQS and name == KV)}
    )
    return f"  (at {held})" if held else ""


def _headline(comparison: PreemptionComparison) -> str:
    if comparison.table[MODE].nunique() < 2:
        return _of_one_mode(comparison)
    leads = [(win.lead, win) for win in comparison.wins if win.lead is not None and not win.even]
    if not leads:
        return f"Whatever becomes of a victim's KV, the figures are the same within {percent(EVEN)}"
    lead, most = max(leads, key=lambda pair: pair[0])
    where = spelled_place(most.place)
    at = f" at {where}" if where else ""
    return f"Largest difference: {most.mode} by {SHORT_NAMES[most.column]}{at}: the next one is {percent(lead)} worse"


def _of_one_mode(comparison: PreemptionComparison) -> str:
    """How throughput ends, where letting in more costs most."""
    [mode] = comparison.table[MODE].unique()
    if not comparison.ceilings:
        return f"Preemption by {mode}"
    most = max(comparison.ceilings, key=lambda ceiling: ceiling.thrash)
    where = spelled_place({name: most.setting[name] for name in (KV, LINK) if name in most.setting})
    less = f"; {percent(most.thrash)} less at {most.largest:,}" if most.thrash >= EVEN else ", and no less after it"
    return f"{where}, {mode}: {most.most:,.0f} tokens/s from {SEQS} {most.enough:,} on{less}"
