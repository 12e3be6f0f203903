"""A sweep's findings as text for a terminal: the table, and each answer in a line.

Not for files or pictures. The one idea: one spelling of a setting and of a figure, wherever they are told.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from sim.plurals import counted
from sim.report.units import percent_tenths, signed_percent
from sim.sweeps.answers import load_axis
from sim.sweeps.table import RATES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sim.sweeps.answers import Best, Effect
    from sim.sweeps.capacity import Capacity
    from sim.sweeps.sweep import Sweep

_SHOWN = {
    "output_throughput": "tokens/s",
    "p50_itl_ms": "ITL p50",
    "p99_itl_ms": "ITL p99",
    "p50_ttft_ms": "TTFT p50",
    "p99_ttft_ms": "TTFT p99",
    "mean_e2el_ms": "E2E mean",
    "preemptions": "preempted",
}
"""Column of the table -> its heading; latencies in ms."""
SHORT_NAMES = {"output_throughput": "throughput", "p99_itl_ms": "ITL p99", "p99_ttft_ms": "TTFT p99"}
"""What settings are compared by."""


def report(sweep: Sweep) -> str:
    """The whole of it."""
    parts = [_table(sweep), list(_front(sweep)), list(_bounds(sweep)), list(_knobs(sweep)), list(_by_load(sweep))]
    return "\n\n".join("\n".join(lines) for lines in parts if lines)


def spelled(knobs: Mapping[str, object]) -> str:
    """`max_num_seqs 64, watermark 0.05`; knobs that a setting does not say are left out."""
    return ", ".join(f"{name} {said(value)}" for name, value in knobs.items() if value is not None and value == value)


def said(value: object) -> str:
    """A knob's value as its flag takes it; `-` where a setting does not say one."""
    return "-" if value is None else ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _varied(sweep: Sweep) -> list[str]:
    return [name for name, values in sweep.axes.items() if len(values) > 1] or list(sweep.axes)


def _table(sweep: Sweep) -> list[str]:
    columns = [*_SHOWN, *(name for name in ("request_goodput",) if sweep.study.measure.goodput_slo_ms)]
    knobs = _varied(sweep)
    marks = ["", *(["SLO"] if sweep.slo else [])]
    rows = [[*knobs, *(_SHOWN.get(name, "goodput/s") for name in columns), *marks]]
    for row in sweep.table.to_dict("records"):
        told = [said(row[name]) for name in knobs]
        if row["status"] != "ok":
            rows.append([*told, f"{row['status']}: {row['reason']}" if row["reason"] else row["status"]])
            continue
        counts = () if sweep.study.replications > 1 else ("preemptions",)
        told += [figure(row, name, digits=0 if name in counts else 1) for name in columns]
        told.append("*" if row["front"] else "")
        rows.append(told + (["yes" if row["slo"] else "no"] if sweep.slo else []))
    return aligned(rows)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines with columns; a row that is short ends in a text that may go on to the right."""
    whole = [row for row in rows if len(row) == len(rows[0])]
    widths = [max(len(row[i]) for row in whole) for i in range(len(rows[0]))]
    return [
        "  ".join(
            cell.rjust(width) if len(row) == len(rows[0]) or i < len(row) - 1 else cell
            for i, (cell, width) in enumerate(zip(row, widths, strict=False))
        ).rstrip()
        for row in rows
    ]


def figure(row: Mapping[Any, Any], name: str, digits: int = 1, factor: float = 1.0) -> str:
    """A number of a row of the table, with its confidence interval where it has one."""
    value, half = factor * row[name], factor * row.get(f"{name}_ci95", math.nan)
    return f"{value:,.{digits}f}" + ("" if math.isnan(half) else f" ±{half:,.{max(1, digits)}f}")


def _front(sweep: Sweep) -> Iterator[str]:
    if (sweep.table["status"] == "ok").any():
        told = "* on the front: no other setting is as good in throughput, ITL p99 and TTFT p99, and better in one."
        yield f"Latencies in ms. {told}"
    if sweep.study.replications > 1:
        yield f"Means of {sweep.study.replications} seeds, with the half-width of their 95 % confidence intervals."


def _bounds(sweep: Sweep) -> Iterator[str]:
    if not sweep.capacities:
        return
    bounds = ", ".join(f"{_told(column)} <= {bound:g} ms" for column, bound in sweep.slo.items())
    yield f"Highest rate within {bounds} (to 2 %):"
    best = sweep.best
    for one in sweep.capacities:
        yield f"  {spelled(one.knobs) or 'as it is'}: {_capacity(one)}{'  <- best' if one is best else ''}"


def _capacity(one: Capacity) -> str:
    if one.rate_rps is None or one.row is None:
        return one.why
    at = f"{one.rate_rps:.3g} requests/s, {one.row['output_throughput']:,.0f} tokens/s"
    goodput = one.row["request_goodput"]
    at += "" if math.isnan(goodput) else f", goodput {goodput:.3g} requests/s"
    return f"{at} ({one.why})" if one.why else at


def _knobs(sweep: Sweep) -> Iterator[str]:
    if sweep.effects:
        yield "Largest change along each knob, the others held:"
    for effect in sweep.effects:
        yield f"  {effect.knob}: {_effect(effect, int((sweep.table['status'] == 'ok').sum()))}"


def _effect(effect: Effect, settings: int) -> str:
    if not effect.binding:
        return "not binding: the results are the same whatever it is"
    changes = ", ".join(f"{name} {signed_percent(effect.changes[column])}" for column, name in SHORT_NAMES.items())
    until = "" if effect.idle_from is None else f"; not binding from {effect.idle_from} on"
    at_work = "" if effect.at_work is None else f"; at work in {effect.at_work} of {counted(settings, 'setting')}"
    return f"binding, {changes}{until}{at_work}"


def _by_load(sweep: Sweep) -> Iterator[str]:
    if not sweep.bests:
        return
    yield f"{'Largest' if sweep.objective in RATES else 'Smallest'} {_told(sweep.objective)} at each load:"
    for best in sweep.bests:
        yield f"  {_load_name(sweep)} {best.load}: {spelled(best.knobs)}, {best.value:,.1f}{_lead(best)}"
    for crossing in sweep.crossings:
        at = f"between {crossing.low} and {crossing.high}" if crossing.at is None else f"at about {crossing.at:.3g}"
        chance = "" if crossing.sure is not False else " (but one of them leads within chance)"
        yield f"  the best changes {at}: {spelled(crossing.before)} -> {spelled(crossing.after)}{chance}"


def _load_name(sweep: Sweep) -> str:
    return load_axis(sweep.axes) or ""


def _lead(best: Best) -> str:
    if best.ahead is None:
        return ""
    noise = {None: "", True: ", beyond chance", False: ", within chance"}[best.sure]
    return f" (the next one: {percent_tenths(best.ahead)} worse{noise})"


def _told(column: str) -> str:
    """`p99_itl_ms` as people say it: ITL p99."""
    statistic, _, rest = column.partition("_")
    return (
        f"{rest.removesuffix('_ms').upper().replace('E2EL', 'E2E')} {statistic}"
        if column.endswith("_ms")
        else column.replace("_", " ")
    )
