"""A step while `schedule()` makes it: budgets go down, columns grow, and a victim can be taken out again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.core.step import StepPlan

if TYPE_CHECKING:
    from sim.core.config import SchedulerConfig
    from sim.core.request import Request


class StepInMaking(StepPlan):
    """The plan of a `schedule()` call, and what is left of its budgets.

    token_budget: the config's, which the scheduler has looked up. threshold: the cap on each request's tokens; at least
    the budget where there is none. num_placeholders: 1 where a step is decided before the output of the last is back,
    and each sampled token counts as known; else 0.
    """

    def __init__(self, config: SchedulerConfig, token_budget: int, threshold: int) -> None:
        super().__init__()
        self.threshold = threshold
        self.num_draft_slots = config.num_draft_slots
        self.num_placeholders = 1 if config.async_scheduling else 0
        self.token_budget = token_budget
        self.input_budget = config.max_num_batched_tokens
        """max_num_batched_tokens less what was scheduled, tokens and draft slots."""
        self.budget = 0
        """Tokens that the next request may take."""
        self._spend(0, 0)
        self.drafts: dict[Request, int] = {}
        """What becomes `num_drafts` when nobody is taken out any more."""
        self.prompt_in_flight = False
        """A running request was scheduled that had not caught up in its step before."""

    def _spend(self, num_tokens: int, num_slots: int) -> None:
        self.total_num_scheduled_tokens += num_tokens
        self.token_budget -= num_tokens
        self.input_budget -= num_tokens + num_slots
        self.budget = self.input_budget - self.num_draft_slots
        if self.budget > self.token_budget:
            self.budget = self.token_budget

    def add(self, request: Request, n: int) -> None:
        """Schedule n tokens of a request."""
        computed = request.num_computed_tokens
        if n > 1:
            self.chunks.append(len(self.requests))
        # Advanced when scheduled, not when the output is back.
        request.num_computed_tokens = computed + n
        request.is_prefill_chunk = computed + n < request.num_tokens + request.num_output_placeholders
        if request.is_prefill_chunk:
            self.partial.append(len(self.requests))
        elif self.num_placeholders:
            request.num_output_placeholders += 1 + self.drafts.get(request, 0)
        self.requests.append(request)
        self.num_scheduled_tokens.append(n)
        self.num_computed_tokens.append(computed)
        self._spend(n, self.num_draft_slots)

    def add_decodes(self, requests: list[Request], num_computed_tokens: list[int]) -> None:
        """Schedule one token of each request, none with drafts; what the requests say of themselves stays."""
        n = len(requests)
        self.requests += requests
        self.num_scheduled_tokens += [1] * n
        self.num_computed_tokens += num_computed_tokens
        self._spend(n, 0)

    def withdraw(self, request: Request) -> None:
        """Take a request out again, and give its tokens back to the budgets."""
        at = self.requests.index(request)
        n = self.num_scheduled_tokens.pop(at)
        del self.requests[at], self.num_computed_tokens[at]
        if self.num_placeholders and at not in self.partial:
            request.num_output_placeholders -= 1 + self.drafts.get(request, 0)
        self.chunks = [i - (i > at) for i in self.chunks if i != at]
        self.partial = [i - (i > at) for i in self.partial if i != at]
        self.drafts.pop(request, None)
        self._spend(-n, -self.num_draft_slots)
        request.num_computed_tokens -= n

    def close(self, num_running: int, num_waiting: int, num_free_blocks: int, num_host_blocks: int) -> StepPlan:
        """Nothing more is decided: the plan."""
        self.num_running, self.num_waiting = num_running, num_waiting
        self.num_free_blocks, self.num_host_blocks = num_free_blocks, num_host_blocks
        drafts = self.drafts
        if drafts:
            self.num_drafts = {i: drafts[request] for i, request in enumerate(self.requests) if request in drafts}
        return self
