"""A result of `vllm bench serve --save-detailed`: every request's lengths, times and gaps in one JSON object.

Not for writing such results (sim.report.summary). The one idea: send times are the workload, unless the client had a
cap in flight; then they carry the server's speed, and only what the client wanted may be replayed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from sim.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

_LISTS = ("input_lens", "output_lens", "ttfts", "itls", "start_times")


@dataclass(frozen=True, slots=True)
class BenchResult:
    """One run of the benchmark."""

    model: str
    requests: pd.DataFrame
    """As of `requests_csv.read_measured`."""
    max_in_flight: int | None


def parse(document: object, file: Path) -> BenchResult:
    """Of the parsed JSON. Failed requests (no first token) are left out. Raises InputError naming the field."""
    if not isinstance(document, dict):
        raise InputError("not an object, so no result of vllm bench serve", file=file)
    lists = {name: _list(document, name, file) for name in _LISTS}
    sizes = {len(values) for values in lists.values()}
    if len(sizes) > 1:
        raise InputError(f"{', '.join(_LISTS)} are of different lengths", file=file)
    rows = [
        (start, prompt, output, ttft, ttft + sum(gaps))
        for prompt, output, ttft, gaps, start in zip(*(lists[name] for name in _LISTS), strict=True)
        if ttft > 0 and output > 0
    ]
    if not rows:
        raise InputError("no request was answered", file=file)
    table = pd.DataFrame(rows, columns=["send_s", "prompt_tokens", "output_tokens", "ttft_s", "e2e_s"])
    table["send_s"] -= table["send_s"].min()
    cap = document.get("max_concurrency")
    # All at once, behind a cap: when a request was sent is the server's doing.
    table["arrival_s"] = 0.0 if cap is not None and document.get("request_rate") in ("inf", None) else table["send_s"]
    table = table.sort_values(["arrival_s", "send_s"], kind="stable", ignore_index=True)
    return BenchResult(str(document.get("model_id") or ""), table, None if cap is None else int(cap))


def _list(document: dict[str, Any], name: str, file: Path) -> list[Any]:
    values = document.get(name)
    if not isinstance(values, list):
        raise InputError(file=file, field=name, expected="a list: was it written with --save-detailed?")
    wanted: type | tuple[type, ...] = list if name == "itls" else (int, float)
    for row, value in enumerate(values):
        flat = value if isinstance(value, list) else [value]
        if not isinstance(value, wanted) or not all(isinstance(v, int | float) and v >= 0 for v in flat):
            raise InputError(file=file, field=f"{name}[{row}]", value=value, expected="numbers >= 0")
    return values
