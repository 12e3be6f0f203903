"""A decoder with random weights whose forward pass computes what a server's step computes, and nothing else.

Not for generating text, and not for training. The one idea: all tokens of a step, prompts and decodes alike, go through
the matrices together as one flat batch; only attention, which is handed in, knows which token belongs to whom.
Weights have the shapes that vLLM keeps: Q, K and V in one matrix, gate and up in one. Source: Llama, Qwen2 and Qwen3 in
Hugging Face transformers, whose weights `load` takes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch.nn.functional import embedding, linear, rms_norm, silu

if TYPE_CHECKING:
    from collections.abc import Mapping

    from calibrate.harness.decoder_shape import DecoderShape

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}

_INIT_STD = 0.02
_PACKED_FOR_ROWS = 128
"""Rows that oneDNN lays weights out for. With a layout for few rows 2 of them take twice the time of 1; with this one
up to 12 take the same, as they should: it is the weights' bytes that cost."""
_LONGEST_ROPE = 1 << 18
"""Positions that RoPE's table covers at most."""


class Attention(Protocol):
    """Writes a layer's keys and values into the paged cache and attends to what the cache holds of each sequence."""

    def __call__(self, layer: int, q: Any, k: Any, v: Any) -> Any:
        """q (T, heads, head size), k and v (T, KV heads, head size) -> (T, heads, head size)."""


class Linear:
    """x @ weight.T + bias; on a CPU in FP32 by oneDNN, from packed weights: up to twice as fast for a few rows."""

    def __init__(self, weight: Any, bias: Any = None) -> None:
        self.weight = weight
        self.bias = bias
        self._packed: Any = None
        self.pack()

    def __call__(self, x: Any) -> Any:
        if self._packed is None:
            return linear(x, self.weight, self.bias)
        return torch.ops.mkldnn._linear_pointwise(x, self._packed, self.bias, "none", [], "")

    def pack(self) -> None:
        """Lay the weights out for oneDNN, where that is of use; again after they have changed."""
        if self.weight.device.type == "cpu" and self.weight.dtype == torch.float32 and _has_onednn():
            self._packed = torch.ops.mkldnn._reorder_linear_weight(self.weight, _PACKED_FOR_ROWS)

    def load(self, weights: list[Any], biases: list[Any]) -> None:
        """Take these in place of the random ones, stacked."""
        self.weight.copy_(torch.cat(weights))
        if self.bias is not None:
            self.bias.copy_(torch.cat(biases))
        self.pack()


def _has_onednn() -> bool:
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")


@dataclass(frozen=True, slots=True)
class Layer:
    """Weights of one layer; the norms of Q and K are None where the family has none."""

    input_norm: Any
    qkv: Linear
    q_norm: Any
    k_norm: Any
    output: Linear
    mlp_norm: Any
    gate_up: Linear
    down: Linear


class Decoder:
    """The weights of one GPU's shard on a device, and the forward pass."""

    def __init__(self, shape: DecoderShape, device: str, dtype: str, seed: int = 0) -> None:
        self.shape = shape
        self.device = torch.device(device)
        self.dtype = DTYPES[dtype]
        make = _Maker(self.device, self.dtype, seed)
        hidden = shape.hidden_size
        self.embedding = make.matrix(shape.vocab_size, hidden)
        self.lm_head = Linear(self.embedding if shape.tied else make.matrix(shape.vocab_size, hidden))
        self.norm = make.ones(hidden)
        self.layers = [_layer(shape, make) for _ in range(shape.num_layers)]
        self._cos, self._sin = _rope_table(shape, self.device, self.dtype)

    def hidden_states(self, tokens: Any, positions: Any, attention: Attention) -> Any:
        """(T,) token ids and positions -> (T, hidden size), normed."""
        cos, sin = self._cos[positions].unsqueeze(1), self._sin[positions].unsqueeze(1)
        x = embedding(tokens, self.embedding)
        for index, layer in enumerate(self.layers):
            x = x + self._attend(index, layer, self._normed(x, layer.input_norm), cos, sin, attention)
            x = x + _mlp(layer, self._normed(x, layer.mlp_norm))
        return self._normed(x, self.norm)

    def logits(self, tokens: Any, positions: Any, sampled: Any, attention: Attention) -> Any:
        """Logits of the tokens that `sampled` (K,) names: (K, vocabulary). The others skip the LM head."""
        return self.lm_head(self.hidden_states(tokens, positions, attention)[sampled])

    def load(self, weights: Mapping[str, Any]) -> None:
        """Take a state dict of Hugging Face's `...ForCausalLM` of the same config, in place of the random weights."""
        self.embedding.copy_(weights["model.embed_tokens.weight"])
        self.lm_head.load([weights["model.embed_tokens.weight" if self.shape.tied else "lm_head.weight"]], [])
        self.norm.copy_(weights["model.norm.weight"])
        for index, layer in enumerate(self.layers):
            _load_layer(layer, weights, f"model.layers.{index}.")

    def _normed(self, x: Any, weight: Any) -> Any:
        return rms_norm(x, (x.shape[-1],), weight, self.shape.norm_eps)

    def _attend(self, index: int, layer: Layer, x: Any, cos: Any, sin: Any, attention: Attention) -> Any:
        shape, count = self.shape, x.shape[0]
        parts = (shape.q_size, shape.kv_size, shape.kv_size)
        q, k, v = layer.qkv(x).split(parts, dim=-1)
        q, k, v = (part.view(count, -1, shape.head_size) for part in (q, k, v))
        if layer.q_norm is not None:
            q, k = self._normed(q, layer.q_norm), self._normed(k, layer.k_norm)
        attended = attention(index, _rotated(q, cos, sin), _rotated(k, cos, sin), v)
        return layer.output(attended.reshape(count, shape.q_size))


