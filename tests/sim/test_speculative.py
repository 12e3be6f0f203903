"""What `--speculative-config` says, and what it must not: vLLM's rules, and ours for how drafts fare."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sim.config import EngineConfig
from sim.drafters import NO_DRAFTER, drafter_size
from sim.errors import InputError
from sim.specs import ModelSpec, model_spec
from sim.speculative import Speculation

QWEN = model_spec("qwen3-14b")


def read(config: dict[str, Any] | str | None = None, **flags: Any) -> Speculation | None:
    return EngineConfig(speculative_config=config, **flags).speculation()


NGRAM = {"method": "ngram", "num_speculative_tokens": 3}


def test_nobody_drafts_unless_it_is_said() -> None:
    assert read() is None


def test_a_logged_line_of_rates() -> None:
    """vLLM logs the share of drafts accepted up to each position; the chance of one given those before it follows."""
    found = read(NGRAM, draft_acceptance=(0.8, 0.6, 0.15))
    assert found is not None
    assert found.acceptance_rates == (0.8, 0.6, 0.15)
    assert found.chances == pytest.approx((0.8, 0.75, 0.25))


def test_one_number_is_each_drafts_chance() -> None:
    found = read(NGRAM, draft_acceptance=0.5)
    assert found is not None
    assert found.acceptance_rates == (0.5, 0.25, 0.125)
    assert found.chances == (0.5, 0.5, 0.5)


@pytest.mark.parametrize(
    ("said", "rates"),
    [  # as vLLM 0.32's SpeculativeConfig._resolve_synthetic_acceptance_rates gives them
        ({"synthetic_acceptance_rates": [0.9, 0.5, 0.5]}, (0.9, 0.5, 0.5)),
        ({"synthetic_acceptance_length": 2.75}, (1.0, 0.75, 0.0)),
        ({"synthetic_acceptance_length": 1}, (0.0, 0.0, 0.0)),
        ({"synthetic_acceptance_length": 4}, (1.0, 1.0, 1.0)),
    ],
)
def test_vllms_synthetic_acceptance(said: dict[str, Any], rates: tuple[float, ...]) -> None:
    found = read({**NGRAM, "rejection_sample_method": "synthetic", **said})
    assert found is not None
    assert found.acceptance_rates == pytest.approx(rates)


@pytest.mark.parametrize(
    ("flags", "method"),
    [
        ({"speculative_config": json.dumps(NGRAM)}, "ngram"),
        ({"spec_method": "[ngram]", "spec_tokens": 3}, "ngram"),
        ({"spec_model": "ngram", "spec_tokens": 3}, "ngram"),
        ({"spec_model": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", "spec_tokens": 3}, "eagle3"),
        ({"spec_model": "yuhuili/EAGLE-LLaMA3-Instruct-8B", "spec_tokens": 3}, "eagle"),
        ({"spec_model": "llama-3.2-1b", "spec_tokens": 3}, "draft_model"),
        ({"speculative_config": {"method": "ngram", "num-speculative-tokens": 3, "prompt_lookup_max": 4}}, "ngram"),
    ],
)
def test_methods_as_vllm_guesses_them(flags: dict[str, Any], method: str) -> None:
    found = EngineConfig(draft_acceptance=0.7, **flags).speculation()
    assert found is not None
    assert (found.method, found.num_speculative_tokens) == (method, 3)


@pytest.mark.parametrize(
    ("config", "flags", "message"),
    [
        (NGRAM, {}, "draft_acceptance: expected the acceptance rate of each draft position"),
        (NGRAM, {"draft_acceptance": (0.5, 0.6, 0.1)}, "3 numbers from 0 to 1, none above the one before"),
        (NGRAM, {"draft_acceptance": (0.5, 0.4)}, "3 numbers from 0 to 1"),
        (NGRAM, {"draft_acceptance": 1.5}, "got 1.5, expected one number from 0 to 1, or 3"),
        (NGRAM, {"draft_acceptance": (-0.1,)}, "got -0.1, expected one number from 0 to 1, or 3"),
        ({**NGRAM, "prompt_lookup_max": 0}, {"draft_acceptance": 0.5}, "prompt_lookup_max: got 0"),
        (
            {**NGRAM, "prompt_lookup_min": 5, "prompt_lookup_max": 4},
            {"draft_acceptance": 0.5},
            "prompt_lookup_min: got 5, expected at most prompt_lookup_max (4)",
        ),
        ({**NGRAM, "use_heterogeneous_vocab": True}, {"draft_acceptance": 0.5}, "method draft_model beside it"),
        (NGRAM, {"draft_acceptance": 0.5, "spec_tokens": 2}, "no num_speculative_tokens, as a flag of its own says 2"),
        (None, {"draft_acceptance": 0.5}, "a --speculative-config beside it"),
        ("{", {}, "expected a JSON object"),
        ("[1]", {}, "expected a JSON object"),
        ("[" * 100_000, {}, "expected a JSON object"),
        ({"method": "ngram"}, {}, "num_speculative_tokens: expected a whole number from 1 to 128"),
        ({**NGRAM, "num_speculative_tokens": 0}, {}, "got 0, expected a whole number from 1 to 128"),
        ({**NGRAM, "num_speculative_tokens": 129}, {"draft_acceptance": 0.5}, "got 129, expected a whole number from"),
        (None, {"spec_method": "ngram", "spec_tokens": 10**9, "draft_acceptance": 0.5}, "got 1000000000, expected a"),
        ({**NGRAM, "method": ["ngram"]}, {}, "got ['ngram'], expected one of ngram"),
        ({**NGRAM, "method": "medusa"}, {}, "medusa: not built yet"),
        ({**NGRAM, "method": "guess"}, {}, "one of ngram, ngram_gpu, eagle, eagle3, draft_model"),
        ({**NGRAM, "method": "eagle"}, {"draft_acceptance": 0.5}, "as method eagle needs one"),
        ({**NGRAM, "parallel_drafting": True}, {}, "parallel_drafting: not built yet"),
        ({**NGRAM, "num_speculative_token": 3}, {}, "a key that vLLM 0.32 has"),
        ({**NGRAM, "rejection_sample_method": "synthetic"}, {}, "exactly one of"),
        ({**NGRAM, "synthetic_acceptance_length": 2}, {"draft_acceptance": 0.5}, "synthetic, where synthetic"),
        (
            {**NGRAM, "rejection_sample_method": "synthetic", "synthetic_acceptance_length": 4.5},
            {},
            "a number from 1 to 4",
        ),
    ],
)
def test_what_is_refused_in_one_line(config: Any, flags: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        EngineConfig(speculative_config=config, **flags).speculation()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def settle(**flags: Any) -> Any:
    said = {"max_model_len": 4096, "max_num_batched_tokens": 2048, "max_num_seqs": 64, "num_gpu_blocks_override": 999}
    return EngineConfig(**{**said, **flags}).settle(model=QWEN)


def test_ngrams_end_async_scheduling_as_in_vllm() -> None:
    """By default quietly, asked for expressly with an error; n-grams of the GPU, EAGLE and draft models allow it."""
    said = {"spec_tokens": 3, "draft_acceptance": 0.5}
    assert not settle(spec_method="ngram", **said).scheduler.async_scheduling
    with pytest.raises(InputError, match="no async scheduling with ngram drafts"):
        settle(spec_method="ngram", async_scheduling=True, **said)
    for method in ("ngram_gpu", "eagle", "eagle3", "draft_model"):
        settled = settle(spec_method=method, spec_model="qwen3-4b", **said)
        assert settled.scheduler.async_scheduling
        assert settled.scheduler.num_speculative_tokens == 3


def test_a_threshold_below_a_decode_with_its_drafts() -> None:
    """vLLM 0.32 fails an assertion when it admits a request padded with drafts."""
    said = {"spec_method": "ngram", "spec_tokens": 3, "draft_acceptance": 0.5}
    with pytest.raises(InputError, match="long_prefill_token_threshold: got 3, expected 0, or at least 4"):
        settle(long_prefill_token_threshold=3, **said)
    assert settle(long_prefill_token_threshold=4, **said).scheduler.long_prefill_token_threshold == 4


def test_what_a_drafter_takes_of_the_memory() -> None:
    """A draft model of 4 of 14.8 billion parameters: its weights, and 36 layers beside 40 in each block."""
    plain = settle(num_gpu_blocks_override=None, kv_cache_memory_bytes=40 << 30).kv.num_blocks
    said = {"spec_method": "draft_model", "spec_model": "qwen3-4b", "spec_tokens": 3, "draft_acceptance": 0.5}
    drafted = settle(num_gpu_blocks_override=None, kv_cache_memory_bytes=40 << 30, **said).kv.num_blocks
    assert drafted == pytest.approx(plain * 40 / 76, rel=1e-3)
    assert settle(**said).kv.num_blocks == 999, "a number of blocks that is said stands"


def test_sizes_of_drafters() -> None:
    """By hand, from the config.json of Qwen3-14B: 40 layers, hidden 5120, 151,936 words, an input embedding apart."""
    head = 151_936 * 5120
    layer = (QWEN.num_parameters - 2 * head) / 40
    eagle = Speculation("eagle3", 3, (0.5, 0.3, 0.1), "somebody/EAGLE3")
    size = drafter_size(eagle, QWEN, None)
    assert size.passes == 3
    assert size.weights_read == pytest.approx((layer + head) / (QWEN.num_parameters - head), rel=1e-3)
    assert (size.kv, size.weights_kept) == (1 / 40, pytest.approx(layer / (QWEN.num_parameters - head), rel=1e-3))
    draft = Speculation("draft_model", 5, (0.5,) * 5, "qwen3-4b")
    small = model_spec("qwen3-4b")
    assert small.tied_embeddings
    found = drafter_size(draft, QWEN, None)
    assert found.weights_read == pytest.approx(small.num_parameters / (QWEN.num_parameters - head))
    assert drafter_size(draft, QWEN, 0.1).weights_read == 0.1
    assert drafter_size(Speculation("ngram", 3, (0.5,) * 3), QWEN, 0.1) == NO_DRAFTER == drafter_size(None, None, None)


def test_an_unknown_draft_model_needs_a_cost() -> None:
    with pytest.raises(InputError, match="or --drafter-cost beside it"):
        drafter_size(Speculation("draft_model", 1, (0.5,), "somebody/model"), QWEN, None)


def test_a_draft_model_has_the_models_vocabulary() -> None:
    """vLLM refuses another one, unless it is told to map between them."""
    llama = Speculation("draft_model", 1, (0.5,), "llama-3.2-1b")
    with pytest.raises(
        InputError, match=r"'llama-3.2-1b', expected a vocabulary of 151936 like qwen3-14b's, not 128256"
    ):
        drafter_size(llama, QWEN, None)
    said = {"model": "llama-3.2-1b", "num_speculative_tokens": 1, "use_heterogeneous_vocab": True}
    mapped = read(said, draft_acceptance=0.5)
    assert drafter_size(mapped, QWEN, None).passes == 1


def test_a_drafters_config_json(tmp_path: Any) -> None:
    path = tmp_path / "config.json"
    config = {"num_attention_heads": 8, "hidden_size": 512, "num_hidden_layers": 2, "vocab_size": 151_936}
    path.write_text(json.dumps({**config, "intermediate_size": 2048, "model_type": "llama"}))
    spec: ModelSpec = ModelSpec.from_hf_config(path)
    found = drafter_size(Speculation("draft_model", 1, (0.5,), str(path)), QWEN, None)
    assert found.weights_kept == pytest.approx(spec.weight_bytes / QWEN.weight_bytes)
