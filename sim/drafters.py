"""How large a drafter is beside the model that it drafts for: bytes read in a pass, weights and KV kept in memory.

Not for seconds (`sim.latency.drafter`). The one idea: a drafter is a small decoder, so its share of the model's bytes
is its share of the model's time and memory.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sim.errors import InputError
from sim.hf_config import DTYPE_BYTES
from sim.specs import ModelSpec, model_names, model_spec

if TYPE_CHECKING:
    from sim.speculative import Speculation


class DrafterSize(NamedTuple):
    """Shares of the model's own."""

    passes: int
    """Forward passes in a step; 0: it looks n-grams up, which takes next to nothing."""
    weights_read: float
    """Weight bytes that one pass reads."""
    weights_kept: float
    """Weight bytes in memory on top of the model's."""
    kv: float
    """KV bytes of one token."""


NO_DRAFTER = DrafterSize(0, 0.0, 0.0, 0.0)


def drafter_size(speculation: Speculation | None, model: ModelSpec | None, cost: float | None) -> DrafterSize:
    """Sizes by `cost`, the share of one pass, where it is said; else by the drafter's and the model's weights.

    A draft model is a decoder of its own. EAGLE adds one decoder layer to the model and borrows its embedding and LM
    head, which each pass reads (EAGLE-3 checkpoints often have a smaller head: say its cost where that matters).
    Raises InputError where a draft model is not known.
    """
    if speculation is None or speculation.scheduler_method == "ngram":
        return NO_DRAFTER
    passes = speculation.num_speculative_tokens
    if cost is not None:
        return DrafterSize(passes, cost, cost, cost)
    if model is None:
        raise InputError(field="drafter_cost", expected="a number, as no model is named to size the drafter by")
    if speculation.scheduler_method == "eagle":
        layer = 1 / model.num_layers
        head = _head_bytes(model) / _read_bytes(model)
        return DrafterSize(passes, (1 - head) * layer + head, (1 - head) * layer, layer)
    drafter = _draft_model(str(speculation.model), model.dtype)
    if drafter.vocab_size != model.vocab_size and not speculation.use_heterogeneous_vocab:
        expected = f"a vocabulary of {model.vocab_size} like {model.name}'s, not {drafter.vocab_size}: vLLM refuses it"
        raise InputError(field="speculative_config.model", value=speculation.model, expected=expected)
    return DrafterSize(
        passes,
        _read_bytes(drafter) / _read_bytes(model),
        drafter.weight_bytes / model.weight_bytes,
        drafter.kv_bytes_per_token() / model.kv_bytes_per_token(),
    )


def _draft_model(name: str, dtype: str) -> ModelSpec:
    try:
        return model_spec(name, dtype=dtype)
    except InputError as error:
        if Path(name).exists():
            raise
        expected = f"a config.json, one of {', '.join(model_names())}, or --drafter-cost beside it"
        raise InputError(field="speculative_config.model", value=name, expected=expected) from error


def _head_bytes(model: ModelSpec) -> int:
    return model.vocab_size * model.hidden_size * DTYPE_BYTES[model.dtype]


def _read_bytes(model: ModelSpec) -> int:
    """All weights but an input embedding of its own, of which a pass reads single rows."""
    return model.weight_bytes - (0 if model.tied_embeddings else _head_bytes(model))
