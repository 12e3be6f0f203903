"""Kernels of experts, and steps of models with them, from tables that follow formulas (conftest: kernel_folder)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from calibrate.compose import TableSteps
from calibrate.expert_tables import FILE
from calibrate.op_tables import OpTables, dense_width
from sim.errors import InputError
from sim.specs import ExpertSpec, gpu_spec, model_spec

DENSE = model_spec("qwen3-14b")
EXPERTS = ExpertSpec(
    num_experts=16,
    num_experts_per_tok=2,
    moe_intermediate_size=1024,
    shared_expert_intermediate_size=0,
    num_layers=40,
    bits_per_weight=16,
)
MODEL = replace(DENSE, mlp_width=2048, experts=EXPERTS)
LAYERS = 40


def steps(folder: Path, **changed: object) -> TableSteps:
    return TableSteps(OpTables(folder), gpu_spec("h100"), replace(MODEL, **changed))


@pytest.mark.parametrize(
    ("tokens", "tp", "expected_ms"),
    [(1, 1, 0.11), (1000, 1, 10.1), (100, 1, 1.1), (100, 2, 0.55), (10_000, 1, 101.0)],
)
def test_experts_take_what_was_timed(kernel_folder: Path, tokens: int, tp: int, expected_ms: float) -> None:
    """Those of the spread that is read, and beyond the last number of tokens in proportion."""
    assert OpTables(kernel_folder).experts(MODEL, tp).ms(tokens) == pytest.approx(expected_ms)


def test_a_layer_is_attention_router_and_experts(kernel_folder: Path) -> None:
    """QKV and output projection split between GPUs, the router whole on each; 16 outputs cost as the narrowest, 64."""
    tables = OpTables(kernel_folder)
    layer, _ = tables.matrices(MODEL, 4)
    assert layer == [(14 * 128, 5120), (5120, 10 * 128), (16, 5120)]
    macs = 5120 * 7168 + 5120 * 5120 + 64 * 5120
    expected = LAYERS * (macs * 100 * 1e-9 + 1.1) + 151_936 * 5120 * 100 * 1e-9
    assert tables.linear_ms(MODEL, 100, 100) == pytest.approx(expected, rel=1e-6)
    shared = replace(MODEL, experts=replace(EXPERTS, shared_expert_intermediate_size=512))
    assert tables.matrices(shared, 4)[0] == [*layer, (256, 5120), (5120, 128)]
    assert (dense_width(DENSE), dense_width(MODEL), dense_width(shared)) == (17_408, 0, 512)


def test_experts_are_slower_under_load_once_arithmetic_bounds_them(kernel_folder: Path) -> None:
    """Many tokens per expert; one token reads 2 experts of 31 MB and computes next to nothing."""
    made, unhurried = steps(kernel_folder), replace(steps(kernel_folder), clocks=1.0)
    for tokens, ratio in ((1, 1.0), (100_000, 1.15)):
        assert made._experts_ms(tokens) / unhurried._experts_ms(tokens) == pytest.approx(ratio, rel=1e-3)


def test_elementwise_kernels_leave_the_experts_activation_to_their_own(kernel_folder: Path) -> None:
    elements = 8 * 5120 + (2 * 40 + 6 * 8) * 128
    by_bytes = LAYERS * 0.67 * 2 * elements * 8192 / gpu_spec("h100").bandwidth_bytes_per_s * 1e3
    assert steps(kernel_folder).elementwise_ms(8192) == pytest.approx(max(by_bytes, LAYERS * 0.009))


def test_windowed_layers_read_their_window(kernel_folder: Path) -> None:
    """100 rows of 60,000 tokens: 10 layers read them all, 30 read 128 of each."""
    made = steps(kernel_folder, window=128, num_window_layers=30)
    token_ms = 100 * 4096 * 1e-9
    expected = 10 * (0.02 + 60_000 * token_ms) + 30 * (0.02 + 128 * token_ms)
    assert made.attention_ms((), (60_000,) * 100) == pytest.approx(expected, rel=2e-3)


def test_a_window_makes_later_chunks_of_a_prompt_alike(kernel_folder: Path) -> None:
    """Whole prompts of 1,024 tokens: the second half has 512 x 128 of the 128 x 64 + 896 x 128 pairs."""
    prompt = OpTables(kernel_folder).prompt_attention(MODEL, 1, 128)
    slow = replace(prompt, times=prompt.times * prompt.lengths)
    assert slow.ms(512, 512) / slow.whole(1024) == pytest.approx(512 * 128 / (128 * 64 + 896 * 128))


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"num_experts": 8}, "moe_perf.parquet: num_experts: got 8, expected kernels timed for it"),
        ({"num_experts_per_tok": 4}, "moe_perf.parquet: topk: got 4"),
        ({"quantization": "mxfp4"}, "moe_perf.parquet: moe_dtype: got 'w4a16_mxfp4'"),
        ({"quantization": "awq"}, "quant_method: got 'awq', expected mxfp4, or weights without quantization"),
        ({"num_layers": 39}, "layers with experts: got 39, expected experts in all 40 layers"),
    ],
)
def test_experts_that_were_not_timed(kernel_folder: Path, changed: dict[str, object], told: str) -> None:
    with pytest.raises(InputError, match=told):
        OpTables(kernel_folder).experts(replace(MODEL, experts=replace(EXPERTS, **changed)))


def test_tables_without_experts(kernel_folder: Path) -> None:
    file = kernel_folder / FILE
    pd.read_parquet(file).drop(columns="distribution").to_parquet(file)
    with pytest.raises(InputError, match=r"moe_perf.parquet: distribution: missing column"):
        OpTables(kernel_folder).experts(MODEL)
    file.unlink()
    with pytest.raises(OSError, match=FILE):
        OpTables(kernel_folder).experts(MODEL)
