"""The sweep's one table: a row for each setting, with the mean of its replications and how sure it is.

Not for judging rows (`answers`). The one idea: a run is a flat record of numbers, so a table is means of columns, and
the half-width of a confidence interval beside each where there are replications to tell it from.
"""

from __future__ import annotations

import math
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.stats import t as student

from sim.sweeps.task import METRICS, PERCENTILES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sim.sweeps.settings import Setting
    from sim.sweeps.study import Outcome

CONFIDENCE = 0.95

RATES = ("output_throughput", "request_throughput", "total_token_throughput", "request_goodput")
LATENCIES = tuple(
    f"{statistic}_{metric}_ms" for metric in METRICS for statistic in ("mean", *(f"p{p:g}" for p in PERCENTILES))
)
_COUNTS = ("duration", "completed", "failed", "total_input_tokens", "total_output_tokens")
_SIM = (
    "rejected", "preemptions", "preempted_requests", "recomputed_tokens", "prefix_hit_rate", "steps", "mean_batch",
    "mean_step_tokens", "peak_running", "peak_waiting", "peak_kv_usage", "extrapolated_share",
)  # fmt: skip
_HOST = ("bytes_out", "bytes_in", "copy_s", "copy_share", "link_busy_share")
"""Of KV in host memory; 0 where none goes there."""
_LOAD = ("busy_share", "queued_share", "ordering_only")
_PACE = ("offered_rps", "kept_up")


def record(summary: Mapping[str, Any]) -> dict[str, float]:
    """A run's numbers: vLLM's keys, and the scheduler's figures, flat; NaN where it has none."""
    sim = summary["sim"]
    told = {name: summary.get(name) for name in (*RATES, *LATENCIES, *_COUNTS)}
    told |= {name: sim[name] for name in _SIM} | {name: sim["load"][name] for name in _LOAD}
    told |= {f"host_{name}": sim.get("host", {}).get(name, 0) for name in _HOST}
    told |= {f"held_by_{name}": share for name, share in sim["load"]["held_back_by"].items()}
    told |= {name: summary["pace"][name] for name in _PACE}
    return {name: math.nan if value is None else float(value) for name, value in told.items()}


def runs_table(settings: Sequence[Setting], outcomes: Sequence[Sequence[Outcome]], seed: int) -> pd.DataFrame:
    """One row per setting and replication: `setting` (its number), `seed`, `status`, `binding` (what was at work, by
    `sim.report.explain`), `reason`, the run's numbers.
    """
    rows: list[dict[str, object]] = []
    knobs = _all_knobs(settings)
    for number, replications in enumerate(outcomes):
        for replication, outcome in enumerate(replications):
            numbers = {} if outcome.summary is None else record(outcome.summary)
            about = {
                "setting": number,
                "seed": seed + replication,
                "status": outcome.status,
                "binding": ", ".join(outcome.summary["binding"]) if outcome.summary else "",
                "reason": outcome.reason,
            }
            rows.append({**knobs, **settings[number].knobs, **about, **numbers})
    return _framed(rows, knobs)


def settings_table(settings: Sequence[Setting], runs: pd.DataFrame) -> pd.DataFrame:
    """One row per setting, in their order: its knobs (None where it does not say one), `status`, `reason`, `binding`
    (what was at work in any run), `replications` (how many there are), then each number's mean, and beside it
    `..._ci95`, the half-width of its 95 % confidence interval, where there are two replications or more.
    """
    numbers = list(runs.columns[_about_ends(runs) :])
    knobs = _all_knobs(settings)
    rows = []
    for number, setting in enumerate(settings):
        mine = runs[runs["setting"] == number]
        good = mine[mine["status"] == "ok"]
        worst = mine[mine["status"] != "ok"]
        status = "ok" if worst.empty else worst["status"].iloc[0]
        row: dict[str, object] = {**knobs, **setting.knobs, "status": status}
        at_work = dict.fromkeys(name for told in good["binding"] for name in told.split(", ") if name)
        row |= {"reason": "" if worst.empty else worst["reason"].iloc[0], "binding": ", ".join(at_work)}
        row["replications"] = len(good)
        for name in numbers:
            values = good[name].to_list()
            row[name] = fmean(values) if values else math.nan
            if runs["seed"].nunique() > 1:
                row[f"{name}_ci95"] = half_width(values)
        rows.append(row)
    return _framed(rows, knobs)


def _all_knobs(settings: Sequence[Setting]) -> dict[str, None]:
    """Those of any setting; records of a parameter file need not all say the same."""
    return dict.fromkeys(name for setting in settings for name in setting.knobs)


def _framed(rows: Sequence[Mapping[str, object]], knobs: Mapping[str, None]) -> pd.DataFrame:
    """A frame in which a knob that a setting does not say is None, and whole numbers beside it stay whole."""
    table = pd.DataFrame(rows)
    for name in knobs:
        values = [row[name] for row in rows]
        if None in values:
            table[name] = pd.Series(values, dtype=object)
    return table


def half_width(values: Sequence[float]) -> float:
    """Of the 95 % confidence interval of the mean, by Student's t; NaN for fewer than two values."""
    if len(values) < 2:
        return math.nan
    quantile = float(student.ppf((1 + CONFIDENCE) / 2, len(values) - 1))
    return quantile * float(np.std(values, ddof=1)) / math.sqrt(len(values))


def _about_ends(runs: pd.DataFrame) -> int:
    return list(runs.columns).index("reason") + 1
