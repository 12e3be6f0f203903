"""What coefficients mean: the bytes and operations per second that they imply, beside the device's own limits.

Not for fitting: a fit knows nothing of data sheets. The one idea: a coefficient above its device's limit is not a
discovery but a sign that it stands for something else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sim.specs import ParallelSpec

if TYPE_CHECKING:
    from sim.latency import FusedLaw
    from sim.specs import GpuSpec, ModelSpec


@dataclass(frozen=True, slots=True)
class Rate:
    """A rate on each GPU that a coefficient implies."""

    what: str
    coefficient: str
    per_s: float
    unit: str
    limit_per_s: float | None
    """The device's; None where the device is not in the catalogue."""

    @property
    def share(self) -> float | None:
        """Of the device's limit."""
        return None if self.limit_per_s is None else self.per_s / self.limit_per_s


def rates(law: FusedLaw, model: ModelSpec, gpu: GpuSpec | None, tensor_parallel_size: int = 1) -> list[Rate]:
    """Rates of one of `tensor_parallel_size` GPUs; a coefficient of 0 implies none."""
    bandwidth = None if gpu is None else gpu.bandwidth_bytes_per_s
    flop = None if gpu is None else gpu.dense_bf16_flop_per_s
    tp = tensor_parallel_size
    read, layers = read_bytes(model), layer_parameters(model)
    # What a window hides costs nothing: only layers without one get dearer with a longer context.
    whole = model.num_layers - model.num_window_layers
    kv = model.kv_bytes_per_token(parallel=ParallelSpec(tp)) * whole / model.num_layers
    attention = 4 * whole * model.num_heads * model.head_size
    told = [
        ("weights read", "weight_read_s", read / tp, "B/s", bandwidth),
        ("GEMMs", "token_s", 2 * layers / tp, "FLOP/s", flop),
        ("KV cache read by decodes", "context_s", kv, "B/s", bandwidth),
        ("KV cache read beside chunks", "context_s + mixed_context_s", kv, "B/s", bandwidth),
        ("prompt attention", "pair_s", attention / tp, "FLOP/s", flop),
    ]
    seconds = {what: sum(getattr(law, name) for name in names.split(" + ")) for what, names, *_ in told}
    if not law.mixed_context_s:
        del told[3]
    return [Rate(what, n, work / seconds[what], unit, limit) for what, n, work, unit, limit in told if seconds[what]]


def embedding_tables(model: ModelSpec) -> int:
    """Tables of vocabulary x hidden: 2, or 1 where the LM head is the input embedding."""
    table = model.vocab_size * model.hidden_size
    attention = 2 * model.hidden_size * model.head_size * (model.num_heads + model.num_kv_heads)
    mlp = 3 * model.hidden_size * model.mlp_width
    return 2 if model.num_parameters - model.num_layers * (attention + mlp) >= 1.5 * table else 1


def read_bytes(model: ModelSpec) -> float:
    """Bytes of weights that a token reads: all but the experts that it is not routed to, and but an input embedding
    that is not the LM head as well."""
    element = 2 if model.dtype != "float32" else 4
    spared = (embedding_tables(model) - 1) * model.vocab_size * model.hidden_size * element
    experts = model.experts
    if experts is not None:
        others = (experts.num_experts - experts.num_experts_per_tok) * experts.num_layers
        spared += int(others * 3 * model.hidden_size * experts.moe_intermediate_size * experts.bits_per_weight / 8)
    return float(model.weight_bytes - spared)


def layer_parameters(model: ModelSpec) -> float:
    """Parameters that every token is multiplied with: layers without embeddings and LM head, chosen experts only."""
    attention = 2 * model.hidden_size * model.head_size * (model.num_heads + model.num_kv_heads)
    active = model.num_layers * (attention + 3 * model.hidden_size * model.mlp_width)
    rest = model.num_parameters - embedding_tables(model) * model.vocab_size * model.hidden_size
    return float(min(active, rest))
