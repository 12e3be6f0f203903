"""A comparison in words: the console's table, and JSON. The one idea: every line can be read without the others."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from sim.errors import one_line
from sim.plurals import counted
from sim.report.bench.laws import LITTLE
from sim.report.units import percent_tenths, signed_percent

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sim.report.bench.compare import Comparison, Figure, Quantiles
    from sim.report.bench.laws import Check
    from sim.report.bench.run import BenchRun

_LABELS = {
    "request_throughput": "Request throughput (req/s)",
    "output_throughput": "Output token throughput (tok/s)",
    "total_token_throughput": "Total token throughput (tok/s)",
}
_SHORT = (
    ("output_throughput", "tok/s"),
    ("mean_ttft_ms", "TTFT"),
    ("p99_ttft_ms", "p99"),
    ("mean_tpot_ms", "TPOT"),
    ("p99_tpot_ms", "p99"),
    ("mean_itl_ms", "ITL"),
    ("p99_itl_ms", "p99"),
    ("mean_e2el_ms", "E2EL"),
)
"""The columns of a table of many comparisons."""


def label(key: str) -> str:
    """As `vllm bench serve` writes it."""
    if key in _LABELS:
        return _LABELS[key]
    word, metric, _ = key.split("_")
    return f"{word.capitalize()} {metric.upper()} (ms)"


def table(told: Comparison, limits: Mapping[str, float]) -> str:
    """One comparison, without a final newline. `limits`: the errors that are allowed, as fractions."""
    return "\n".join(_lines(told, limits))


def _lines(told: Comparison, limits: Mapping[str, float]) -> Iterator[str]:
    yield f"real       {_who(told.real)}"
    yield f"simulated  {_who(told.simulated)}"
    yield ""
    yield f"{'':<33}{'real':>12}{'simulated':>12}{'error':>11}"
    for before, figure in zip((None, *told.figures), told.figures, strict=False):
        if before is not None and _metric(before.key) != _metric(figure.key):
            yield ""
        yield _row(label(figure.key), figure, limits.get(figure.key))
    yield from _section("Errors at quantiles", _quantiles(told.quantiles))
    yield from remarks(told)


def _metric(key: str) -> str:
    return "throughput" if key in _LABELS else key.split("_")[1]


def _row(name: str, figure: Figure, limit: float | None) -> str:
    within = ""
    if limit is not None:
        within = f"  {'within' if within_limit(figure, limit) else 'BEYOND'} {percent_tenths(limit)}"
    return f"{name:<33}{figure.real:>12,.2f}{figure.simulated:>12,.2f}{signed_percent(figure.error):>11}{within}"


def within_limit(figure: Figure, limit: float) -> bool:
    """Two zeros are equal; an error that cannot be told is beyond any limit."""
    return figure.real == figure.simulated or abs(figure.error) <= limit


def remarks(told: Comparison) -> Iterator[str]:
    """What differs, what to know, and the laws: those that are broken in full."""
    # What files say of themselves may hold line ends and a terminal's control characters.
    yield from _section("Not the same workload", map(one_line, told.differences))
    yield from _section("Note", map(one_line, told.notes))
    yield from _section("Checks of the files", _checks(told.checks))


def _checks(checks: Sequence[tuple[str, Check]]) -> Iterator[str]:
    """Little's law in full; of the others those that are broken."""
    for side, law in checks:
        if not law.ok or law.law == LITTLE:
            yield _law_line(side, law)
    others = [law for _, law in checks if law.ok and law.law != LITTLE]
    if others:
        yield f"ok      {len(others)} more: {', '.join(dict.fromkeys(law.law.lower() for law in others))}"


def _section(title: str, lines: Sequence[str] | Iterator[str]) -> Iterator[str]:
    shown = list(lines)
    if shown:
        yield ""
        yield title
        yield from (f"  {line}" for line in shown)


