"""Kernels read from tables, against tables whose kernels follow formulas (conftest: kernel_folder)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from calibrate.op_tables import DecodeAttention, OpTables, PromptAttention
from calibrate.samples import KERNELS
from sim.errors import InputError
from sim.specs import model_spec

MODEL = model_spec("qwen3-14b")
"""40 layers, hidden 5120, 40 heads and 8 KV heads of 128, MLP 17408, vocabulary 151936."""

PER_MAC_MS = 1e-9
ATTENTION_MS = 0.02


def linear_ms(tokens: int, sampled: int) -> float:
    """Four GEMMs per layer and an LM head, by hand."""
    layer = 5120 * 7168 + 5120 * 5120 + 5120 * 2 * 17408 + 17408 * 5120
    return PER_MAC_MS * (40 * layer * tokens + 151_936 * 5120 * sampled)


def test_linear_layers(kernel_folder: Path) -> None:
    tables = OpTables(kernel_folder)
    assert tables.linear_ms(MODEL, 1000, 1) == pytest.approx(linear_ms(1000, 1), rel=1e-6)
    assert tables.linear_ms(MODEL, 300, 7) == pytest.approx(linear_ms(300, 7), rel=1e-6), "between the timed sizes"


def test_matrices_of_one_of_four_gpus(kernel_folder: Path) -> None:
    """Megatron's split: QKV and gate-up by columns, the others by rows, the LM head by vocabulary."""
    layer, head = OpTables(kernel_folder).matrices(MODEL, 4)
    assert layer == [(14 * 128, 5120), (5120, 10 * 128), (2 * 4352, 5120), (5120, 4352)]
    assert head == (37_984, 5120)


def test_a_gemm_beyond_the_table(kernel_folder: Path) -> None:
    with pytest.raises(InputError, match=r"GEMM: got '50000 x 1024 x 1024', expected a size that was timed"):
        OpTables(kernel_folder).gemm.ms(50_000, 1024, 1024)


def test_what_is_known_of_the_tables(kernel_folder: Path) -> None:
    tables = OpTables(kernel_folder)
    assert (tables.device, tables.engine_version) == ("NVIDIA H100 80GB HBM3", "0.24.0")


def test_prompts(kernel_folder: Path) -> None:
    samples = OpTables(kernel_folder).samples(MODEL)
    own = samples.regime == "kernels, prompts"
    columns = samples.num_tokens[own], samples.num_seqs[own], samples.chunk_pairs[own], samples.seconds[own]
    found = {(tokens, seqs): (pairs, seconds) for tokens, seqs, pairs, seconds in zip(*columns, strict=True)}
    assert set(found) == {(512, 1), (1000, 1), (4096, 1), (512, 4), (4096, 4), (16_384, 4)}
    pairs, seconds = found[16_384, 4]
    assert pairs == 4 * 4096**2 / 2
    assert seconds == pytest.approx((linear_ms(16_384, 4) + 40 * ATTENTION_MS) / 1e3, rel=1e-6)
    assert set(samples.state) == {KERNELS}


def test_decodes_leave_out_what_a_timing_loop_finds_in_the_cache(kernel_folder: Path) -> None:
    """One layer's KV is 4 KiB per token: the 4 MB of 1,000 tokens lie in the L2 of 50 MB, 246 MB do not."""
    samples = OpTables(kernel_folder).samples(MODEL)
    own = samples.regime == "kernels, decode"
    contexts = sorted(zip(samples.num_tokens[own], samples.decode_context[own], strict=True))
    assert contexts == [(1, 1), (1, 60_000), (100, 100), (100, 100_000), (100, 6_000_000)]


def test_a_model_that_was_not_timed(kernel_folder: Path) -> None:
    with pytest.raises(InputError, match=r"context_attention_perf.parquet: head_dim: got 64, expected kernels timed"):
        OpTables(kernel_folder).samples(model_spec("llama-3.2-1b"))
    with pytest.raises(InputError, match=r"num_heads: got '64 with 8 KV heads', expected heads that were timed"):
        OpTables(kernel_folder).samples(model_spec("llama-3.1-70b"))
    with pytest.raises(InputError, match=r"num_gpus: got 8, expected a number of GPUs that was timed: 2, 4"):
        OpTables(kernel_folder).allreduce_ms(8, 1e3)


