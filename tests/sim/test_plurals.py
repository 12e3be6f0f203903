"""One is no plural: how many of something is told, and in errors that nobody meets often."""

from __future__ import annotations

import pytest

from sim.errors import InputError
from sim.plurals import counted
from sim.specs import ModelSpec, ParallelSpec
from sim.speculative import read_speculation

LLAMA = {
    "model_type": "llama", "vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 1,
    "num_key_value_heads": 1, "intermediate_size": 128, "torch_dtype": "bfloat16",
}  # fmt: skip


@pytest.mark.parametrize(
    ("number", "told"),
    [(0, "0 steps"), (1, "1 step"), (2, "2 steps"), (1000, "1,000 steps"), (0.96, "1 step"), (1.6, "2 steps")],
)
def test_one_is_no_plural(number: float, told: str) -> None:
    assert counted(number, "step") == told


def test_one_head() -> None:
    model = ModelSpec.from_hf_config(LLAMA)
    with pytest.raises(InputError, match=r"divides 1 attention head and fits 1 KV head$"):
        model.kv_heads_per_gpu(ParallelSpec(2))


def test_one_draft() -> None:
    ngram = {"method": "ngram", "num_speculative_tokens": 1}
    with pytest.raises(InputError, match=r"expected 1 number from 0 to 1, none above"):
        read_speculation(ngram, {}, (0.5, 0.4))