def _mlp(layer: Layer, x: Any) -> Any:
    gate, up = layer.gate_up(x).chunk(2, dim=-1)
    return layer.down(silu(gate) * up)


def _rotated(x: Any, cos: Any, sin: Any) -> Any:
    """RoPE in the half-split layout of Llama and Qwen."""
    low, high = x.chunk(2, dim=-1)
    return torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1)


def _rope_table(shape: DecoderShape, device: Any, dtype: Any) -> tuple[Any, Any]:
    """Cosines and sines, (positions, head size / 2).

    Llama 3's scaling of the frequencies is exact. Others (YaRN, long RoPE) are left out: they change the values, which
    are random here anyway, and not the time.
    """
    half = torch.arange(0, shape.head_size, 2, dtype=torch.float32) / shape.head_size
    frequency = 1.0 / shape.rope_theta**half
    scaling = shape.rope_scaling
    if (scaling.get("rope_type") or scaling.get("type")) == "llama3":
        frequency = _llama3(frequency, scaling)
    length = min(shape.max_model_len, _LONGEST_ROPE)
    angles = torch.outer(torch.arange(length, dtype=torch.float32), frequency)
    return angles.cos().to(device, dtype), angles.sin().to(device, dtype)


def _llama3(frequency: Any, scaling: Mapping[str, Any]) -> Any:
    """Low frequencies divided by the factor, high ones kept, a ramp between them."""
    factor, length = float(scaling["factor"]), float(scaling["original_max_position_embeddings"])
    low, high = float(scaling["low_freq_factor"]), float(scaling["high_freq_factor"])
    turns = length * frequency / (2 * math.pi)
    ramp = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return (1 - ramp) * frequency / factor + ramp * frequency


class _Maker:
    """Makes random tensors in place: a model as big as the device needs no second copy."""

    def __init__(self, device: Any, dtype: Any, seed: int) -> None:
        self._on = {"device": device, "dtype": dtype}
        self._generator = torch.Generator(device=device).manual_seed(seed)

    def matrix(self, rows: int, columns: int) -> Any:
        return torch.empty(rows, columns, **self._on).normal_(0.0, _INIT_STD, generator=self._generator)

    def linear(self, rows: int, columns: int, *, bias: bool) -> Linear:
        made = torch.empty(rows, **self._on).normal_(0.0, _INIT_STD, generator=self._generator) if bias else None
        return Linear(self.matrix(rows, columns), made)

    def ones(self, size: int, *, wanted: bool = True) -> Any:
        return torch.ones(size, **self._on) if wanted else None


def _layer(shape: DecoderShape, make: _Maker) -> Layer:
    hidden = shape.hidden_size
    return Layer(
        input_norm=make.ones(hidden),
        qkv=make.linear(shape.q_size + 2 * shape.kv_size, hidden, bias=shape.qkv_bias),
        q_norm=make.ones(shape.head_size, wanted=shape.qk_norm),
        k_norm=make.ones(shape.head_size, wanted=shape.qk_norm),
        output=make.linear(hidden, shape.q_size, bias=shape.output_bias),
        mlp_norm=make.ones(hidden),
        gate_up=make.linear(2 * shape.mlp_width, hidden, bias=shape.mlp_bias),
        down=make.linear(hidden, shape.mlp_width, bias=shape.mlp_bias),
    )


def _load_layer(layer: Layer, weights: Mapping[str, Any], at: str) -> None:
    def load(linear: Linear, *names: str) -> None:
        biases = [weights[f"{at}{name}.bias"] for name in names] if linear.bias is not None else []
        linear.load([weights[f"{at}{name}.weight"] for name in names], biases)

    load(layer.qkv, "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    load(layer.output, "self_attn.o_proj")
    load(layer.gate_up, "mlp.gate_proj", "mlp.up_proj")
    load(layer.down, "mlp.down_proj")
    layer.input_norm.copy_(weights[f"{at}input_layernorm.weight"])
    layer.mlp_norm.copy_(weights[f"{at}post_attention_layernorm.weight"])
    if layer.q_norm is not None:
        layer.q_norm.copy_(weights[f"{at}self_attn.q_norm.weight"])
        layer.k_norm.copy_(weights[f"{at}self_attn.k_norm.weight"])
