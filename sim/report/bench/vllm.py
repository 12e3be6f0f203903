"""A result of `vllm bench serve` (0.32; elpase's own `result.json` has the same keys and a block `sim`).

Not for writing such results (sim.report.summary). The one idea: without --save-detailed a result only states its
figures, with it everything can be made anew from the lists.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from sim.errors import InputError
from sim.latency.fields import MOST, Fields
from sim.plurals import counted
from sim.report.bench.run import THROUGHPUTS, BenchRun
from sim.report.units import percent

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

LISTS = ("input_lens", "output_lens", "ttfts", "itls", "start_times")
_LATENCY = re.compile(r"(mean|median|p[\d.]+)_(ttft|tpot|itl|e2el)_ms")


def is_bench_result(document: Mapping[str, Any]) -> bool:
    """Whether it looks like one."""
    return "output_throughput" in document or "ttfts" in document


def read_run(document: Mapping[str, Any], file: Path, name: str) -> BenchRun:
    """Raises InputError naming file and field."""
    fields = Fields(file, document)
    completed = fields.integer("completed")
    if not completed:
        raise InputError("no request was answered: nothing to compare", file=file, field="completed", value=0)
    # NaN, which Python's json writes and reads, is refused like any other value that is no number.
    stated = {key: fields.number(key) for key in document if key in THROUGHPUTS or _LATENCY.fullmatch(key)}
    detailed = any(key in document for key in LISTS)
    requests, gaps_s = read_requests(document, file) if detailed else (None, None)
    sim = document.get("sim")
    ours = sim if isinstance(sim, dict) else {}
    return BenchRun(
        name=name,
        file=file,
        source=f"elpase {ours.get('elpase_version', '')}".strip() if ours else "vllm bench serve",
        model=model if isinstance(model := document.get("model_id"), str) else "",
        completed=completed,
        failed=int(_optional(fields, "failed") or 0),
        duration_s=fields.number("duration"),
        input_tokens=int(_optional(fields, "total_input_tokens") or 0),
        output_tokens=int(fields.number("total_output_tokens")),
        stated=stated,
        request_rate=_rate(fields),
        max_concurrency=_cap(fields),
        peak_in_flight=_optional(fields, "max_concurrent_requests"),
        requests=requests,
        gaps_s=gaps_s,
        cautions=tuple(_cautions(ours)),
        facts=_facts(document, ours),
    )


def read_requests(document: Mapping[str, Any], file: Path) -> tuple[pd.DataFrame, NDArray[np.float64] | None]:
    """The answered requests, in order of start, as of `BenchRun.requests`, and all their gaps, None without any.

    Failed ones (no first token) are left out. Raises InputError naming the field.
    """
    lists = {name: _list(document, name, file) for name in LISTS}
    if len({len(values) for values in lists.values()}) > 1:
        raise InputError(f"{', '.join(LISTS)} are of different lengths", file=file)
    # Older versions (before 0.32) have no such list; there a latency is the sum of its parts.
    spans = _list(document, "latencies", file) if "latencies" in document else [None] * len(lists["ttfts"])
    if len(spans) != len(lists["ttfts"]):
        raise InputError(f"latencies and {LISTS[0]} are of different lengths", file=file)
    rows, gaps = [], []
    for prompt, output, ttft, itls, start, span in zip(*lists.values(), spans, strict=True):
        if ttft > 0 and output > 0:
            rows.append((start, ttft, ttft + sum(itls) if span is None else span, prompt, output))
            gaps.append(itls)
    if not rows:
        raise InputError("no request was answered: nothing to compare", file=file)
    table = pd.DataFrame(rows, columns=["start_s", "ttft_s", "latency_s", "input_tokens", "output_tokens"])
    gaps_s = np.array([gap for of_one in gaps for gap in of_one], dtype=np.float64)
    return table.sort_values("start_s", kind="stable", ignore_index=True), gaps_s if len(gaps_s) else None


def _list(document: Mapping[str, Any], name: str, file: Path) -> list[Any]:
    values = document.get(name)
    if not isinstance(values, list):
        raise InputError(file=file, field=name, expected="a list: was it written with --save-detailed?")
    for row, value in enumerate(values):
        flat = value if isinstance(value, list) else [value]
        nested = isinstance(value, list) == (name == "itls")
        numbers = (isinstance(v, int | float) and not isinstance(v, bool) and 0 <= v <= MOST for v in flat)
        if not nested or not all(numbers):
            raise InputError(file=file, field=f"{name}[{row}]", value=value, expected=f"numbers from 0 to {MOST:g}")
    return values


def _optional(fields: Fields, name: str) -> float | None:
    return None if fields.table.get(name) is None else fields.number(name)


def _rate(fields: Fields) -> float | None:
    if fields.table.get("request_rate") in ("inf", math.inf):
        return math.inf
    return _optional(fields, "request_rate")


def _cap(fields: Fields) -> int | None:
    return None if fields.table.get("max_concurrency") is None else fields.integer("max_concurrency", least=1)


def _cautions(sim: Mapping[str, Any]) -> list[str]:
    told = []
    if sim.get("partial"):
        unfinished = sim.get("unfinished")
        of = "some requests"
        if isinstance(unfinished, int) and 0 <= unfinished <= MOST:
            of = counted(unfinished, "request")
        told.append(f"cut short: {of} unfinished")
    load = sim.get("load")
    if isinstance(load, dict) and load.get("ordering_only"):
        told.append("at its capacity: its waiting times are good for ordering settings, not as numbers")
    share = sim.get("extrapolated_share")
    if isinstance(share, float) and 0.005 <= share <= 1:  # what rounds to 1 %
        told.append(f"{percent(share)} of its steps lie outside what the profile was fitted on")
    return told


def _facts(document: Mapping[str, Any], sim: Mapping[str, Any]) -> dict[str, object]:
    """With another version other figures are to be expected; a real result has one only by --metadata vllm_version=."""
    of = {"vLLM": sim.get("vllm_semantics") or document.get("vllm_version")}
    of |= {key: sim.get(key) for key in ("profile", "seed")}
    return {name: value for name, value in of.items() if value is not None}
