"""Whole steps from kernels: every part by hand, from tables that follow formulas (conftest: kernel_folder)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from calibrate import compose
from calibrate.compose import TableSteps, table_samples
from calibrate.grid import GridLimits, GridStep
from calibrate.op_tables import OpTables
from calibrate.samples import Origin
from sim.latency.graphs import Graphs, capture_sizes
from sim.specs import gpu_spec, model_spec

MODEL = model_spec("qwen3-14b")
GPU = gpu_spec("h100")
LAYERS = 40


@pytest.fixture
def steps(kernel_folder: Path) -> TableSteps:
    return TableSteps(OpTables(kernel_folder), GPU, MODEL)


def test_a_decode_step_is_the_sum_of_its_kernels(steps: TableSteps) -> None:
    """100 rows with 1,000 tokens each: 4 GB of KV over the layers; memory-bound, so at any clocks."""
    step = GridStep((), (1000,) * 100)
    linear = OpTables(steps.tables.folder).linear_ms(MODEL, 100, 100)
    attention = LAYERS * (0.02 + 100_000 * 4096 * 1e-9)
    total = 1e3 * steps.seconds(step, 100)
    assert total == pytest.approx(linear + attention + steps.elementwise_ms(100) + steps.sampler_ms(100), rel=2e-3)
    assert steps.exchange_ms(100, 100) == 0.0


def test_arithmetic_is_slower_under_load(steps: TableSteps) -> None:
    """4,096 tokens are bound by arithmetic, one token is not."""
    tables = steps.tables
    assert steps.linear_ms(4096, 1) == pytest.approx(1.15 * tables.linear_ms(MODEL, 4096, 1), rel=2e-3)
    assert steps.linear_ms(1, 1) == pytest.approx(tables.linear_ms(MODEL, 1, 1), rel=1e-4)
    assert replace(steps, clocks=1.0).linear_ms(4096, 1) == pytest.approx(tables.linear_ms(MODEL, 4096, 1), rel=1e-9)


def test_decodes_beside_a_prompt(steps: TableSteps) -> None:
    """Their reads take MIXED_ATTENTION times as long, each row gets a tile, and nothing is launched twice."""
    chunk = ((1024, 0),)
    alone = steps.attention_ms((), (1000,) * 100)
    together = steps.attention_ms(chunk, (1000,) * 100)
    reads = alone - LAYERS * 0.02
    tiles = LAYERS * compose.MIXED_TILE_MS * 8 * 100
    assert together - steps.attention_ms(chunk, ()) == pytest.approx(compose.MIXED_ATTENTION * reads + tiles, rel=1e-3)


def test_padding_computes_and_does_not_attend(steps: TableSteps) -> None:
    step = GridStep((), (1000,) * 100)
    more = 1e3 * (steps.seconds(step, 104) - steps.seconds(step, 100))
    assert more == pytest.approx(steps.linear_ms(104, 100) - steps.linear_ms(100, 100), rel=1e-6)


def test_elementwise_kernels_are_launches_or_bytes(steps: TableSteps) -> None:
    assert steps.elementwise_ms(1) == pytest.approx(LAYERS * compose.ELEMENTWISE_LAYER_MS)
    elements = 8 * 5120 + (2 * 40 + 6 * 8) * 128 + 3 * 17408
    by_bytes = LAYERS * 0.67 * 2 * elements * 8192 / GPU.bandwidth_bytes_per_s * 1e3
    assert steps.elementwise_ms(8192) == pytest.approx(by_bytes)


def test_four_gpus_share_the_work_and_exchange(steps: TableSteps) -> None:
    """A quarter of every GEMM, of the KV cache and of the heads; 81 all-reduces of 5 us and 10 us per MB."""
    four = replace(steps, tp=4)
    assert four.linear_ms(1000, 1) == pytest.approx(steps.linear_ms(1000, 1) / 4, rel=0.02)
    reads = steps.attention_ms((), (1000,) * 100) - LAYERS * 0.02
    assert four.attention_ms((), (1000,) * 100) - LAYERS * 0.02 == pytest.approx(reads / 4, rel=2e-3)
    message_mb = 98 * 5120 * 2 / 1e6  # 1.0035, next to a size that was timed
    logits = four.tables.allreduce_ms(4, 98 * 151_936)
    assert four.exchange_ms(98, 98) == pytest.approx(81 * (0.005 + 0.01 * message_mb) + logits, rel=2e-3)


def test_samples_stay_within_the_limits_and_say_what_served_them(steps: TableSteps) -> None:
    graphs = Graphs(capture_sizes(2048, 64), mixed=True)
    limits = GridLimits(max_tokens=2048, max_seqs=64, max_context=4096, kv_tokens=50_000, max_model_len=8192)
    origin = Origin(device="NVIDIA H100 80GB HBM3", model="qwen3-14b")
    samples = table_samples(steps, limits, graphs, 120, origin)
    assert len(samples) == 120
    assert samples.origins == (origin,)
    assert set(samples.regime) == {"decode", "prompt", "mixed"}
    assert samples.num_tokens.max() <= 2048
    assert samples.num_seqs.max() <= 64
    assert samples.decode_context.max() <= 50_000
    decodes = samples.regime == "decode"
    assert set(samples.graph[decodes]) == {"full"}
    expected = [graphs.padded(int(n), 0) for n in samples.num_tokens[decodes]]
    assert samples.padded_tokens[decodes].tolist() == expected
    assert set(samples.graph[samples.num_tokens > 128]) == {"none"}


def test_what_needs_no_fit(steps: TableSteps) -> None:
    """A step of one token less its GEMMs; and bytes, and all-reduces with more GPUs, for every further token."""
    one = 1e3 * steps.seconds(GridStep((), (1,)), 1) - steps.linear_ms(1, 1)
    assert 1e3 * steps.known_terms()["step_s"] == pytest.approx(one)
    elements = 8 * 5120 + (2 * 40 + 6 * 8) * 128 + 3 * 17408
    bytes_s = LAYERS * 0.67 * 2 * elements / GPU.bandwidth_bytes_per_s
    assert steps.known_terms()["elementwise_s"] == pytest.approx(bytes_s, rel=0.01)
    four = replace(steps, tp=4).known_terms()["elementwise_s"]
    assert four > 81 * 5120 * 2 * 1e-8 / 1e3 > bytes_s / 4
