"""A result of NVIDIA's AIPerf (export schema 1.x, as of AIPerf 0.13): profile_export_aiperf.json, and its records.

Not for its other exports. The one idea: the summary states the figures, profile_export.jsonl in the same folder has a
line per request with its times; with it vLLM's figures are made, and AIPerf's ITL (a request's mean) is taken for what
vLLM calls TPOT, its inter-chunk latency for vLLM's ITL.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from sim.errors import InputError
from sim.input_file import read_lines
from sim.json_file import parse_json
from sim.latency.fields import MOST, Fields
from sim.report.bench.run import BenchRun

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

SUMMARY_FILE = "profile_export_aiperf.json"
RECORDS_FILE = "profile_export.jsonl"
_RATES = {
    "request_throughput": "request_throughput",
    "output_throughput": "output_token_throughput",
    "total_token_throughput": "total_token_throughput",
}
_LATENCIES = {"ttft": "time_to_first_token", "tpot": "inter_token_latency", "itl": "inter_chunk_latency",
              "e2el": "request_latency"}  # fmt: skip
_STATISTICS = {"avg": "mean", "p50": "median", "p90": "p90", "p95": "p95", "p99": "p99"}


def is_aiperf(document: Mapping[str, Any]) -> bool:
    """Whether it looks like one of its summaries."""
    return "aiperf_version" in document or ("schema_version" in document and "request_throughput" in document)


def read_run(document: Mapping[str, Any], file: Path, name: str) -> BenchRun:
    """Raises InputError naming file, line and field."""
    fields = Fields(file, document)
    if not str(document.get("schema_version")).startswith("1."):
        raise fields.wrong("schema_version", "an export of schema 1.x, as of AIPerf 0.13")
    completed = round(_value(fields, "request_count", "avg"))
    if not completed:
        raise InputError("no request was answered: nothing to compare", file=file, field="request_count")
    records = file.with_name(RECORDS_FILE)
    requests, gaps_s = _requests(records) if records.exists() else (None, None)
    phase = _phase(document)
    return BenchRun(
        name=name,
        file=file,
        source=f"AIPerf {document.get('aiperf_version', '')}".strip(),
        model=_model(document),
        completed=completed,
        failed=round(_value(fields, "error_request_count", "avg", 0.0)),
        duration_s=_value(fields, "benchmark_duration", "avg"),
        input_tokens=round(_value(fields, "total_isl", "avg", 0.0)),
        output_tokens=round(_value(fields, "total_osl", "avg", 0.0)),
        stated=_stated(fields),
        request_rate=_rate(phase),
        max_concurrency=phase.get("concurrency") if isinstance(phase.get("concurrency"), int) else None,
        in_flight=_value(fields, "effective_concurrency", "avg", math.nan)
        if "effective_concurrency" in document
        else None,
        requests=requests,
        gaps_s=gaps_s,
        cautions=tuple(_cautions(document)),
    )


def _value(fields: Fields, metric: str, statistic: str, default: float | None = None) -> float:
    if default is not None and metric not in fields.table:
        return default
    return fields.object(metric).number(statistic)


def _stated(fields: Fields) -> dict[str, float]:
    told = {ours: _value(fields, theirs, "avg") for ours, theirs in _RATES.items() if theirs in fields.table}
    for metric, theirs in _LATENCIES.items():
        if theirs in fields.table:
            summary = fields.object(theirs)
            if summary.text("unit") != "ms":
                raise summary.wrong("unit", "ms")
            known = {ours: word for word, ours in _STATISTICS.items() if summary.table.get(word) is not None}
            told |= {f"{ours}_{metric}_ms": summary.number(word) for ours, word in known.items()}
    return told


def _cautions(document: Mapping[str, Any]) -> list[str]:
    told = []
    if document.get("was_cancelled"):
        told.append("cancelled before its end")
    if document.get("is_complete") is False:
        told.append(f"not complete: {document.get('incomplete_reason') or 'no reason given'}")
    return told


def _phase(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings of the phase that was measured."""
    config = document.get("input_config")
    phases = config.get("phases") if isinstance(config, dict) else None
    measured = [p for p in phases or () if isinstance(p, dict) and p.get("kind", "profiling") == "profiling"]
    return measured[-1] if measured else {}


def _rate(phase: Mapping[str, Any]) -> float | None:
    if isinstance(phase.get("rate"), int | float):
        return float(phase["rate"])
    return math.inf if phase.get("type") == "concurrency" else None


def _model(document: Mapping[str, Any]) -> str:
    config = document.get("input_config")
    models = config.get("models") if isinstance(config, dict) else None
    items = models.get("items") if isinstance(models, dict) else None
    names = [item.get("name") for item in items or () if isinstance(item, dict)]
    return str(names[0]) if len(names) == 1 else ""


def _requests(file: Path) -> tuple[pd.DataFrame, NDArray[np.float64] | None]:
    rows, gaps_s = [], []
    for number, line in enumerate(read_lines(file), 1):
        record = _record(file, number, line)
        if record is not None:
            rows.append(_row(record))
            gaps_s.extend(_times_s(record, "inter_chunk_latency"))
    if not rows:
        raise InputError("no answered request in it", file=file)
    table = pd.DataFrame(rows).sort_values("start_s", kind="stable", ignore_index=True)
    return table, np.array(gaps_s, dtype=np.float64) if gaps_s else None


def _record(file: Path, number: int, line: str) -> Fields | None:
    """A line that counts: measured, not cancelled, answered."""
    entry = parse_json(line, file, number)
    if not isinstance(entry, dict):
        raise InputError(file=file, line=number, value=entry, expected="an object")
    whole = Fields(file, entry, f"line {number}: ")
    meta = whole.object("metadata")
    if meta.table.get("benchmark_phase") != "profiling" or meta.table.get("was_cancelled") or entry.get("error"):
        return None
    return whole


def _row(record: Fields) -> dict[str, float]:
    ttft_s, itl_s = (_times_s(record, metric) for metric in ("time_to_first_token", "inter_token_latency"))
    return {
        "start_s": record.object("metadata").number("request_start_ns") / 1e9,
        "ttft_s": ttft_s[0] if ttft_s else math.nan,
        "tpot_s": itl_s[0] if itl_s else math.nan,
        "latency_s": _times_s(record, "request_latency", needed=True)[0],
        "input_tokens": _count(record, "input_sequence_length"),
        "output_tokens": _count(record, "output_sequence_length"),
    }


def _count(record: Fields, metric: str) -> float:
    return record.object("metrics").object(metric).number("value")


def _times_s(record: Fields, metric: str, *, needed: bool = False) -> list[float]:
    metrics = record.object("metrics")
    if not needed and metrics.table.get(metric) is None:
        return []
    found = metrics.object(metric)
    if found.text("unit") != "ms":
        raise found.wrong("unit", "ms")
    value = found.table.get("value")
    values: list[Any] = value if isinstance(value, list) else [value]
    if not all(isinstance(v, int | float) and 0 <= v <= MOST for v in values):
        raise found.wrong("value", f"milliseconds from 0 to {MOST:g}")
    return [float(v) / 1000 for v in values]