def _who(run: BenchRun) -> str:
    facts = ", ".join(f"{name} {value}" for name, value in run.facts.items())
    made = f"{run.source} ({facts})" if facts else run.source
    of = f", {run.model}" if run.model else ""
    return one_line(f"{run.file}: {made}{of}, {counted(run.completed, 'request')} in {run.duration_s:,.1f} s")


def _quantiles(quantiles: Sequence[Quantiles]) -> Iterator[str]:
    if not quantiles:
        return
    shares = max((q.shares for q in quantiles), key=len)
    yield f"{'':<6}" + "".join(f"{f'p{100 * share:g}':>10}" for share in shares)
    for q in quantiles:
        yield f"{q.metric.upper():<6}" + "".join(f"{signed_percent(error):>10}" for error in q.errors)


def _law_line(side: str, law: Check) -> str:
    sign = "<=" if law.at_most else "="
    told = f"{law.left_name} {_figures(law.left)} {sign} {law.right_name} {_figures(law.right)}"
    return f"{'ok    ' if law.ok else 'BROKEN'}  {side:<9}  {law.law}: {told}"


def _figures(value: float) -> str:
    """Four figures or more."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def many_table(pairs: Mapping[str, Comparison]) -> str:
    """Errors of several comparisons, a row for each, and below what each has to remark."""
    return "\n".join(_many_lines(pairs))


def _many_lines(pairs: Mapping[str, Comparison]) -> Iterator[str]:
    width = max(12, *(len(name) for name in pairs))
    yield f"{'error of':<{width}}" + "".join(f"{short:>10}" for _, short in _SHORT)
    for name, told in pairs.items():
        of = {figure.key: signed_percent(figure.error) for figure in told.figures}
        yield f"{name:<{width}}" + "".join(f"{of.get(key, '-'):>10}" for key, _ in _SHORT)
    for name, told in pairs.items():
        broken = [_law_line(side, law) for side, law in told.checks if not law.ok]
        yield from _section(name, [*map(one_line, (*told.differences, *told.notes)), *broken])


def as_json(name: str, told: Comparison, limits: Mapping[str, float]) -> dict[str, Any]:
    """Everything, under vLLM's keys; errors are fractions, times in ms, and None stands for what cannot be told."""
    return {
        "name": name,
        "real": _run(told.real),
        "simulated": _run(told.simulated),
        "figures": {figure.key: _figure(figure, limits.get(figure.key)) for figure in told.figures},
        "quantiles": {q.metric: _spread(q) for q in told.quantiles},
        "differences": list(told.differences),
        "notes": list(told.notes),
        "checks": [_law(side, law) for side, law in told.checks],
        "sound": told.sound,
    }


def _run(run: BenchRun) -> dict[str, Any]:
    return {
        "file": str(run.file),
        "source": run.source,
        **run.facts,
        "model": run.model,
        "completed": run.completed,
        "failed": run.failed,
        "duration_s": run.duration_s,
    }


def _figure(figure: Figure, limit: float | None) -> dict[str, Any]:
    told = {"real": figure.real, "simulated": figure.simulated, "error": _finite(figure.error)}
    return told if limit is None else told | {"tolerance": limit, "within": within_limit(figure, limit)}


def _spread(q: Quantiles) -> list[dict[str, Any]]:
    rows = zip(q.shares, q.real_ms, q.simulated_ms, q.errors, strict=True)
    return [{"share": s, "real_ms": a, "simulated_ms": b, "error": _finite(e)} for s, a, b, e in rows]


def _law(side: str, law: Check) -> dict[str, Any]:
    return {
        "file": side,
        "law": law.law,
        law_key(law.left_name): law.left,
        law_key(law.right_name): law.right,
        "at_most": law.at_most,
        "tolerance": law.tolerance,
        "ok": law.ok,
    }


def law_key(name: str) -> str:
    """A name as a JSON key."""
    return re.sub(r"\W+", "_", name).strip("_")


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
