"""Scheduling one step ahead: step k + 1 is decided before the output of step k is known.

A request that samples in a scheduled step counts that token, and its drafts, as known *placeholders* until the output
is back. Everything else is the synchronous algorithm. Mirrors vllm/v1/core/sched/async_scheduler.py (vLLM 0.32).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.core.request import Status
from sim.core.scheduler import Scheduler

if TYPE_CHECKING:
    from sim.core.request import Request
    from sim.core.step_in_making import StepInMaking

_COUNTING = (Status.RUNNING, Status.SWAPPED)
"""Where a request has its computed tokens, those of the step in flight among them."""


class AsyncScheduler(Scheduler):
    """Call `schedule()` up to twice before `commit`; outcomes are committed in the order of their plans.

    An output that comes back after its request was preempted is *stale*: its tokens are delivered, and lengthen the
    request or even finish it, but nothing is rolled back for it. Nobody is admitted in a step that preempts, and before
    the next one the output is back; so an output is stale exactly when its request does not run. That of a swapped
    request is not: its KV has been kept.
    """

    def _num_new_tokens(self, request: Request, step: StepInMaking) -> int:
        """0 also where the step in flight is sure to reach max_tokens, even if all its drafts are rejected."""
        placeholders = request.num_output_placeholders
        if placeholders:
            certain = request.num_computed_tokens + 2 - placeholders
            if certain >= request.num_prompt_tokens + request.max_tokens:
                return 0
        return super()._num_new_tokens(request, step)

    def _after_schedule(self, step: StepInMaking) -> None:
        """The drafter will propose as many as it may; which ones they are need not be known before they run."""
        num_drafts = self.config.num_speculative_tokens
        if num_drafts:
            for request in step.requests:
                if not request.is_prefill_chunk:
                    request.num_draft_tokens = num_drafts

    def _reject_drafts(self, request: Request, rejected: int) -> None:
        if request.status in _COUNTING:
            super()._reject_drafts(request, rejected)
            request.num_output_placeholders -= rejected

    def _append_tokens(self, request: Request, n: int) -> None:
        super()._append_tokens(request, n)
        if request.status in _COUNTING:
            request.num_output_placeholders -= n
        if request.status is Status.RUNNING:
            self._cache_output(request)

    def _cache_output(self, request: Request) -> None:
        """Hash the blocks that were not when they were given, as their tokens were not known yet."""
        self.kv_cache_manager.cache_blocks(request, request.num_computed_tokens - request.num_output_placeholders)
