"""Offloading with steps in flight: what these may still write is not free before they have been processed.

Mirrors the deferred frees of vllm/v1/core/sched/scheduler.py (vLLM 0.32), which it needs with a connector only.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from sim.core.async_scheduler import expect_drafts, take_place
from sim.core.offloading import OffloadingScheduler

if TYPE_CHECKING:
    from sim.core.config import SchedulerConfig
    from sim.core.request import Request
    from sim.core.step import StepPlan
    from sim.core.step_in_making import StepInMaking


class AsyncOffloadingScheduler(OffloadingScheduler):
    """Nobody is preempted who is in a step in flight: the request that lacks blocks, and all behind it, sit it out.

    What `AsyncScheduler` adds is added here, too.
    """

    def __init__(self, config: SchedulerConfig, *, cohorts: bool = True) -> None:
        super().__init__(config, cohorts=cohorts)
        self._in_flight: deque[StepPlan] = deque()
        self.unfreed: dict[Request, None] = {}
        """Finished, with blocks that a step in flight may write."""

    def schedule(self) -> StepPlan:
        """Decide the next step."""
        plan = super().schedule()
        if plan.requests:
            self._in_flight.append(plan)
        return plan

    def commit_cohort(self) -> tuple[int, list[Request]]:
        """The oldest step is over: take in the blocks of those, too, who were finished before."""
        self._in_flight.popleft()
        for request in [request for request in self.unfreed if not self._flies(request)]:
            del self.unfreed[request]
            self.kv_cache_manager.free(request)
        return super().commit_cohort()

    def holding(self) -> list[Request]:
        """Requests with KV blocks: also those that steps in flight keep."""
        return [*super().holding(), *self.unfreed]

    def _after_schedule(self, step: StepInMaking) -> None:
        expect_drafts(step, self.config.num_speculative_tokens)
        super()._after_schedule(step)

    def _append_tokens(self, request: Request, n: int) -> None:
        super()._append_tokens(request, n)
        take_place(request, n, self.kv_cache_manager)

    def _flies(self, request: Request) -> bool:
        return any(request in plan.requests for plan in self._in_flight)

    def _may_preempt(self, victim: Request) -> bool:
        return not self._flies(victim)

    def _free(self, request: Request) -> None:
        if self._flies(request):
            self.unfreed[request] = None
        else:
            super()._free(request)
