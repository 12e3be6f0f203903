"""What the model answers to a step. The only place that knows true output lengths; the core knows what a server knows.

A replayed request is sent with its true length as `max_tokens`, as benchmarks do with `--ignore-eos`, so every request
that catches up with its known tokens samples one token, and the core ends it by its length. With speculation it also
keeps its drafts up to the first one that is rejected: each request draws from a stream of its own, so the same seed
gives it the same luck whoever else is in the batch.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from sim.core.step import StepOutcome

if TYPE_CHECKING:
    from sim.core.config import SchedulerConfig
    from sim.core.request import Request
    from sim.core.step import StepPlan
    from sim.report.log import SampledTokens
    from sim.speculative import Speculation


def tokens_without_drafts(plan: StepPlan) -> SampledTokens:
    """What comes out of a step in which nobody drafts."""
    return len(plan.requests) - len(plan.partial), 0, 0


def sample(plan: StepPlan) -> StepOutcome:
    """One token for every position of the plan that caught up with its known tokens."""
    num_sampled = [1] * len(plan.requests)
    for position in plan.partial:
        num_sampled[position] = 0
    return StepOutcome(num_sampled)


class Sampler:
    """Answers the plans of one engine. Counts drafts as vLLM's SpecDecodingStats (v1/spec_decode/metrics.py)."""

    def __init__(self, config: SchedulerConfig, speculation: Speculation | None, seed: int) -> None:
        self._speculation = speculation
        self._seed = seed
        # Async, the scheduler counts on as many drafts as there may be; sync, it is told how many there are.
        self._new_drafts = 0 if config.async_scheduling else config.num_speculative_tokens
        self._streams: dict[Request, random.Random] = {}
        self.num_drafts = self.num_draft_tokens = 0
        self.accepted_per_pos = [0] * config.num_speculative_tokens

    def sample(self, plan: StepPlan) -> tuple[StepOutcome, SampledTokens]:
        """The tokens of `sample` and the drafts that are accepted, and what of them a log tells."""
        outcome = sample(plan)
        num_sampled = outcome.num_sampled
        if self._speculation is None:
            return outcome, tokens_without_drafts(plan)
        drafted = accepted = 0
        for position, drafts in plan.num_drafts.items():
            request = plan.requests[position]
            if num_sampled[position] and not request.is_finished:
                kept = self._accept(self._speculation, request, drafts)
                num_sampled[position] += kept
                drafted += drafts
                accepted += kept
        new_drafts = [self._new_drafts] * len(num_sampled) if self._new_drafts else None
        got = sum(
            min(n, request.final_num_tokens - request.num_tokens)
            for n, request in zip(num_sampled, plan.requests, strict=True)
            if not request.is_finished
        )
        return StepOutcome(num_sampled, num_new_drafts=new_drafts), (got, drafted, accepted)

    def forget(self, request: Request) -> None:
        """It is done."""
        self._streams.pop(request, None)

    def acceptance(self) -> dict[str, object] | None:
        """Drafts, and how many of their tokens were accepted at each position; None where nobody drafts."""
        if self._speculation is None:
            return None
        return {
            "num_drafts": self.num_drafts,
            "num_draft_tokens": self.num_draft_tokens,
            "num_accepted_tokens_per_pos": list(self.accepted_per_pos),
        }

    def _accept(self, speculation: Speculation, request: Request, drafts: int) -> int:
        stream = self._streams.get(request)
        if stream is None:
            stream = self._streams[request] = random.Random(f"{self._seed}/acceptance/{request.request_id}")
        accepted = 0
        for chance in speculation.chances[:drafts]:
            if stream.random() >= chance:
                break
            self.accepted_per_pos[accepted] += 1
            accepted += 1
        self.num_drafts += 1
        self.num_draft_tokens += drafts
        return accepted
