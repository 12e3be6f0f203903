"""What the model answers to a step. The only place that knows true output lengths; the core knows what a server knows.

A replayed request is sent with its true length as `max_tokens`, as benchmarks do with `--ignore-eos`, so every request
that catches up with its known tokens samples one token, and the core ends it by its length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.core.step import StepOutcome

if TYPE_CHECKING:
    from sim.core.step import StepPlan


def sample(plan: StepPlan) -> StepOutcome:
    """One token for every position of the plan that caught up with its known tokens."""
    num_sampled = [1] * len(plan.requests)
    for position in plan.partial:
        num_sampled[position] = 0
    return StepOutcome(num_sampled)
