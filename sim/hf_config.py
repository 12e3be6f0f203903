"""A checked view of a Hugging Face config.json: what it says of size, and what of it elpase cannot model.

Not for arithmetic on what it says: that is `sim.specs`. The one idea: every value is asked for by its field's name, so
that whatever is missing, malformed or not supported is told with that name.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from sim.errors import InputError
from sim.json_file import read_json_object

Source = Mapping[str, Any] | str | os.PathLike[str]

DTYPE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}

_NESTED = ("text_config", "language_config", "llm_config", "thinker_config")
"""Where multimodal models keep the decoder's numbers."""

_LENGTH_FIELDS = (
    "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length", "max_target_positions",
    "max_sequence_length", "max_seq_length", "seq_len",
)  # fmt: skip
_DEFAULT_LENGTH = 2048
_MOST = 10**9
"""Of any size of a model: what is above is a mistake."""
_MOST_ROPE_FACTOR = 10_000
_PRESCALED_ROPE = ("su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling", "default", "mrope")
"""Kinds of RoPE scaling whose factor the stated maximum length already contains."""

_NOT_SUPPORTED = {
    "kv_lora_rank": "no multi-head latent attention (MLA): its cache is not K and V per head",
    "attention_chunk_size": "no chunked local attention: its layers keep only part of the cache",
    "block_configs": "the same block in every layer",
    "hybrid_override_pattern": "attention in every layer (no state-space layers)",
    "attn_layer_period": "attention in every layer (no state-space layers)",
    "attn_layer_indices": "attention in every layer (no state-space layers)",
    "mamba_d_state": "attention in every layer (no state-space layers)",
    "state_size": "attention in every layer (no state-space layers)",
    "full_attention_interval": "full attention in every layer (no linear attention)",
}
_FULL_ATTENTION = ("full_attention", "attention")
_WINDOWED = "sliding_attention"

EXPERTS_ONLY = ("mxfp4", "gpt-oss-mxfp4")
"""Methods whose weights are those of experts."""


class Quantization(NamedTuple):
    """How the linear layers' weights are stored: bits per weight, scales included."""

    method: str
    bits_per_weight: float


