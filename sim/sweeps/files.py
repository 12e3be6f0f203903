"""A sweep on disk: one table as sweep.csv, .parquet and .json, one picture, and vLLM's own layout beside them.

Not for results of single tasks (`store`). The one idea: everything here is made from the table, so it can be thrown
away and made again; each file says by itself which trace, profile, seed and versions it is of.
"""

from __future__ import annotations

import json
import math
import shutil
from typing import TYPE_CHECKING, Any

import pandas as pd

from sim.output import result_directory
from sim.sweeps.plots import plot_sweep
from sim.sweeps.vllm_files import write_bench_sweep
from sim.sweeps.words import said

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from sim.sweeps.capacity import Capacity
    from sim.sweeps.sweep import Sweep

FILES = ("sweep.csv", "sweep.parquet", "sweep.json", "sweep.png")
BENCH_SWEEP = "bench_sweep"
"""The folder with vLLM's layout."""


def write_sweep(sweep: Sweep, out: Path) -> None:
    """Write all files into `out`, replacing those of a sweep before. Raises OSError naming what cannot be written."""
    table = with_provenance(sweep)
    with result_directory(out, supersedes=FILES) as folder:
        _as_flags(table).to_csv(folder / "sweep.csv", index=False, lineterminator="\n")
        with (folder / "sweep.parquet").open("wb") as file:  # Arrow itself takes no name that is not UTF-8
            table.to_parquet(file, index=False)
        text = json.dumps(document(sweep), indent=2, allow_nan=False)
        (folder / "sweep.json").write_text(text + "\n", encoding="utf-8")
        plot_sweep(sweep, folder / "sweep.png")
    # Only now, when the tables are safe; vLLM's plots take every file they find below, so old ones must go.
    aside = out / f".{BENCH_SWEEP}.partial"
    shutil.rmtree(aside, ignore_errors=True)
    try:
        aside.mkdir()
        write_bench_sweep(aside, [setting.told for setting in sweep.study.settings], sweep.results)
        shutil.rmtree(out / BENCH_SWEEP, ignore_errors=True)
        aside.rename(out / BENCH_SWEEP)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def with_provenance(sweep: Sweep) -> pd.DataFrame:
    """The table with what made it in columns, where it is not a knob; values of several types in one column as text."""
    table = sweep.table.copy()
    for name in sweep.axes:
        said = table[name].dropna()
        if said.map(type).nunique() > 1 or said.map(lambda value: isinstance(value, dict)).any():
            texts = said.map(lambda value: value if isinstance(value, str) else json.dumps(value))
            table[name] = texts.reindex(table.index)
    about = {name: value for name, value in sweep.provenance.items() if name not in table}
    return pd.concat([table, pd.DataFrame(about, index=table.index)], axis="columns")


def document(sweep: Sweep) -> dict[str, object]:
    """All that a sweep found, as JSON values; NaN is null."""
    study = sweep.study
    bounds = {"slo": dict(sweep.slo), "goodput_slo_ms": dict(study.measure.goodput_slo_ms)}
    best = sweep.best
    found: dict[str, object] = {
        "provenance": sweep.provenance,
        "fixed": {
            "workload": {name: value for name, value in study.workload.items() if value is not None},
            "engine": {n: v for n in study.engine.__slots__ for v in [getattr(study.engine, n)] if v is not None},
            "replications": study.replications,
            "warmup_s": study.measure.warmup_s,
            "cooldown_s": study.measure.cooldown_s,
            "outside": study.outside,
            **bounds,
        },
        "axes": sweep.axes,
        "partial": sweep.partial,
        "rows": sweep.table.to_dict("records"),
        "best": None if best is None else _capacity(best),
        "capacities": [_capacity(one) for one in sweep.capacities],
        "effects": [effect._asdict() for effect in sweep.effects],
        "objective": sweep.objective,
        "best_by_load": [one._asdict() for one in sweep.bests],
        "crossings": [one._asdict() for one in sweep.crossings],
        "notes": sweep.notes,
    }
    return {name: jsonable(value) for name, value in found.items()}


def _as_flags(table: pd.DataFrame) -> pd.DataFrame:
    """With rates and sizes as their flags take them, so that a row can be run again."""
    told = table.copy()
    for name in filter(lambda name: pd.api.types.is_object_dtype(table[name]), table.columns):
        told[name] = pd.Series([said(v) if isinstance(v, tuple) else v for v in table[name]], table.index, dtype=object)
    return told


def _capacity(one: Capacity) -> Mapping[str, Any]:
    return {"knobs": one.knobs, "rate_rps": one.rate_rps, "why": one.why, "row": one.row}


def jsonable(value: Any) -> Any:
    """A value as strict JSON has it: NaN is null, infinity is "inf"."""
    if isinstance(value, dict):
        return {str(name): jsonable(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(inner) for inner in value]
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "inf"
    return value
