"""Steps composed from kernel tables, against tables whose kernels follow a formula."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pandas as pd
import pytest

from calibrate.op_tables import OpTables
from calibrate.samples import KERNELS
from sim.errors import InputError
from sim.specs import model_spec

MODEL = model_spec("qwen3-14b")
"""40 layers, hidden 5120, 40 heads and 8 KV heads of 128, MLP 17408, vocabulary 151936."""

COLUMNS = ["batch_size", "isl", "step", "num_heads", "num_key_value_heads", "head_dim", "kv_cache_dtype"]
COLUMNS += ["window_size", "latency"]

PER_MAC_MS = 1e-9
ATTENTION_MS = 0.02


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """GEMMs that take m * n * k nanoseconds / 1000, attention kernels that all take 20 microseconds."""
    sizes = [64, 1024, 8192, 65536]
    gemms = [
        ("bfloat16", m, n, k, m * n * k * PER_MAC_MS)
        for m, n, k in product([1, 100, 512, 1000, 4096, 40_000], sizes, sizes)
    ]
    gemms += [("fp8", m, n, k, 1e9) for _, m, n, k, _ in gemms]
    pd.DataFrame(gemms, columns=["gemm_dtype", "m", "n", "k", "latency"]).to_parquet(tmp_path / "gemm_perf.parquet")
    for kind, batches, lengths, steps in (
        ("context", [1, 4], [128, 1024, 4096], [0]),
        ("generation", [1, 100], [1], [1, 1000, 60_000]),
    ):
        rows = [
            (batch, length, step, 40, kv_heads, 128, "bfloat16", 0, ATTENTION_MS if kv_heads == 8 else 1e9)
            for batch, length, step, kv_heads in product(batches, lengths, steps, [4, 8])
        ]
        pd.DataFrame(rows, columns=COLUMNS).to_parquet(tmp_path / f"{kind}_attention_perf.parquet")
    return tmp_path


def linear_ms(tokens: int, sampled: int) -> float:
    """Four GEMMs per layer and an LM head, by hand."""
    layer = 5120 * 7168 + 5120 * 5120 + 5120 * 2 * 17408 + 17408 * 5120
    return PER_MAC_MS * (40 * layer * tokens + 151_936 * 5120 * sampled)


def test_linear_layers(folder: Path) -> None:
    tables = OpTables(folder)
    assert tables.linear_ms(MODEL, 1000, 1) == pytest.approx(linear_ms(1000, 1), rel=1e-6)
    assert tables.linear_ms(MODEL, 300, 7) == pytest.approx(linear_ms(300, 7), rel=1e-6), "between the timed sizes"


def test_prompts(folder: Path) -> None:
    samples = OpTables(folder).samples(MODEL)
    own = samples.regime == "kernels, prompts"
    found = {
        (tokens, seqs): (pairs, seconds)
        for tokens, seqs, pairs, seconds in zip(
            samples.num_tokens[own],
            samples.num_seqs[own],
            samples.chunk_pairs[own],
            samples.seconds[own],
            strict=True,
        )
    }
    assert set(found) == {(512, 1), (1000, 1), (4096, 1), (512, 4), (4096, 4), (16_384, 4)}
    pairs, seconds = found[16_384, 4]
    assert pairs == 4 * 4096**2 / 2
    assert seconds == pytest.approx((linear_ms(16_384, 4) + 40 * ATTENTION_MS) / 1e3, rel=1e-6)
    assert set(samples.state) == {KERNELS}


def test_decodes_leave_out_what_a_timing_loop_finds_in_the_cache(folder: Path) -> None:
    """One layer's KV is 4 KiB per token: the 4 MB of 1,000 tokens lie in the L2 of 50 MB, 246 MB do not."""
    samples = OpTables(folder).samples(MODEL)
    own = samples.regime == "kernels, decode"
    contexts = sorted(zip(samples.num_tokens[own], samples.decode_context[own], strict=True))
    assert contexts == [(1, 1), (1, 60_000), (100, 100), (100, 100_000), (100, 6_000_000)]


def test_a_model_that_was_not_timed(folder: Path) -> None:
    with pytest.raises(InputError, match=r"context_attention_perf.parquet: num_heads: got 32, expected kernels timed"):
        OpTables(folder).samples(model_spec("llama-3.1-8b"))
