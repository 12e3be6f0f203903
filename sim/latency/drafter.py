"""What drafting adds to a step: the drafter's own forward passes.

Not for verifying drafts: that is the step itself, with more tokens (`shape`). The one idea: a pass of a drafter is a
small step of the same law, priced by the drafter's share of the model's bytes. No drafter has been measured here.

The first pass takes in what the model took in, prompts too; each further one is a decode of one token per sequence.
Source of the passes: vLLM 0.32, v1/worker/gpu/spec_decode. Looking n-grams up is left out: a scan of the text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.latency.graphs import GraphMode

if TYPE_CHECKING:
    from sim.drafters import DrafterSize
    from sim.latency.model import FusedLaw
    from sim.latency.shape import StepShape


def drafting_s(law: FusedLaw, drafter: DrafterSize, shape: StepShape) -> float:
    """GPU seconds of all of a step's passes."""
    if not drafter.passes:
        return 0.0
    seqs = shape.num_seqs
    tokens, mode = law.graphs.run(shape.num_tokens, seqs, shape.chunk_tokens)
    eager = 0.0 if mode is GraphMode.FULL else 1.0
    first: float = law.device_s(tokens, seqs, 0, 0, 0.0, eager)
    later: float = (drafter.passes - 1) * law.device_s(seqs, seqs, 0, 0, 0.0, 0.0)
    reading = law.context_s * shape.decode_context
    attention = drafter.passes * reading + law.mixed_context_s * shape.mixed_context + law.pair_s * shape.chunk_pairs
    return drafter.weights_read * (first + later) + drafter.kv * attention
