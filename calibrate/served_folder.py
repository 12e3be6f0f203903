"""A run recorded inside the server (a `vllm019` folder: requests.jsonl, meta.json, timeseries.csv).

Not for kernel times (op_files.py). The one idea: times were taken by the engine, so waiting is counted from the
engine's queue on both sides and no client is in them; meta.json has the server's flags.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from calibrate import requests_csv
from sim.core.config import MAX_BLOCKS
from sim.errors import InputError
from sim.input_file import TABLE_BYTES, input_file, read_lines
from sim.json_file import parse_json
from sim.latency.fields import Fields

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from sim.experiment import Result

REQUESTS, META, TIMESERIES = "requests.jsonl", "meta.json", "timeseries.csv"

_TIMES = ("arrival_time", "queued_ts", "first_token_ts", "last_token_ts")
_COUNTS = ("input_toks", "output_toks")

_FLAGS = (
    "max_num_seqs", "max_num_batched_tokens", "max_model_len", "async_scheduling", "enable_chunked_prefill",
    "long_prefill_token_threshold", "scheduler_reserve_full_isl", "block_size", "enable_prefix_caching",
)  # fmt: skip
"""Flags of the resolved settings that a simulation knows under the same name."""


@dataclass(frozen=True, slots=True)
class Served:
    """One recorded run."""

    model: str
    requests: pd.DataFrame
    """As of `requests_csv.read_measured`, with send_s the time of the engine's queue."""
    settings: Mapping[str, object]
    timeseries: pd.DataFrame | None


def read(folder: Path) -> Served:
    """Raises InputError naming file, line and field; OSError."""
    for name in (META, REQUESTS):
        if not (folder / name).is_file():
            raise InputError(
                f"has no {name}, expected a run recorded inside the server: {REQUESTS} and {META}", file=folder
            )
    meta = Fields.read(folder / META)
    series = folder / TIMESERIES
    return Served(
        model=meta.text("model"),
        requests=_requests(folder / REQUESTS),
        settings=_settings(meta),
        timeseries=_timeseries(series) if series.exists() else None,
    )


def settings(folder: Path) -> dict[str, object]:
    """The server's flags alone. Raises InputError and OSError."""
    return _settings(Fields.read(folder / META))


def figures(run: pd.DataFrame) -> dict[str, float]:
    """Those of any run of requests, and the makespan: from the first request in the queue to the last token."""
    makespan_s = float((run["send_s"] + run["e2e_s"]).max() - run["send_s"].min())
    return {"makespan": makespan_s, **requests_csv.figures(run)}


def table_of(result: Result) -> pd.DataFrame:
    """A simulated run, counted from the engine's queue."""
    return requests_csv.table_of(result, since="queued_s")


def _requests(file: Path) -> pd.DataFrame:
    rows = [_row(file, number, line) for number, line in enumerate(read_lines(file), 1) if line.strip()]
    if not rows:
        raise InputError("no rows", file=file)
    table = pd.DataFrame(rows)
    start_s = table["queued_ts"].min()
    run = pd.DataFrame(
        {
            "arrival_s": table["arrival_time"] - table["arrival_time"].min(),
            "send_s": table["queued_ts"] - start_s,
            "prompt_tokens": table["input_toks"],
            "output_tokens": table["output_toks"],
            "ttft_s": table["first_token_ts"] - table["queued_ts"],
            "e2e_s": table["last_token_ts"] - table["queued_ts"],
        }
    )
    for column, low in (("ttft_s", 0.0), ("e2e_s", run["ttft_s"])):
        bad = np.flatnonzero(~(run[column] >= low).to_numpy())
        if bad.size:
            raise InputError("times out of order", file=file, line=int(bad[0]) + 1)
    return run.sort_values("arrival_s", kind="stable", ignore_index=True)


def _row(file: Path, number: int, line: str) -> dict[str, float]:
    entry = parse_json(line, file, number)
    row = {}
    for name in (*_TIMES, *_COUNTS):
        value = entry.get(name) if isinstance(entry, dict) else None
        least = 1 if name in _COUNTS else 0
        if not isinstance(value, int | float) or isinstance(value, bool) or not value >= least:
            raise InputError(file=file, line=number, field=name, value=value, expected=f"a number >= {least}")
        row[name] = value
    return row


def _settings(meta: Fields) -> dict[str, object]:
    """The resolved settings where they are there, and the number of blocks that the server found room for."""
    resolved = meta.table.get("resolved_config")
    parts = resolved if isinstance(resolved, dict) else {}
    said: dict[str, object] = {}
    kwargs = meta.table.get("engine_kwargs")
    for part in (kwargs, parts.get("cache_config"), parts.get("scheduler_config"), parts.get("model_config")):
        if isinstance(part, dict):
            said |= {name: part[name] for name in _FLAGS if part.get(name) is not None}
    said["num_gpu_blocks_override"] = meta.object("kv_cache").integer("num_gpu_blocks", least=2, most=MAX_BLOCKS)
    return said


def _timeseries(file: Path) -> pd.DataFrame:
    table = pd.read_csv(input_file(file, TABLE_BYTES))
    for column in ("t", "running", "waiting"):
        if column not in table:
            raise InputError("missing column", file=file, line=1, field=column)
    return table
