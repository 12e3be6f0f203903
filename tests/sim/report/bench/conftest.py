"""A benchmark's result file, as `vllm bench serve --save-detailed` writes it, of a server that nobody needs to run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest


def bench_result(
    requests: int = 200,
    *,
    rate: float = 4.0,
    ttft_s: float = 0.1,
    gap_s: float = 0.02,
    output: int = 50,
    seed: int = 1,
    **more: Any,
) -> dict[str, Any]:
    """Poisson arrivals; every figure by vLLM's formulas. A first token after about `ttft_s`, then one each `gap_s`."""
    rng = np.random.default_rng(seed)
    start_s = np.cumsum(rng.exponential(1 / rate, requests))
    ttfts = ttft_s * rng.uniform(0.5, 1.5, requests)
    outputs = rng.integers(output // 2, 3 * output // 2, requests)
    itls = [(gap_s * rng.uniform(0.8, 1.2, n - 1)).tolist() for n in outputs]
    latencies = ttfts + np.array([sum(gaps) for gaps in itls])
    duration_s = float((start_s + latencies).max())
    tpots = (latencies - ttfts) / (outputs - 1)
    result: dict[str, Any] = {
        "date": "20260101-000000", "backend": "vllm", "model_id": "Qwen/Qwen3-14B", "num_prompts": requests,
        "request_rate": rate, "burstiness": 1.0, "max_concurrency": None, "duration": duration_s,
        "completed": requests, "failed": 0, "total_input_tokens": 100 * requests,
        "total_output_tokens": int(outputs.sum()), "request_throughput": requests / duration_s,
        "output_throughput": int(outputs.sum()) / duration_s,
        "total_token_throughput": (100 * requests + int(outputs.sum())) / duration_s,
        "input_lens": [100] * requests, "output_lens": outputs.tolist(), "ttfts": ttfts.tolist(), "itls": itls,
        "start_times": (81234.5 + start_s).tolist(), "generated_texts": [""] * requests, "errors": [""] * requests,
    }  # fmt: skip
    flat = [gap for gaps in itls for gap in gaps]
    for name, values in (("ttft", ttfts), ("tpot", tpots), ("itl", flat)):
        result[f"mean_{name}_ms"] = 1000 * float(np.mean(values))
        result[f"median_{name}_ms"] = 1000 * float(np.median(values))
        result[f"p99_{name}_ms"] = 1000 * float(np.percentile(values, 99))
    return result | more


@pytest.fixture
def bench_file(tmp_path: Path) -> Callable[..., Path]:
    """`bench_file("name.json", requests=..., rate=..., key=value)`: writes one, returns its path."""

    def write(name: str, **kwargs: Any) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(bench_result(**kwargs)), encoding="utf-8")
        return path

    return write
