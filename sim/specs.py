"""Models and GPUs as plain numbers: parameters, weights, KV bytes per token, memory, bandwidth.

Not for what fits where: that is `sim.memory`. The one idea: a Hugging Face config.json or a name of the catalogue is
all it takes to say how big a model is.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from sim.errors import InputError
from sim.hf_config import DTYPE_BYTES, EXPERTS_ONLY, HfConfig, Source
from sim.plurals import counted

CATALOG = Path(__file__).parent / "catalog"

KV_DTYPE_BYTES = {"float16": 2, "bfloat16": 2, "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1}
"""`--kv-cache-dtype` values whose cache is plain K and V; `auto` is the model's own type."""

_UNGATED = ("gpt2", "opt", "bloom", "falcon", "gpt_neox", "gptj", "gpt_bigcode", "mpt", "phi", "starcoder2")
"""Families whose MLP has two matrices, not three."""

_TIED_UNLESS_SAID = ("gemma", "gpt2", "opt", "bloom", "falcon", "cohere", "mpt", "gpt_bigcode")
"""Families whose config.json may leave out that input and output embedding are one."""

_MOST_LAYERS = 10_000

_DTYPE_ALIASES = {"half": "float16", "float": "float32"}


@dataclass(frozen=True, slots=True)
class ParallelSpec:
    """GPUs that serve one replica together: tensor parallelism only."""

    tensor_parallel_size: int = 1

    def __post_init__(self) -> None:
        if self.tensor_parallel_size < 1:
            raise InputError(field="tensor_parallel_size", value=self.tensor_parallel_size, expected="1 or more")


class GpuSpec(NamedTuple):
    """One GPU. Bytes, bytes per second, FLOP per second (dense BF16); `capability` is CUDA's (major, minor)."""

    name: str
    device_name: str
    """As `nvidia-smi` prints it; vLLM looks for "a100" in it."""
    memory_bytes: int
    """As `nvidia-smi` prints it: vLLM chooses its default budgets by it."""
    cuda_memory_bytes: int
    """What CUDA hands out (`torch.cuda.mem_get_info`), 0.3 to 1 GiB less; `gpu_memory_utilization` is a share of it.
    It moves by up to 0.2 GiB with the driver."""
    bandwidth_bytes_per_s: float
    dense_bf16_flop_per_s: float
    capability: tuple[int, int]
    pcie_generation: int
    """Of its 16 lanes to the host."""
    source: str = ""


