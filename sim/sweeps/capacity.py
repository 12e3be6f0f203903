"""The highest rate at which each setting stays within bounds, found by bisection.

Not for rates of a grid (`answers`). The one idea: rates are steps of 2 % on one ladder, the same for all settings, so
the search is over whole numbers, its runs are tasks like any others (kept, shared, resumed), and all climb at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from sim.sweeps.answers import within
from sim.sweeps.settings import LOAD_KNOBS, Setting
from sim.sweeps.table import runs_table, settings_table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sim.sweeps.study import Outcome, Study

STEP = 1.02
"""How fine the answer is."""
_DOUBLE = round(math.log(2) / math.log(STEP))
_FARTHEST = 10 * _DOUBLE
"""A thousand times the workload's own rate, or a thousandth of it, is as far as anybody looks."""

KEPT_UP = 0.98
"""The server takes requests in at this share of the rate at which they come, or better: else its queue only grows, and
what it measures depends on how long one waits."""


class Capacity(NamedTuple):
    """A setting's highest rate within bounds. `rate_rps` is None where even a thousandth of the workload's own rate is
    too much, or where it cannot run at all: `why`. `row` is the table's at that rate."""

    knobs: Mapping[str, object]
    rate_rps: float | None
    row: Mapping[Any, Any] | None
    why: str = ""


@dataclass(slots=True)
class _Search:
    """One setting's: the highest step that is known to do, the lowest known not to."""

    setting: Setting
    rate_scale: float
    good: int | None = None
    bad: int | None = None
    why: str = ""
    rows: dict[int, Mapping[Any, Any]] = field(default_factory=dict)

    def next(self) -> int | None:
        """The next step to try: by doubling until both are known, then half way; None when done."""
        if self.why or (self.good is not None and self.bad is not None and self.bad - self.good <= 1):
            return None
        if self.good is None and self.bad is None:
            return 0
        if self.bad is None:
            return self.good + _DOUBLE if self.good is not None and self.good < _FARTHEST else None
        if self.good is None:
            return self.bad - _DOUBLE if self.bad > -_FARTHEST else None
        return (self.good + self.bad) // 2

    def at(self, step: int) -> Setting:
        """The setting, at this step's rate."""
        return self.setting | Setting(client={"rate_scale": self.rate_scale * STEP**step})

    def learn(self, step: int, row: Mapping[Any, Any], slo: Mapping[str, float]) -> None:
        """Take in what came out at a step."""
        self.rows[step] = row
        if row["status"] != "ok":
            self.why = row["reason"] or row["status"]
        elif math.isnan(row["offered_rps"]):
            self.why = "all requests come at once: there is no rate to search"
        elif within(row, slo) and row["failed"] == 0 and row["kept_up"] >= KEPT_UP:
            self.good = step
        else:
            self.bad = step

    def found(self) -> Capacity:
        """The answer."""
        knobs = {name: value for name, value in self.setting.told.knobs.items() if name not in LOAD_KNOBS[:2]}
        if self.good is None:
            return Capacity(knobs, None, None, self.why or "not within bounds at any rate")
        row = self.rows[self.good]
        return Capacity(knobs, float(row["offered_rps"]), row, "" if self.bad is not None else "no limit found")


def capacities(
    study: Study, slo: Mapping[str, float], run: Callable[[Sequence[Setting]], list[list[Outcome]]]
) -> list[Capacity]:
    """The highest rate of each setting, whatever rates the study itself varies, in the settings' order.

    `run` gives each setting's replications; the bounds are held against their means.
    """
    searches = [
        _Search(setting, float(setting.knobs.get("rate_scale", study.workload["rate_scale"])))
        for setting in _without_rates(study.settings)
    ]
    while True:
        going = [(search, step) for search in searches for step in [search.next()] if step is not None]
        if not going:
            return [search.found() for search in searches]
        settings = [search.at(step) for search, step in going]
        rows = settings_table(settings, runs_table(settings, run(settings), study.workload["seed"]))
        for (search, step), row in zip(going, rows.to_dict("records"), strict=True):
            search.learn(step, row, slo)


def best_capacity(found: Sequence[Capacity]) -> Capacity | None:
    """The setting that does most; the first of equals."""
    able = [one for one in found if one.rate_rps is not None]
    return max(able, key=lambda one: one.rate_rps or 0.0, default=None)


def _without_rates(settings: Sequence[Setting]) -> list[Setting]:
    """The settings that differ in more than their rate, each with the first rate that it was given."""
    seen: dict[str, Setting] = {}
    for setting in settings:
        rest = {name: value for name, value in setting.knobs.items() if name not in LOAD_KNOBS[:2]}
        seen.setdefault(repr(rest), setting)
    return list(seen.values())
