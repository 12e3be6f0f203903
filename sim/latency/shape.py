"""What a step's time depends on: a handful of sums over its plan.

Not for seconds: that is model.py. The one idea: requests disappear, only their totals are priced, so a step with 256
requests costs the pricing as little as one with 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from sim.core.step import StepPlan


class StepShape(NamedTuple):
    """Totals of one step, in tokens, rows and query-key pairs. A tuple, as one is made for every simulated step.

    A *decode row* computes one token of one sequence, and the drafts behind it where it verifies any: its K and V are
    read once for all of them. A *chunk* is any other sequence with more than one token (a part of a prompt, a resumed
    sequence). Contexts are logical: blocks that two requests share are read by both.
    """

    num_tokens: int
    """Tokens computed in the step: every GEMM sees all of them at once."""
    num_seqs: int
    """Rows and chunks together."""
    decode_context: int
    """Tokens in the KV cache that the decode rows attend to, summed over the rows."""
    chunk_tokens: int
    """Tokens in chunks; 0: pure decode."""
    chunk_pairs: float
    """Query-key pairs of the chunks: n tokens after a context c make n * (c + n / 2), as attention is causal."""
    num_sampled: int
    """Sequences that sample in this step."""
    num_drafts: int = 0
    """Draft tokens of the decode rows: each is a row of the LM head, and of the sampler, more."""

    @classmethod
    def from_plan(cls, plan: StepPlan) -> StepShape:
        """Sum up a plan: one C-speed pass, and a look at each chunk."""
        computed, scheduled = plan.num_computed_tokens, plan.num_scheduled_tokens
        context = sum(computed)
        tokens = 0
        pairs = 0.0
        drafts = plan.num_drafts
        for i in plan.chunks:
            if i in drafts:
                continue
            before, new = computed[i], scheduled[i]
            context -= before
            tokens += new
            pairs += new * (before + 0.5 * new)
        num_seqs = len(scheduled)
        sampled = num_seqs - len(plan.partial)
        total = plan.total_num_scheduled_tokens
        return cls(total, num_seqs, context, tokens, pairs, sampled, sum(drafts.values()) if drafts else 0)

    @property
    def mixed_context(self) -> int:
        """The decode rows' context where chunks are beside them, else 0."""
        return self.decode_context if self.chunk_tokens else 0
