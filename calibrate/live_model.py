"""A model folder for a real server: a small Llama's config.json and a tokenizer of plain words. Weights are dummies.

The one idea: one word is one token and back again, so that a benchmark's random prompts have the length asked for.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

VOCABULARY = 2048
_SPECIAL = ("<unk>", "<s>", "</s>")

SMALL_LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "torch_dtype": "float32",
    "tie_word_embeddings": True,
    "hidden_act": "silu",
    "bos_token_id": 1,
    "eos_token_id": 2,
}
"""Small enough for one CPU core to serve several requests per second."""


def write_model(folder: Path, config: dict[str, Any] | None = None) -> Path:
    """Write the folder; what stands there already is left alone. Returns it."""
    config = config or SMALL_LLAMA
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        "config.json": config,
        "tokenizer.json": _tokenizer(int(config["vocab_size"])),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "unk_token": "<unk>",
            "bos_token": "<s>",
            "eos_token": "</s>",
        },
    }
    for name, content in files.items():
        if not (folder / name).exists():
            (folder / name).write_text(json.dumps(content) + "\n", encoding="utf-8")
    return folder


def _tokenizer(size: int) -> dict[str, Any]:
    """Of Hugging Face's `tokenizers`: words w3, w4, ... between blanks, each one token."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    words = {word: i for i, word in enumerate([*_SPECIAL, *(f"w{i}" for i in range(len(_SPECIAL), size))])}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, "content": word, **flags} for i, word in enumerate(_SPECIAL)],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "<unk>"},
    }