class HfConfig:
    """The decoder's part of a config.json.

    `source` is the parsed JSON or the path of the file (or of the folder that holds it). Raises InputError naming file
    and field, and OSError where the file cannot be read.
    """

    def __init__(self, source: Source) -> None:
        self.file: str | None = None
        if not isinstance(source, Mapping):
            path = Path(source)
            self.file = os.fspath(path / "config.json" if path.is_dir() else path)
            source = read_json_object(self.file, "a Hugging Face config.json: one JSON object")
        self._root = source
        nested = next((source[key] for key in _NESTED if isinstance(source.get(key), Mapping)), source)
        self._text: Mapping[str, Any] = next((nested[k] for k in _NESTED if isinstance(nested.get(k), Mapping)), nested)
        self._refuse_unsupported()

    def get(self, name: str) -> Any:
        """The decoder's value of a field, the whole model's where the decoder has none; None where neither has."""
        value = self._text.get(name)
        return self._root.get(name) if value is None else value

    def integer(self, *names: str, default: int | None = None, most: int = _MOST) -> int:
        """The first of these fields that is there: a whole number from 1 to `most`; without any, `default`."""
        name = next((name for name in names if self.get(name) is not None), names[0])
        value = self.get(name)
        if value is None:
            value = default
        if value is None:
            raise self.error(name, None, "a whole number of 1 or more (the field is missing)")
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self.error(name, value, "a whole number of 1 or more")
        if value > most:
            raise self.error(name, value, f"at most {most}")
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        """A yes or no."""
        value = self.get(name)
        return default if value is None else bool(value)

    @property
    def model_type(self) -> str:
        """The family's name, such as `llama`; empty where it is not said."""
        return str(self.get("model_type") or "")

    def dtype(self) -> str:
        """The type that vLLM's `--dtype auto` computes in: the stated one, but bfloat16 for float32 or none stated."""
        stated = str(self.get("dtype") or self.get("torch_dtype") or "float32").removeprefix("torch.")
        if stated not in DTYPE_BYTES:
            raise self.error("torch_dtype", stated, f"one of {', '.join(DTYPE_BYTES)}")
        return "bfloat16" if stated == "float32" else stated

    def max_model_len(self) -> int:
        """The longest sequence in tokens by vLLM's rule: the smallest stated length, times a plain RoPE factor.

        Source: vLLM 0.32, transformers_utils/model_arch_config_convertor.py and config/model.py.
        """
        stated = [self.integer(name) for name in _LENGTH_FIELDS if self.get(name) is not None]
        length = self.integer("model_max_length", default=min(stated, default=_DEFAULT_LENGTH))
        rope = self.get("rope_scaling") or self.get("rope_parameters")
        if not rope:
            return length
        if not isinstance(rope, Mapping):
            raise self.error("rope_scaling", rope, "an object")
        kind = str(rope.get("rope_type") or rope.get("type") or "default")
        if kind == "longrope":
            return self.integer("original_max_position_embeddings", default=length)
        factor = rope.get("factor") or 1.0
        if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor <= _MOST_ROPE_FACTOR:
            raise self.error("rope_scaling.factor", factor, f"a number above 0, at most {_MOST_ROPE_FACTOR}")
        return length if kind in _PRESCALED_ROPE or "gemma3" in self.model_type else int(length * factor)

    def quantization(self) -> Quantization | None:
        """How weights are stored, or None for the model's own type."""
        stated = self.get("quantization_config") or self.get("compression_config")
        if not stated:
            return None
        if not isinstance(stated, Mapping):
            raise self.error("quantization_config", stated, "an object")
        method = str(stated.get("quant_method") or "").lower().replace("_", "-")
        bits = _bits_per_weight(method, stated)
        if bits is None:
            expected = "awq, gptq, fp8, compressed-tensors, bitsandbytes, modelopt or mxfp4, with its bits"
            raise self.error("quantization_config.quant_method", method, expected)
        return Quantization(method, bits)

    def windows(self, num_layers: int) -> tuple[int, int]:
        """(tokens that windowed layers look back on, number of such layers); zeros where all layers see everything."""
        layers = self.get("layer_types")
        windowed = layers.count(_WINDOWED) if isinstance(layers, list) else 0
        if not windowed:
            return 0, 0
        if len(layers) != num_layers:
            raise self.error("layer_types", f"{len(layers)} layers", f"{num_layers}, as num_hidden_layers says")
        return self.integer("sliding_window"), windowed

    def error(self, field: str, value: object, expected: str) -> InputError:
        """An error about one field of this file."""
        return InputError(file=self.file, field=field, value=value, expected=expected)

    def _refuse_unsupported(self) -> None:
        for name, expected in _NOT_SUPPORTED.items():
            if self.get(name):
                raise self.error(name, self.get(name), f"{expected}; not supported yet")
        if self.get("is_encoder_decoder"):
            raise self.error("is_encoder_decoder", True, "a decoder-only model")
        self._refuse_windows()

    def _refuse_windows(self) -> None:
        """Windowed layers beside full ones are taken: one KV cache holds both, as without vLLM's hybrid manager."""
        layers = self.get("layer_types")
        kinds = {str(kind) for kind in layers} if isinstance(layers, list) else set()
        other = sorted(kinds - {*_FULL_ATTENTION, _WINDOWED})
        if other:
            expected = f"full_attention or {_WINDOWED} in every layer; not supported yet"
            raise self.error("layer_types", other[0], expected)
        if kinds == {_WINDOWED}:
            raise self.error("layer_types", _WINDOWED, "a layer of full_attention beside; not supported yet")
        # Qwen2 states a window that only `use_sliding_window` switches on; a list of full layers leaves it unused too.
        if not kinds and self.get("sliding_window") and self.flag("use_sliding_window", default=True):
            raise self.error("sliding_window", self.get("sliding_window"), "null: windows are not supported yet")


def _bits_per_weight(method: str, stated: Mapping[str, Any]) -> float | None:
    """Bits of one linear weight with its scales, or None where the method, or its bits, are not known."""
    if method == "bitsandbytes":
        return 4.5 if stated.get("load_in_4bit") else 8.0 if stated.get("load_in_8bit") else None
    if method == "compressed-tensors":
        said = stated.get("config_groups")
        kinds = said.values() if isinstance(said, Mapping) else ()
        groups = [g.get("weights") for g in kinds if isinstance(g, Mapping)]
        stated = next((weights for weights in groups if isinstance(weights, Mapping)), {})
    bits = stated.get("bits") or stated.get("num_bits") or stated.get("w_bit") or _implied_bits(method, stated)
    if not isinstance(bits, int | float) or isinstance(bits, bool) or not 0 < bits <= 32:
        return None
    group = stated.get("group_size")
    # Per group of weights a 16-bit scale and, as AWQ and GPTQ have it, a zero point of the weight's own width.
    overhead = (16 + bits) / group if isinstance(group, int) and group > 0 else 0.0
    return bits + overhead


def _implied_bits(method: str, stated: Mapping[str, Any]) -> float | None:
    nested = stated.get("quantization")
    algorithm = str((nested if isinstance(nested, Mapping) else stated).get("quant_algo") or "").lower()
    if method in EXPERTS_ONLY:
        return 4.25  # one 8-bit scale per 32 weights
    if method in ("fp8", "fbgemm-fp8") or algorithm.startswith("fp8"):
        return 8.0
    return 4.5 if "nvfp4" in algorithm or method == "modelopt-fp4" else None  # one 8-bit scale per 16 weights
