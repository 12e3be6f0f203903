"""What a sweep's table says: who is on the front, who is within bounds, which knob matters, where the best changes.

Not for running anything (`capacity` does). The one idea: every answer is a pure function of the table of settings and
the table of runs, so it can be asked again of a sweep that is long over.
"""

from __future__ import annotations

import math
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from sim.errors import InputError
from sim.sweeps.settings import LOAD_KNOBS
from sim.sweeps.table import LATENCIES, RATES, half_width
from sim.sweeps.task import METRICS, PERCENTILES

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

FRONT = (("output_throughput", True), ("p99_itl_ms", False), ("p99_ttft_ms", False))
"""What the front weighs: (column, whether more is better)."""
EFFECTS = ("output_throughput", "p99_itl_ms", "p99_ttft_ms")
OBJECTIVE = "mean_e2el_ms"

_TOLD_AS = {
    **dict.fromkeys(("num_gpu_blocks_override", "gpu_memory_utilization", "kv_cache_memory_bytes"), "KV blocks"),
    "max_concurrency": "max_concurrency (client)",
}
"""Knobs that `explain` knows under another name."""
_TOLD = {
    "max_num_batched_tokens", "max_num_scheduled_tokens", "max_num_seqs", "max_num_active_seqs", "KV blocks",
    "scheduler_reserve_full_isl", "watermark", "long_prefill_token_threshold", "enable_chunked_prefill",
    "max_concurrency (client)",
}  # fmt: skip
"""Settings of which `explain` says whether they were at work."""


def front(table: pd.DataFrame) -> list[bool]:
    """Whether each row is on the Pareto front: nobody is as good in throughput, ITL p99 and TTFT p99, and better in
    one of them. Equal rows are all on it, or none. Rows that did not run are not.
    """
    costs = np.column_stack([table[name] * (-1 if more else 1) for name, more in FRONT]).astype(float)
    ran = ~np.isnan(costs).any(axis=1)
    return [
        bool(ran[i]) and not bool(((costs[ran] <= costs[i]).all(axis=1) & (costs[ran] < costs[i]).any(axis=1)).any())
        for i in range(len(costs))
    ]


def parse_slo(pairs: Sequence[str]) -> dict[str, float]:
    """`ttft_p99=2000` (ms), `e2el_mean=9000` -> the table's column and its upper bound. Raises InputError."""
    bounds = {}
    for pair in pairs:
        name, _, bound = pair.partition("=")
        bounds[_slo_column(name.strip(), pair)] = _ms(bound, pair)
    return bounds


def _slo_column(name: str, pair: str) -> str:
    statistics = ("mean", *(f"p{p:g}" for p in PERCENTILES))
    match = re.fullmatch(rf"({'|'.join(METRICS)})_(.+)", name)
    statistic = "p50" if match and match[2] == "median" else match[2] if match else ""
    if match is None or statistic not in statistics:
        expected = f"METRIC_STATISTIC=MS with a metric of {', '.join(METRICS)} and one of {', '.join(statistics)}"
        raise InputError(field="--slo", value=pair, expected=expected)
    return f"{statistic}_{match[1]}_ms"


def _ms(text: str, pair: str) -> float:
    try:
        bound = float(text)
    except ValueError:
        bound = math.nan
    if not 0 < bound < math.inf:
        raise InputError(field="--slo", value=pair, expected="a number of milliseconds > 0 after the =")
    return bound


def within(row: Mapping[Hashable, Any], slo: Mapping[str, float]) -> bool:
    """Whether a row of the table is within all bounds."""
    return all(row.get(column, math.nan) <= bound for column, bound in slo.items())


def objective(name: str) -> str:
    """The column that a user wants as small (latencies) or as large (rates) as can be. Raises InputError."""
    if name not in (*LATENCIES, *RATES):
        raise InputError(field="--best", value=name, expected=f"one of {', '.join((*RATES, *LATENCIES))}")
    return name


class Effect(NamedTuple):
    """What a knob does, all others held: `changes`: column -> the largest relative change along it; `binding`: whether
    anything at all changes; `idle_from`: the value from which on nothing does any more, None if it binds to the end;
    `at_work`: in how many settings its limit was reached in a run; None where `explain` does not tell of it."""

    knob: str
    binding: bool
    idle_from: object
    changes: Mapping[str, float]
    at_work: int | None


def sensitivity(table: pd.DataFrame, axes: Mapping[str, Sequence[object]]) -> list[Effect]:
    """The effect of each knob of which two values or more ran beside the same others."""
    ran = table[table["status"] == "ok"]
    lines = {
        knob: [rows for _, rows in _lines(ran, knob, axes) if len(rows) > 1]
        for knob, values in axes.items()
        if len(values) > 1
    }
    return [_effect(table, knob, mine) for knob, mine in lines.items() if mine]


def _effect(table: pd.DataFrame, knob: str, lines: Sequence[pd.DataFrame]) -> Effect:
    numbers = list(table.columns[list(table.columns).index("replications") + 1 :])
    idle: list[int] = []
    changes = dict.fromkeys(EFFECTS, 0.0)
    for line in lines:
        same = (line[numbers].iloc[-1] == line[numbers]) | line[numbers].isna()
        equal = same.all(axis=1).to_numpy()
        # Equal to the last row, and so is every row between.
        idle.append(int(np.flatnonzero(~equal)[-1]) + 1 if not equal.all() else 0)
        for column in EFFECTS:
            changes[column] = _larger(changes[column], _relative(line[column].to_list()))
    last = max(len(line) for line in lines) - 1
    first_idle = max(idle)
    ordered = lines[0][knob].to_list()
    orderly = all(isinstance(value, int | float) for value in ordered)
    idle_from = ordered[first_idle] if orderly and 0 < first_idle < last and first_idle < len(ordered) else None
    return Effect(knob, any(i > 0 for i in idle), idle_from, changes, _at_work(pd.concat(lines), knob))


