"""Runs that were built to have one thing wrong with them, each simulated once."""

from __future__ import annotations

import functools
import warnings
from typing import Any, NamedTuple

import numpy as np
import pytest

from sim.core.config import SchedulerConfig
from sim.experiment import Result, simulate
from workloads import Request


class Case(NamedTuple):
    """`streams`: (requests per second, prompt, output) each; an infinite rate: all at once."""

    seconds: float
    streams: list[tuple[float, int, int]]
    settings: dict[str, Any]
    max_in_flight: int | None = None


CASES = {
    # 25 blocks each, 1,000 there: 40 fit, and 24/s x 200 tokens x 15 ms = 72 want to run.
    "kv_starved": Case(40, [(24, 200, 200)], {"num_gpu_blocks": 1001, "max_num_seqs": 256}),
    # 50 blocks each, 20 fit; 6.5/s x 200 tokens x 13 ms = 17 want to run on average, more at times.
    "kv_blocks": Case(60, [(6.5, 600, 200)], {"num_gpu_blocks": 1001}),
    "mixed lengths": Case(60, [(4, 100, 200), (4, 900, 200)], {"num_gpu_blocks": 1001, "max_num_seqs": 256}),
    # Some 100 to 200 decodes leave few of 256 tokens to prompts.
    "budget_too_small": Case(60, [(9, 600, 1000)], {"max_num_batched_tokens": 256, "max_num_seqs": 256}),
    # A prompt of 8,000 tokens takes 0.3 s, beside some 15 decodes of 12 ms.
    "budget_too_large": Case(60, [(5, 100, 200), (0.5, 8000, 20)], {}),
    "healthy": Case(60, [(5, 100, 100)], {}),
    # 8/s x 200 tokens x 12.5 ms = 20 want to run.
    "max_num_seqs": Case(60, [(8, 100, 200)], {"max_num_seqs": 12}),
    "max_num_active_seqs": Case(60, [(8, 100, 200)], {"max_num_active_seqs": 12}),
    "max_concurrency": Case(60, [(8, 100, 200)], {}, 12),
    # 48,000 prompt tokens/s; this GPU computes 30,000.
    "overload": Case(30, [(12, 4000, 20)], {}),
    # Twice what a server of 18,038 blocks takes, decodes and prompts together.
    "overload, full cache": Case(60, [(34, 1000, 130)], {}),
    # 100 tokens are let in, 1,100 each are 69 blocks: 14 of 64 fit.
    "thrash": Case(
        0, [(np.inf, 100, 1000)] * 80, {"num_gpu_blocks": 1001, "max_num_seqs": 64, "enable_prefix_caching": False}
    ),
    # 1,250 blocks a prompt: two fit into 3,000, of the third only a first chunk.
    "admission_gate": Case(
        60, [(0.5, 20_000, 400)], {"num_gpu_blocks": 3001, "max_num_batched_tokens": 512, "max_num_seqs": 64}
    ),
    "watermark": Case(60, [(8, 500, 200)], {"num_gpu_blocks": 2001, "watermark": 0.6}),
    "threshold": Case(
        60, [(2, 100, 100), (0.3, 16_000, 20)], {"long_prefill_token_threshold": 256, "max_num_batched_tokens": 2048}
    ),
    "unchunked": Case(
        60,
        [(4, 4500, 20)],
        {"enable_chunked_prefill": False, "max_num_batched_tokens": 8192, "max_model_len": 8192},
    ),
}


def requests_of(case: Case) -> list[Request]:
    """Poisson arrivals of each stream, in one order."""
    rng = np.random.default_rng(11)
    rows: list[tuple[float, int, int]] = []
    for rate, prompt, output in case.streams:
        count = 1 if np.isinf(rate) else rng.poisson(rate * case.seconds)
        rows += [(float(at), prompt, output) for at in rng.uniform(0, case.seconds, count)]
    return [Request(f"r{i}", *row) for i, row in enumerate(sorted(rows))]


def run_case(case: Case, max_in_flight: int | None = None, **changes: Any) -> Result:
    settings = {"max_num_batched_tokens": 8192, "max_num_seqs": 1024, "max_model_len": 40_960, "num_gpu_blocks": 18_038}
    config = SchedulerConfig(**(settings | case.settings | changes), async_scheduling=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return simulate(requests_of(case), config, max_in_flight=max_in_flight or case.max_in_flight)


@pytest.fixture(scope="session")
def run_of():
    """`run_of("thrash", watermark=0.1)`: a case's result, with settings of one's own on top."""

    @functools.cache
    def make(name: str, **changes: Any) -> Result:
        return run_case(CASES[name], **changes)

    return make
