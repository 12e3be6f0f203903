"""What coefficients imply, against sizes added up by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from calibrate.physics import embedding_tables, layer_parameters, rates, read_bytes
from sim.latency import FusedLaw
from sim.specs import gpu_spec, model_spec

LLAMA_8B = model_spec("llama-3.1-8b")
"""32 layers, hidden 4096, 32 heads and 8 KV heads of 128, MLP 14336, vocabulary 128256, two embeddings."""
LAYERS = 32 * (4096 * 128 * (32 + 32 + 8 + 8) + 3 * 4096 * 14336)
EMBEDDING = 128256 * 4096

LAW = FusedLaw(
    step_s=0, row_s=0, weight_read_s=5e-3, batch_slowdown=0, token_s=2e-5, sharpness=3, context_s=4e-8,
    mixed_context_s=4e-8, pair_s=1e-9,
)  # fmt: skip


def test_sizes() -> None:
    assert embedding_tables(LLAMA_8B) == 2
    assert layer_parameters(LLAMA_8B) == pytest.approx(LAYERS, rel=1e-3)
    assert read_bytes(LLAMA_8B) == pytest.approx(2 * (LAYERS + EMBEDDING), rel=1e-3), "the LM head is read, no input"


def test_rates_beside_the_limits() -> None:
    told = {rate.coefficient: rate for rate in rates(LAW, LLAMA_8B, gpu_spec("h200"))}
    assert told["weight_read_s"].per_s == pytest.approx(2 * (LAYERS + EMBEDDING) / 5e-3, rel=1e-3)
    assert told["weight_read_s"].share == pytest.approx(told["weight_read_s"].per_s / 4.8e12)
    assert told["token_s"].per_s == pytest.approx(2 * LAYERS / 2e-5, rel=1e-3)
    assert told["context_s"].per_s == pytest.approx(2 * 32 * 8 * 128 * 2 / 4e-8)
    assert told["context_s + mixed_context_s"].per_s == pytest.approx(told["context_s"].per_s / 2)
    assert told["pair_s"].per_s == pytest.approx(4 * 32 * 32 * 128 / 1e-9)


def test_each_of_four_gpus_has_a_quarter() -> None:
    one = {rate.what: rate.per_s for rate in rates(LAW, LLAMA_8B, None)}
    four = {rate.what: rate for rate in rates(LAW, LLAMA_8B, None, 4)}
    assert {what: rate.per_s for what, rate in four.items()} == {w: pytest.approx(v / 4) for w, v in one.items()}
    assert all(rate.limit_per_s is None and rate.share is None for rate in four.values())


def test_nothing_is_implied_by_zero() -> None:
    bare = replace(LAW, context_s=0.0, mixed_context_s=0.0, pair_s=0.0)
    assert [rate.what for rate in rates(bare, LLAMA_8B, None)] == ["weights read", "GEMMs"]


def test_a_tied_embedding_is_read_as_the_head() -> None:
    tied = model_spec("llama-3.2-1b")
    assert embedding_tables(tied) == 1
    assert read_bytes(tied) == tied.weight_bytes


def test_only_chosen_experts_are_computed() -> None:
    """Mixtral multiplies each token with 2 of 8 experts: 12.9 B parameters active, less embeddings and head."""
    assert layer_parameters(model_spec("mixtral-8x7b")) == pytest.approx(12.88e9 - 2 * 32000 * 4096, rel=0.01)


def test_only_chosen_experts_are_read() -> None:
    """Of gpt-oss-20b's 32 experts of 3 x 2880 x 2880 weights (4.25 bits) in 24 layers a token needs 4."""
    model = model_spec("gpt-oss-20b")
    others = 24 * 28 * 3 * 2880 * 2880 * 4.25 / 8
    assert read_bytes(model) == pytest.approx(model.weight_bytes - others - 2 * 201_088 * 2880)


def test_a_window_hides_what_a_longer_context_would_cost() -> None:
    """12 of 24 layers: 64 heads and 8 KV heads of 64."""
    told = {rate.coefficient: rate for rate in rates(LAW, model_spec("gpt-oss-20b"), None)}
    assert told["context_s"].per_s == pytest.approx(2 * 12 * 8 * 64 * 2 / 4e-8)
    assert told["pair_s"].per_s == pytest.approx(4 * 12 * 64 * 64 / 1e-9)
