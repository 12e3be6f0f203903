"""The sweep's one picture: output throughput against ITL p99 and TTFT p99, the Pareto front marked.

Not for numbers. The one idea: both panels share the points and their names, so a setting that is good on the left can
be found on the right; the same sweep gives the same bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from sim.report.plots import FAINT, GRID, PALETTE, STYLE, save_figure, titled_figure
from sim.report.units import as_ms
from sim.sweeps.answers import load_axis
from sim.sweeps.words import said, spelled

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd
    from matplotlib.axes import Axes

    from sim.sweeps.sweep import Sweep

_PANELS = (("p99_itl_ms", "P99 inter-token latency"), ("p99_ttft_ms", "P99 time to first token"))
_LABELLED = 14
"""Points on the front that get a name; more would cover each other."""


def plot_sweep(sweep: Sweep, path: Path) -> None:
    """Draw the settings that ran, as PNG or SVG by extension: a line along the load, or along the only knob."""
    table = sweep.table[sweep.table["status"] == "ok"]
    with mpl.rc_context(STYLE):
        figure = titled_figure(5.8, _headline(sweep), origin(sweep))
        panels = figure.subplots(1, 2)
        if len(table):
            for panel, (column, title) in zip(panels, _PANELS, strict=True):
                _draw(panel, sweep, table, column, title)
            handles, labels = panels[0].get_legend_handles_labels()
            if len(labels) <= 2 * len(PALETTE):
                figure.legend(handles, labels, loc="outside lower left", ncols=2, fontsize=8, frameon=False)
        save_figure(figure, path)


def _draw(panel: Axes, sweep: Sweep, table: pd.DataFrame, column: str, title: str) -> None:
    for number, (name, line) in enumerate(_lines(sweep, table)):
        color = PALETTE[number % len(PALETTE)]
        panel.plot(line["output_throughput"], line[column], "-", color=color, linewidth=1, alpha=0.5)
        panel.plot(line["output_throughput"], line[column], "o", color=color, markersize=5, label=name or "_")
        if f"{column}_ci95" in line:
            panel.errorbar(
                line["output_throughput"], line[column], line[f"{column}_ci95"], line["output_throughput_ci95"],
                fmt="none", ecolor=color, elinewidth=0.8, alpha=0.7,
            )  # fmt: skip
    best = table[table["front"]]
    panel.plot(best["output_throughput"], best[column], "o", markersize=10, markerfacecolor="none",
               markeredgecolor="#22303c", markeredgewidth=1.2, label="on the front")  # fmt: skip
    if len(best) <= _LABELLED:
        for at, name in _front_names(sweep, best, column).items():
            panel.annotate(name, at, xytext=(7, 5), textcoords="offset points", fontsize=8)
    if column in sweep.slo:
        panel.axhline(sweep.slo[column], color=FAINT, linewidth=1, linestyle=(0, (4, 3)))
    panel.set_yscale("log")
    low, high = panel.get_ylim()
    panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high > 5 * low else (1, 1.5, 2, 3, 4, 5, 6, 8)))
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: as_ms(value)))
    panel.yaxis.set_minor_formatter(NullFormatter())
    panel.set_title(title)
    panel.set_xlabel("Output tokens per second")
    panel.margins(0.12)
    panel.grid(color=GRID, linewidth=0.8)
    panel.set_axisbelow(True)


def _lines(sweep: Sweep, table: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Rows that differ in one knob alone: the load, or else the knob with most values."""
    varied = {name: len(values) for name, values in sweep.axes.items() if len(values) > 1}
    along = load_axis(sweep.axes) or max(varied, key=lambda name: varied[name], default=None)
    others = _telling([name for name in varied if name != along], table)
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


def _front_names(sweep: Sweep, best: pd.DataFrame, column: str) -> dict[tuple[float, float], str]:
    """Place -> the names of all who are there, one below the other: a knob that does nothing puts them all in one."""
    names: dict[tuple[float, float], list[str]] = {}
    for row in best.to_dict("records"):
        names.setdefault((row["output_throughput"], row[column]), []).append(_point_name(sweep, row))
    return {at: "\n".join(there) for at, there in names.items()}


def _point_name(sweep: Sweep, row: dict[Any, Any]) -> str:
    """Short: the values of the knobs that vary, without their names."""
    varied = [name for name, values in sweep.axes.items() if len(values) > 1]
    return ", ".join(said(row[name]) for name in _telling(varied, sweep.table) if row[name] is not None)


def _headline(sweep: Sweep) -> str:
    ran, on_front = int((sweep.table["status"] == "ok").sum()), int(sweep.table["front"].sum())
    if sweep.best is not None and sweep.best.rate_rps is not None:
        return f"Within bounds up to {sweep.best.rate_rps:.3g} requests/s: {spelled(sweep.best.knobs) or 'as it is'}"
    return f"{on_front} of {ran} settings are on the front of throughput against both latencies"


def origin(sweep: Sweep) -> str:
    """What it was made of, in a line."""
    about = sweep.provenance
    runs = f"{sweep.study.replications} runs each" if sweep.study.replications > 1 else "one run each"
    version = f"elpase {about['elpase_version']}, vLLM {about['vllm_semantics']}"
    held = [str(about[name]) for name in ("trace", "profile") if name not in sweep.axes]
    parts = [*held, runs, f"seed {about['seed']}", version]
    return "  ·  ".join(parts) + ("  ·  cut short" if sweep.partial else "")
