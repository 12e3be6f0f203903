"""Scheduling one step ahead: step k + 1 is decided before the output of step k is known.

A request that samples in a scheduled step counts that token, and its drafts, as known *placeholders* until the output
is back. Everything else is the synchronous algorithm. Mirrors vllm/v1/core/sched/async_scheduler.py (vLLM 0.32).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.core.request import RUNNING
from sim.core.scheduler import Scheduler

if TYPE_CHECKING:
    from sim.core.kv_cache_manager import KVCacheManager
    from sim.core.request import Request
    from sim.core.step_in_making import StepInMaking


class AsyncScheduler(Scheduler):
    """Call `schedule()` up to twice before `commit`; outcomes are committed in the order of their plans.

    An output that comes back after its request was preempted is *stale*: its tokens are delivered, and lengthen the
    request or even finish it, but nothing is rolled back for it. Nobody is admitted in a step that preempts, and before
    the next one the output is back; so an output is stale exactly when its request does not run. That of a swapped
    request is not: its KV has been kept.
    """

    def _after_schedule(self, step: StepInMaking) -> None:
        expect_drafts(step, self.config.num_speculative_tokens)

    def _append_tokens(self, request: Request, n: int) -> None:
        super()._append_tokens(request, n)
        take_place(request, n, self.kv_cache_manager)


def expect_drafts(step: StepInMaking, num_drafts: int) -> None:
    """The drafter will propose as many as it may; which ones they are need not be known before they run."""
    if num_drafts:
        for request in step.requests:
            if not request.is_prefill_chunk:
                request.num_draft_tokens = num_drafts


def take_place(request: Request, n: int, manager: KVCacheManager) -> None:
    """A request's tokens are known that had placeholders: hash the blocks that could not be when they were given."""
    if request.keeps_kv:
        request.num_output_placeholders -= n
    if request.status is RUNNING:
        manager.cache_blocks(request, request.num_computed_tokens - request.num_output_placeholders)
