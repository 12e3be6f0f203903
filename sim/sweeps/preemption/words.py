"""A comparison's findings as text for a terminal: the table, who wins where, and the ceiling.

Not for files or pictures. The one idea: a mode that wins by less than the profile knows is called even.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sim.plurals import counted
from sim.report.units import percent, percent_tenths
from sim.sweeps.preemption.comparison import EVEN, KV, LINK, MODE, PLACE, SEQS
from sim.sweeps.words import aligned, figure

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sim.sweeps.preemption.comparison import Ceiling, PreemptionComparison, Win

HEADINGS = {KV: "KV blocks", LINK: "GB/s", SEQS: "max_num_seqs"}
_FIGURES = {"output_throughput": "tokens/s", "p99_itl_ms": "ITL p99", "p99_ttft_ms": "TTFT p99"}
_SHOWN = {
    "output_throughput": ("tokens/s", 1, 0),
    "p50_itl_ms": ("ITL p50", 1, 1),
    "p99_itl_ms": ("ITL p99", 1, 1),
    "mean_ttft_ms": ("TTFT mean", 1, 0),
    "p99_ttft_ms": ("TTFT p99", 1, 0),
    "preemptions": ("preempted", 1, 0),
    "recomputed_tokens": ("recomputed", 1, 0),
    "host_bytes": ("GB moved", 1e-9, 1),
    "host_link_busy_share": ("link busy %", 100, 1),
    "lost_share": ("lost %", 100, 2),
}
"""Column -> heading, factor, digits."""


def report(comparison: PreemptionComparison) -> str:
    """The whole of it."""
    parts = [_table(comparison), list(_legend(comparison)), _wins(comparison), list(_ceilings(comparison))]
    return "\n\n".join("\n".join(lines) for lines in parts if lines)


def spelled_place(place: Mapping[str, Any]) -> str:
    """`2,000 blocks, max_num_seqs 64, 16 GB/s`."""
    words = {KV: "{:,.0f} blocks", SEQS: "max_num_seqs {:,.0f}", LINK: "{:g} GB/s"}
    return ", ".join(words[name].format(value) for name, value in place.items() if name in words)


def _axes(comparison: PreemptionComparison) -> list[str]:
    """What is told of a row's place."""
    return [name for name in (KV, SEQS, MODE, LINK) if name == MODE or comparison.table[name].notna().any()]


def _table(comparison: PreemptionComparison) -> list[str]:
    axes = _axes(comparison)
    rows = [[*("mode" if name == MODE else HEADINGS[name] for name in axes), *(told for told, _, _ in _SHOWN.values())]]
    for row in comparison.table.to_dict("records"):
        place = [_mode(row) if name == MODE else _value(row[name]) for name in axes]
        if row["status"] != "ok":
            rows.append([*place, f"{row['status']}: {row['reason']}" if row["reason"] else row["status"]])
            continue
        rows.append(
            place + [figure(row, name, digits=digits, factor=factor) for name, (_, factor, digits) in _SHOWN.items()]
        )
    return aligned(rows)


def _mode(row: Mapping[Any, Any]) -> str:
    return f"{row[MODE]}*" if row["counterfactual"] else str(row[MODE])


def _value(value: float) -> str:
    return "-" if value != value else f"{value:g}"


def _legend(comparison: PreemptionComparison) -> Iterator[str]:
    yield "Latencies in ms. Lost: GPU time for computing again (by the profile's law), and steps waiting for copies."
    if comparison.table["counterfactual"].any():
        yield "* a counterfactual: vLLM's V0 swapped, V1 does not."
    if comparison.sweep.study.replications > 1:
        yield f"Means of {comparison.sweep.study.replications} seeds, ± half of their 95 % confidence intervals."


def _wins(comparison: PreemptionComparison) -> list[str]:
    """A row for each place, a column for each figure."""
    places = {spelled_place(win.place): win.place for win in comparison.wins}
    if comparison.table[MODE].nunique() < 2:
        return []
    rows = [["Best, and how much worse the next is", *_FIGURES.values()]]
    for told, place in places.items():
        here = {win.column: win for win in comparison.wins if win.place == place}
        rows.append([told or "as it is", *(_win(here[column]) for column in _FIGURES)])
    width = max(len(row[0]) for row in rows)
    even = f"even: the next one is less than {percent(EVEN)} worse, which no profile can tell."
    return [*aligned([[row[0].ljust(width), *row[1:]] for row in rows]), even]


def _win(win: Win) -> str:
    if win.even:
        return "even"
    return win.mode if win.lead is None else f"{win.mode} {percent_tenths(win.lead)}"


def _ceilings(comparison: PreemptionComparison) -> Iterator[str]:
    if comparison.ceilings:
        yield "Throughput over max_num_seqs:"
    for ceiling in comparison.ceilings:
        place = {name: value for name, value in ceiling.setting.items() if name in PLACE}
        yield f"  {', '.join(filter(None, (spelled_place(place), str(ceiling.setting[MODE]))))}: {_ceiling(ceiling)}"


def _ceiling(ceiling: Ceiling) -> str:
    last = f"at {ceiling.largest:,} at most {ceiling.peak_running:,.0f} run{'s' * (ceiling.peak_running == 1)}"
    why = {
        "max_num_seqs": f"{last}, and more might help",
        "KV": f"{last}: the KV is the ceiling, not the knob",
        "load": f"{last}: no more come",
    }[ceiling.limit]
    thrash = f", {percent_tenths(ceiling.thrash)} less there ({counted(ceiling.preemptions, 'preemption')})"
    return f"{ceiling.most:,.0f} tokens/s from {ceiling.enough:,} on; {why}{thrash if ceiling.thrash >= EVEN else ''}"