@pytest.mark.parametrize(("size", "expected_ms"), [(1e3, 0.00501), (1e6, 0.015), (1e9, 10.01), (4e9, 40.04)])
def test_all_reduce(kernel_folder: Path, size: float, expected_ms: float) -> None:
    """vLLM's kernel (5 us and 10 us per MB) up to 8 MiB, NCCL's (10 us) above, beyond the table in proportion."""
    assert OpTables(kernel_folder).allreduce_ms(2, size) == pytest.approx(expected_ms, rel=1e-6)
    assert OpTables(kernel_folder).allreduce_ms(1, size) == 0.0


def test_heads_that_were_not_timed(kernel_folder: Path) -> None:
    """20 heads with 4 KV heads are twice 10 with 2: a batch twice as large. 32 with 8 read what 40 with 8 read, and
    compute 32 / 40 of it."""
    tables = OpTables(kernel_folder)
    halves = replace(MODEL, num_heads=20, num_kv_heads=4)
    assert sorted(set(tables.attention("generation", halves)["batch_size"])) == [50]
    narrower = replace(MODEL, num_heads=32)
    for kind, share in (("context", 0.8), ("generation", 1.0)):
        ratio = tables.attention(kind, narrower)["latency"] / tables.attention(kind, MODEL)["latency"]
        assert ratio.to_numpy() == pytest.approx(share)


def decode_table(cached_ms: float | None = None) -> DecodeAttention:
    """50 us to launch and 1 ms per GB: 1 and 10 rows of 1,000 and 100,000 tokens of 4 kB; 4 MB and 40 MB can be in
    the L2 cache."""
    rows = []
    for batch in (1, 10):
        for step in (1, 1000, 100_000):
            read = batch * step * 4000
            cached = cached_ms is not None and 1e6 < read < 50e6
            rows.append((batch, step, cached_ms if cached else 0.05 + read * 1e-9))
    return DecodeAttention.of(pd.DataFrame(rows, columns=["batch_size", "step", "latency"]), 4000)


def test_decode_attention_at_and_beyond_the_grid() -> None:
    attention = decode_table()
    assert attention.ms(10, 1_000_000) == pytest.approx(4.05)
    assert attention.ms(10, 2_000_000) == pytest.approx(8.1), "twice the longest context takes twice as long"
    assert attention.ms(20, 2_000_000) == pytest.approx(8.1), "twice the largest batch too"
    assert attention.ms(1, 0) == pytest.approx(0.05, rel=1e-3)


def test_a_cache_in_l2_is_read_from_memory_in_a_server() -> None:
    """Launch, and its bytes at the speed of the largest caches: 4.05 ms for 4 GB."""
    expected = 0.05 + 0.04 * 4.05 / 4
    assert decode_table(cached_ms=0.051).ms(10, 10_000) == pytest.approx(expected, rel=1e-3)


def test_what_did_not_fit_the_memory_takes_twice_half_of_it() -> None:
    rows = [(1, 1, 0.1), (1, 1000, 1.0), (2, 1, 0.1)]
    attention = DecodeAttention.of(pd.DataFrame(rows, columns=["batch_size", "step", "latency"]), 1e6)
    assert attention.ms(2, 2000) == pytest.approx(2.0)


def test_a_chunk_takes_its_share_of_the_whole_prompt() -> None:
    """Times with the square of the length: the second half has 3 of 4 parts of the pairs."""
    lengths = np.array([64.0, 1024.0, 4096.0])
    attention = PromptAttention(lengths, 1e-6 * lengths**2)
    assert attention.ms(4096, 0) == pytest.approx(16.777, rel=1e-3)
    assert attention.ms(2048, 2048) == pytest.approx(0.75 * 16.777, rel=1e-3)
    assert attention.ms(1, 0) == pytest.approx(attention.floor)
    assert attention.whole(8192) == pytest.approx(4 * 16.777, rel=1e-3), "beyond the longest by its pairs"


@pytest.mark.parametrize("file", ["gemm_perf.parquet", "context_attention_perf.parquet", "nccl_perf.parquet"])
def test_broken_tables(kernel_folder: Path, file: str) -> None:
    def use() -> None:
        tables = OpTables(kernel_folder)
        tables.prompt_attention(MODEL)
        tables.allreduce_ms(2, 1e9)

    path = kernel_folder / file
    pd.read_parquet(path).drop(columns="latency").to_parquet(path)
    with pytest.raises(InputError, match=rf"{file}: latency: missing column"):
        use()
    path.write_text("not parquet", encoding="utf-8")
    with pytest.raises(InputError, match=rf"{file}: not a Parquet table"):
        use()
    path.unlink()
    with pytest.raises(OSError, match=file):
        use()
