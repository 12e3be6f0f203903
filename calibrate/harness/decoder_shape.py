"""What a decoder's forward pass needs to know of a config.json, and its shard of a tensor-parallel model.

Not for weights or arithmetic (torch_model.py). The one idea: a shard of N is the same decoder with fewer heads, a
narrower MLP and a part of the vocabulary, so one GPU can time it without the other N - 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sim.hf_config import HfConfig
from sim.specs import ModelSpec, ParallelSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sim.hf_config import Source

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
"""`model_type`s that are built: RMSNorm, RoPE, grouped-query attention, SwiGLU, dense."""


@dataclass(frozen=True, slots=True)
class DecoderShape:
    """Sizes of one GPU's shard, in elements; the same in every layer."""

    name: str
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    mlp_width: int
    vocab_size: int
    """Rows of the shard's embedding and LM head."""
    max_model_len: int
    norm_eps: float
    rope_theta: float
    rope_scaling: Mapping[str, Any]
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    qk_norm: bool
    tied: bool
    """The LM head is the embedding."""
    tensor_parallel_size: int = 1

    @classmethod
    def from_hf_config(cls, source: Source, *, name: str = "", shard_of: int = 1) -> DecoderShape:
        """Read a config.json. Raises InputError for other families and for sizes that N GPUs cannot share."""
        config = HfConfig(source)
        family = config.model_type
        if family not in FAMILIES:
            raise config.error("model_type", family or None, f"one of {', '.join(FAMILIES)}")
        spec = ModelSpec.from_hf_config(source, name=name)
        kv_heads = spec.kv_heads_per_gpu(ParallelSpec(shard_of))
        if spec.mlp_width % shard_of:
            raise config.error("intermediate_size", spec.mlp_width, f"a multiple of {shard_of} GPUs")
        rope = _rope(config)
        biased = config.flag("attention_bias", default=False)
        return cls(
            name=spec.name,
            num_layers=spec.num_layers,
            hidden_size=spec.hidden_size,
            num_heads=spec.num_heads // shard_of,
            num_kv_heads=kv_heads,
            head_size=spec.head_size,
            mlp_width=spec.mlp_width // shard_of,
            vocab_size=math.ceil(spec.vocab_size / shard_of),
            max_model_len=spec.max_model_len,
            norm_eps=float(config.get("rms_norm_eps") or 1e-6),
            rope_theta=float(rope.get("rope_theta") or config.get("rope_theta") or 10_000.0),
            rope_scaling=rope,
            qkv_bias=family == "qwen2" or biased,
            output_bias=biased and family != "qwen2",
            mlp_bias=config.flag("mlp_bias", default=False),
            qk_norm=family == "qwen3",
            tied=config.flag("tie_word_embeddings", default=False),
            tensor_parallel_size=shard_of,
        )

    @property
    def q_size(self) -> int:
        """Elements of a token's queries."""
        return self.num_heads * self.head_size

    @property
    def kv_size(self) -> int:
        """Elements of a token's keys, or of its values."""
        return self.num_kv_heads * self.head_size

    @property
    def num_parameters(self) -> int:
        """Of the shard, norms left out."""
        attention = self.hidden_size * (2 * self.q_size + 2 * self.kv_size)
        layer = attention + 3 * self.hidden_size * self.mlp_width
        return self.num_layers * layer + self.vocab_size * self.hidden_size * (1 if self.tied else 2)

    def kv_bytes_per_token(self, element_bytes: int) -> int:
        """Bytes of KV cache for one token: K and V, all layers."""
        return 2 * self.num_layers * self.kv_size * element_bytes


def _rope(config: HfConfig) -> dict[str, Any]:
    """Parameters of the rotary embedding: newer files keep them together, older ones call the scaling alone so."""
    parameters = config.get("rope_parameters") or config.get("rope_scaling")
    return dict(parameters) if isinstance(parameters, dict) else {}
