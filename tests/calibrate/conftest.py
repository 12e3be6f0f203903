"""Samples of a law that the tests know, as the torch harness would time them on an H200."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from calibrate.make_profile import padded
from calibrate.samples import Origin, Samples, TimedStep
from sim.latency import FusedLaw, Graphs, capture_sizes

H200_LAW = FusedLaw(
    step_s=8e-4, row_s=8e-6, weight_read_s=4.2e-3, batch_slowdown=0.03, token_s=2.4e-5, sharpness=3.0, context_s=3.3e-8,
    mixed_context_s=1e-8, pair_s=9e-10, tile_waste=0.4, eager_s=1.5e-3, host_step_s=1.2e-3, host_row_s=4e-6,
    graphs=Graphs(capture_sizes(8192, 512)),
)  # fmt: skip

ORIGIN = Origin(
    device="NVIDIA H200", model="llama-3.1-8b", dtype="bfloat16", engine="torch", engine_version="2.13.0",
    driver="570.1", versions={"torch": "2.13.0"}, date="2026-11-29T12:00:00+00:00",
    command="elpase calibrate torch --model llama-3.1-8b", notes={"attention": "flash"},
)  # fmt: skip


@pytest.fixture
def h200_law() -> FusedLaw:
    return H200_LAW


@pytest.fixture
def h200_samples() -> Callable[..., Samples]:
    """Makes `n` steps: decodes, prompts and mixtures on a grid, with noise."""

    def make(n: int = 240, *, noise: float = 0.02, origin: Origin = ORIGIN) -> Samples:
        rng = np.random.default_rng(n)
        rows = []
        for i in range(n):
            decodes = 0 if i % 3 == 0 else int(2 ** rng.uniform(0, 9.2))
            chunks = 0 if i % 3 == 1 else int(rng.integers(1, 4))
            chunk, before = int(2 ** rng.uniform(1, 12)), int(rng.choice([0, 0, 512, 4096, 16384]))
            context = int(2 ** rng.uniform(7, 13))
            rows.append(TimedStep.of([(chunk, before)] * chunks, [context] * decodes, 1.0, source="torch", repeats=5))
        made = padded(Samples.of_steps(rows, origin), H200_LAW.graphs)
        seconds = H200_LAW.device_s(
            made.padded_tokens,
            made.num_seqs,
            made.decode_context,
            made.mixed_context,
            made.chunk_pairs,
            (made.graph != "full").astype(float),
        )
        host = H200_LAW.host_step_s + H200_LAW.host_row_s * made.num_seqs
        scatter = np.exp(rng.normal(0, noise, (2, n)))
        return replace(made, seconds=seconds * scatter[0], host_seconds=host * scatter[1])

    return make


# Kernel tables that follow formulas

PER_MAC_MS = 1e-9
ATTENTION_MS = 0.02
MODEL_HEADS = ((40, 8), (10, 2))
"""Heads and KV heads of qwen3-14b on one GPU, and on each of four."""


@pytest.fixture
def kernel_folder(tmp_path: Path) -> Path:
    """AIConfigurator's tables of an "H100": GEMMs that take m * n * k * 1e-9 ms; every attention call takes 20 us, and
    what is read from the KV cache, of a window 128 tokens, 1 ms per GB on top for decodes; an all-reduce takes 5 us and
    10 us per MB; 16 experts take 100 us and 10 us per token, or their share of it on each of 2 GPUs."""
    folder = tmp_path / "h100_sxm"
    folder.mkdir()
    said = {"device": "NVIDIA H100 80GB HBM3", "version": "0.24.0"}
    sizes = [64, 1024, 8192, 65536]
    gemms = [
        ("bfloat16", m, n, k, m * n * k * PER_MAC_MS)
        for m, n, k in product([1, 100, 512, 1000, 4096, 40_000], sizes, sizes)
    ]
    gemms += [("fp8", m, n, k, 1e9) for _, m, n, k, _ in gemms]
    pd.DataFrame(gemms, columns=["gemm_dtype", "m", "n", "k", "latency"]).assign(**said).to_parquet(
        folder / "gemm_perf.parquet"
    )
    columns = ["batch_size", "isl", "step", "num_heads", "num_key_value_heads", "head_dim", "kv_cache_dtype"]
    columns += ["window_size", "latency"]
    for kind, batches, lengths, steps in (
        ("context", [1, 4], [128, 1024, 4096], [0]),
        ("generation", [1, 100], [1], [1, 1000, 60_000]),
    ):
        rows = [
            (b, n, step, heads, kv, 128, dtype, window, ATTENTION_MS + b * read * kv * 512 * 1e-9 if fits else 1e9)
            for b, n, step, (heads, kv) in product(batches, lengths, steps, [*MODEL_HEADS, (40, 4)])
            for dtype, fits in (("bfloat16", kv != 4), ("fp8", False))
            for window, read in ((0, step), (128, min(step, 128)))
        ]
        pd.DataFrame(rows, columns=columns).to_parquet(folder / f"{kind}_attention_perf.parquet")
    experts = [
        (16, 1024, dtype, tp, ep, spread, n, "marlin", (0.1 + 0.01 * n) / tp if wanted else 1e9)
        for n, tp, ep, spread in product([1, 100, 1000], [1, 2], [1, 2], ["balanced", "power_law_1.2"])
        for dtype in ("bfloat16", "fp8")
        for wanted in [dtype == "bfloat16" and ep == 1 and spread == "power_law_1.2"]
    ]
    columns = ["num_experts", "inter_size", "moe_dtype", "moe_tp_size", "moe_ep_size", "distribution", "num_tokens"]
    pd.DataFrame(experts, columns=[*columns, "kernel_source", "latency"]).assign(hidden_size=5120, topk=2).to_parquet(
        folder / "moe_perf.parquet"
    )
    messages = [1e3, 1e6, 1e9]
    own = [(b, gpus, m, 0.005 + m * 1e-8) for b, gpus, m in product(["vllm_graph", "vllm_eager"], [2, 4], messages)]
    pd.DataFrame(own, columns=["backend", "num_gpus", "message_size", "latency"]).to_parquet(
        folder / "custom_allreduce_perf.parquet"
    )
    nccl = [
        (op, dtype, gpus, m, 0.01 + m * 1e-8)
        for op, dtype, gpus, m in product(["all_reduce", "all_gather"], ["half", "int8"], [2, 4], messages)
    ]
    pd.DataFrame(nccl, columns=["op_name", "nccl_dtype", "num_gpus", "message_size", "latency"]).to_parquet(
        folder / "nccl_perf.parquet"
    )
    return folder
