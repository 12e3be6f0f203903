"""What to replay of a result of `vllm bench serve --save-detailed`.

Not for reading it (sim.report.bench). The one idea: send times are the workload, unless the client had a cap in flight;
then they carry the server's speed, and only what the client wanted may be replayed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sim.errors import InputError
from sim.report.bench.vllm import read_requests

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd


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
    told, _ = read_requests(document, file)
    names = {"start_s": "send_s", "input_tokens": "prompt_tokens", "latency_s": "e2e_s"}
    table = told.rename(columns=names)[["send_s", "prompt_tokens", "output_tokens", "ttft_s", "e2e_s"]]
    table["send_s"] -= table["send_s"].min()
    cap = document.get("max_concurrency")
    # All at once, behind a cap: when a request was sent is the server's doing.
    table["arrival_s"] = 0.0 if cap is not None and document.get("request_rate") in ("inf", None) else table["send_s"]
    table = table.sort_values(["arrival_s", "send_s"], kind="stable", ignore_index=True)
    return BenchResult(str(document.get("model_id") or ""), table, None if cap is None else int(cap))