@dataclass(frozen=True, slots=True)
class ExpertSpec:
    """A mixture of experts: what each of its layers has, by Hugging Face's names. Sizes in elements."""

    num_experts: int
    num_experts_per_tok: int
    moe_intermediate_size: int
    shared_expert_intermediate_size: int
    """Of experts that every token passes through; 0 where there are none."""
    num_layers: int
    """Layers that have experts; the others have one MLP."""
    bits_per_weight: float
    quantization: str = ""
    """Its method where the experts' weights have one; empty: the model's own type."""

    def read(self, tokens: float) -> float:
        """Mean number of experts that so many tokens need, each as likely as any other."""
        spared: float = (1 - self.num_experts_per_tok / self.num_experts) ** tokens
        return self.num_experts * (1 - spared)


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A decoder whose layers differ in their attention's window at most. Elements; `weight_bytes` over all GPUs."""

    name: str
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    vocab_size: int
    mlp_width: int
    """Widest MLP that one token passes through: for a mixture of experts, all of its chosen experts side by side."""
    max_model_len: int
    dtype: str
    num_parameters: int
    weight_bytes: int
    tied_embeddings: bool = False
    """The input embedding is the LM head, too."""
    experts: ExpertSpec | None = None
    window: int = 0
    """Tokens that a layer with sliding-window attention looks back on."""
    num_window_layers: int = 0
    """Such layers; each has its whole context in the KV cache all the same (`sim.kv_choice.window_note`)."""

    @classmethod
    def from_hf_config(cls, source: Source, *, name: str = "", dtype: str = "auto") -> ModelSpec:
        """Read a config.json (path, folder or parsed JSON); `dtype` is vLLM's `--dtype`.

        Raises InputError naming the field that is missing, malformed or not supported: MLA, chunked, linear or
        state-space attention, a window in every layer, encoder-decoders.
        """
        config = HfConfig(source)
        heads = config.integer("num_attention_heads", "n_head", "n_heads")
        hidden = config.integer("hidden_size", "n_embd", "d_model")
        layers = config.integer("num_hidden_layers", "n_layer", "n_layers", "num_layers", most=_MOST_LAYERS)
        dtype = config.dtype() if dtype == "auto" else _DTYPE_ALIASES.get(dtype, dtype)
        experts = _experts(config, layers, 8 * DTYPE_BYTES[dtype])
        window, num_window_layers = config.windows(layers)
        spec = cls(
            name=name or str(config.get("_name_or_path") or config.model_type or "model"),
            num_layers=layers,
            hidden_size=hidden,
            num_heads=heads,
            num_kv_heads=config.integer("n_head_kv", "num_kv_heads", "num_key_value_heads", default=heads),
            head_size=config.integer("head_dim", "hidden_size_per_head", default=max(1, hidden // heads)),
            vocab_size=config.integer("vocab_size"),
            mlp_width=_mlp_width(config, hidden, experts),
            max_model_len=config.max_model_len(),
            dtype=dtype,
            num_parameters=0,
            weight_bytes=0,
            tied_embeddings=config.flag("tie_word_embeddings", default=config.model_type.startswith(_TIED_UNLESS_SAID)),
            experts=experts,
            window=window,
            num_window_layers=num_window_layers,
        )
        return spec._weighed(config)

    def _weighed(self, config: HfConfig) -> ModelSpec:
        routed, mlp = _mlp_parameters(config, self)
        dense = self._attention_parameters() * self.num_layers + mlp
        other = self._other_parameters(config)
        quantization = config.quantization()
        bits = 8 * DTYPE_BYTES[self.dtype]
        quantized_bits = bits if quantization is None else quantization.bits_per_weight
        # vLLM has MXFP4 kernels for experts only (layers/quantization/mxfp4.py): other weights keep their type.
        only_experts = quantization is not None and quantization.method in EXPERTS_ONLY
        dense_bits = bits if only_experts else quantized_bits
        weight_bytes = int(routed * quantized_bits + dense * dense_bits + other * bits) // 8
        return replace(self, num_parameters=routed + dense + other, weight_bytes=weight_bytes)

    def _attention_parameters(self) -> int:
        return 2 * self.hidden_size * self.head_size * (self.num_heads + self.num_kv_heads)

    def _other_parameters(self, config: HfConfig) -> int:
        """Embeddings, norms and biases: never quantized."""
        family = config.model_type
        per_layer = 2 * self.hidden_size
        if family.startswith("qwen3"):
            per_layer += 2 * self.head_size  # norms of Q and K
        qkv = (self.num_heads + 2 * self.num_kv_heads) * self.head_size
        if family.startswith("qwen2"):
            per_layer += qkv
        elif config.flag("attention_bias", default=False):
            per_layer += qkv + self.hidden_size
        if family == "gpt_oss" and self.experts is not None:
            # A sink per head; biases of the router and of each expert's three matrices.
            biases = 1 + 2 * self.experts.moe_intermediate_size + self.hidden_size
            per_layer += self.num_heads + self.experts.num_experts * biases
        embeddings = self.vocab_size * self.hidden_size * (1 if self.tied_embeddings else 2)
        return embeddings + self.hidden_size + per_layer * self.num_layers

    def kv_heads_per_gpu(self, parallel: ParallelSpec) -> int:
        """KV heads that one GPU keeps: at least one, copied where there are more GPUs than heads. vLLM's refusals."""
        tp = parallel.tensor_parallel_size
        if self.num_heads % tp or (self.num_kv_heads % tp and tp % self.num_kv_heads):
            heads, kv_heads = counted(self.num_heads, "attention head"), counted(self.num_kv_heads, "KV head")
            expected = f"a size that divides {heads} and fits {kv_heads}"
            raise InputError(field="tensor_parallel_size", value=tp, expected=expected)
        return max(1, self.num_kv_heads // tp)

    def kv_bytes_per_token(self, kv_cache_dtype: str = "auto", parallel: ParallelSpec | None = None) -> int:
        """Bytes of KV cache that one token takes on one GPU: K and V, all layers."""
        heads = self.kv_heads_per_gpu(parallel or ParallelSpec())
        element = DTYPE_BYTES[self.dtype] if kv_cache_dtype == "auto" else KV_DTYPE_BYTES.get(kv_cache_dtype)
        if element is None:
            expected = f"one of auto, {', '.join(KV_DTYPE_BYTES)} (what elpase can size)"
            raise InputError(field="kv_cache_dtype", value=kv_cache_dtype, expected=expected)
        return 2 * self.num_layers * heads * self.head_size * element


def _mlp_width(config: HfConfig, hidden: int, experts: ExpertSpec | None) -> int:
    if experts is None:
        return _dense_width(config, hidden)
    return experts.num_experts_per_tok * experts.moe_intermediate_size + experts.shared_expert_intermediate_size


def _dense_width(config: HfConfig, hidden: int) -> int:
    return config.integer("intermediate_size", "ffn_dim", "n_inner", default=4 * hidden)


def _mlp_parameters(config: HfConfig, spec: ModelSpec) -> tuple[int, int]:
    """(of experts that tokens are routed to, all others)."""
    matrices = 2 if config.model_type in _UNGATED else 3
    hidden, experts = spec.hidden_size, spec.experts
    dense = matrices * hidden * _dense_width(config, hidden)
    if experts is None:
        return 0, dense * spec.num_layers
    routed = matrices * hidden * experts.num_experts * experts.moe_intermediate_size
    # The router is one row per expert; Qwen2's shared expert has a gate of one more.
    gate = hidden if config.get("shared_expert_intermediate_size") else 0
    beside = hidden * (matrices * experts.shared_expert_intermediate_size + experts.num_experts) + gate
    sparse_layers = experts.num_layers
    return routed * sparse_layers, beside * sparse_layers + dense * (spec.num_layers - sparse_layers)


def _experts(config: HfConfig, layers: int, bits: float) -> ExpertSpec | None:
    names = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
    if not any(config.get(name) for name in names):
        return None
    quantization = config.quantization()
    return ExpertSpec(
        num_experts=config.integer(*names),
        num_experts_per_tok=config.integer("num_experts_per_tok", "moe_topk", "top_k_experts", default=1),
        moe_intermediate_size=config.integer("moe_intermediate_size", "intermediate_size"),
        shared_expert_intermediate_size=_shared_width(config),
        num_layers=_sparse_layers(config, layers),
        bits_per_weight=bits if quantization is None else quantization.bits_per_weight,
        quantization="" if quantization is None else quantization.method,
    )


def _shared_width(config: HfConfig) -> int:
    if config.get("shared_expert_intermediate_size"):
        return config.integer("shared_expert_intermediate_size")
    if config.get("n_shared_experts"):
        return config.integer("n_shared_experts") * config.integer("moe_intermediate_size")
    return 0


def _sparse_layers(config: HfConfig, layers: int) -> int:
    first = config.integer("first_k_dense_replace") if config.get("first_k_dense_replace") else 0
    step = config.integer("decoder_sparse_step", default=1)
    dense = config.get("mlp_only_layers") or []
    if not isinstance(dense, list):
        raise config.error("mlp_only_layers", dense, "a list of layers")
    return sum((i + 1) % step == 0 and i not in dense for i in range(first, layers))


@cache
def _gpus() -> dict[str, dict[str, Any]]:
    table: dict[str, dict[str, Any]] = json.loads((CATALOG / "gpus.json").read_text(encoding="utf-8"))
    return table


def gpu_names() -> list[str]:
    """Names that `gpu_spec` knows."""
    return list(_gpus())


def model_names() -> list[str]:
    """Names that `model_spec` knows."""
    return sorted(path.stem for path in (CATALOG / "models").glob("*.json"))


def gpu_spec(name: str) -> GpuSpec:
    """A GPU of the catalogue. Raises InputError that lists the names."""
    entry = _gpus().get(name.lower())
    if entry is None:
        raise InputError(field="--gpu", value=name, expected=f"one of {', '.join(gpu_names())}")
    return GpuSpec(name=name.lower(), **{**entry, "capability": tuple(entry["capability"])})


def model_spec(name: str, *, dtype: str = "auto") -> ModelSpec:
    """A model of the catalogue (`qwen3-14b`, `Qwen/Qwen3-14B`) or of a config.json. Raises InputError, OSError."""
    known = re.sub(r"-(hf|instruct|chat|base)$", "", name.rpartition("/")[2].lower().removesuffix("-hf"))
    if known in model_names() and not Path(name).is_file():
        return _catalogue_model(known, dtype)
    if not name or not Path(name).exists():
        expected = f"the path of a config.json, or one of {', '.join(model_names())}"
        raise InputError(field="--model", value=name, expected=expected)
    return ModelSpec.from_hf_config(name, name=name, dtype=dtype)


@cache
def _catalogue_model(name: str, dtype: str) -> ModelSpec:
    return ModelSpec.from_hf_config(CATALOG / "models" / f"{name}.json", name=name, dtype=dtype)
