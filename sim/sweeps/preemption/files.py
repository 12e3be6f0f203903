"""A comparison on disk: preemption.csv, .parquet, .json and .png.

Not for results of single runs (`sim.sweeps.store`). The one idea: the table and what is said of how it was made are the
sweep's, with the comparison's own answers in place of the sweep's.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from sim.output import result_directory
from sim.sweeps.files import document, jsonable, with_provenance
from sim.sweeps.preemption.plots import plot_comparison

if TYPE_CHECKING:
    from pathlib import Path

    from sim.sweeps.preemption.comparison import PreemptionComparison

FILES = ("preemption.csv", "preemption.parquet", "preemption.json", "preemption.png")
_OF_THE_SWEEP = ("provenance", "fixed", "axes", "partial", "rows", "notes")


def write_comparison(comparison: PreemptionComparison, out: str | Path) -> None:
    """Write all files into `out`, replacing those of a comparison before. Raises OSError."""
    table = with_provenance(replace(comparison.sweep, table=comparison.table))
    with result_directory(out, supersedes=FILES) as folder:
        table.to_csv(folder / "preemption.csv", index=False, lineterminator="\n")
        with (folder / "preemption.parquet").open("wb") as file:  # Arrow itself takes no name that is not UTF-8
            table.to_parquet(file, index=False)
        (folder / "preemption.json").write_text(as_json(comparison) + "\n", encoding="utf-8")
        plot_comparison(comparison, folder / "preemption.png")


def as_json(comparison: PreemptionComparison) -> str:
    """All that a comparison found; NaN is null."""
    made = document(replace(comparison.sweep, table=comparison.table))
    found = {name: made[name] for name in _OF_THE_SWEEP} | {
        "wins": jsonable([{**win._asdict(), "even": win.even} for win in comparison.wins]),
        "ceilings": jsonable([{**one._asdict(), "thrash": one.thrash} for one in comparison.ceilings]),
    }
    return json.dumps(found, indent=2, allow_nan=False)