def _at_work(table: pd.DataFrame, knob: str) -> int | None:
    name = _TOLD_AS.get(knob, knob)
    return sum(name in told.split(", ") for told in table["binding"]) if name in _TOLD else None


def _lines(table: pd.DataFrame, knob: str, axes: Mapping[str, Sequence[object]]) -> list[tuple[object, pd.DataFrame]]:
    """Rows that differ in this knob alone, in its order."""
    others = [name for name in axes if name != knob]
    ordered = table.sort_values(knob, kind="stable") if _numeric(axes[knob]) else table
    return [((), ordered)] if not others else list(ordered.groupby(others, sort=False, dropna=False))


def _relative(values: Sequence[float]) -> float:
    """From the first value to the one farthest from it."""
    first = values[0]
    far = max(values, key=lambda value: abs(value - first))
    return far / first - 1 if first else 0.0


def _larger(a: float, b: float) -> float:
    return b if abs(b) > abs(a) else a


def _numeric(values: Sequence[object]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


class Best(NamedTuple):
    """The best setting at one load. `ahead`: by how much the next one is worse, as a share; `sure`: whether that is
    more than chance: the 95 % confidence interval of their difference, seed by seed, leaves out 0. None: one seed."""

    load: object
    knobs: Mapping[str, object]
    value: float
    ahead: float | None
    sure: bool | None


class Crossing(NamedTuple):
    """Between two loads the best setting changes, at about `at` (None where loads are not numbers). `sure`: both lead
    by more than chance; None: one seed."""

    low: object
    high: object
    at: float | None
    before: Mapping[str, object]
    after: Mapping[str, object]
    sure: bool | None


def load_axis(axes: Mapping[str, Sequence[object]]) -> str | None:
    """The one axis that says how much comes: a rate, a concurrency, or a trace; None without one, or with several."""
    named = [name for name in (*LOAD_KNOBS, "trace") if len(axes.get(name, ())) > 1]
    return named[0] if len(named) == 1 else None


def best_by_load(
    table: pd.DataFrame, runs: pd.DataFrame, axes: Mapping[str, Sequence[object]], column: str
) -> list[Best]:
    """The best setting at each load, in the order of the loads."""
    load = load_axis(axes)
    others = [name for name in axes if name != load]
    if load is None or not others:
        return []
    loads = sorted(axes[load]) if _numeric(axes[load]) else axes[load]  # type: ignore[type-var]  # they are numbers
    told = []
    for value in loads:
        rows = table[_is(table[load], value) & (table["status"] == "ok")]
        if len(rows):
            told.append(_best(value, rows, runs, others, column))
    return told


def _best(load: object, rows: pd.DataFrame, runs: pd.DataFrame, others: Sequence[str], column: str) -> Best:
    sign = -1 if column in RATES else 1
    order = (sign * rows[column]).sort_values(kind="stable").index
    best = rows.loc[order[0]]
    knobs = {name: best[name] for name in others}
    if len(order) == 1:
        return Best(load, knobs, float(best[column]), None, None)
    second = rows.loc[order[1]]
    ahead = abs(float(second[column]) / float(best[column]) - 1) if best[column] else 0.0
    pair = [runs[runs["setting"] == number].set_index("seed")[column] for number in order[:2]]
    difference = (pair[1] - pair[0]).to_list()
    half = half_width(difference)
    sure = None if math.isnan(half) else bool(abs(sum(difference) / len(difference)) > half)
    return Best(load, knobs, float(best[column]), ahead, sure)


def crossings(
    table: pd.DataFrame, bests: Sequence[Best], axes: Mapping[str, Sequence[object]], column: str
) -> list[Crossing]:
    """Where the best setting changes from one load to the next: there the straight lines of both cross."""
    load = load_axis(axes)
    return [
        Crossing(
            low.load, high.load, _crossing_at(table, load, low, high, column), low.knobs, high.knobs, _both(low, high)
        )
        for low, high in pairwise(bests)
        if load is not None and low.knobs != high.knobs
    ]


def _both(low: Best, high: Best) -> bool | None:
    return None if low.sure is None or high.sure is None else low.sure and high.sure


def _crossing_at(table: pd.DataFrame, load: str, low: Best, high: Best, column: str) -> float | None:
    if not isinstance(low.load, int | float) or not isinstance(high.load, int | float):
        return None
    lead = []
    for at in (low.load, high.load):
        of = [_value(table, {load: at, **best.knobs}, column) for best in (low, high)]
        lead.append(of[0] - of[1])
    if any(map(math.isnan, lead)) or lead[0] == lead[1]:
        return None
    return low.load + (high.load - low.load) * lead[0] / (lead[0] - lead[1])


def _value(table: pd.DataFrame, knobs: Mapping[str, object], column: str) -> float:
    rows = table[np.logical_and.reduce([_is(table[name], value) for name, value in knobs.items()])]
    return float(rows[column].iloc[0]) if len(rows) else math.nan


def _is(column: pd.Series[Any], value: object) -> pd.Series[bool]:
    """Where a knob has this value; None: where it is not said."""
    return column.isna() if value is None else column == value
