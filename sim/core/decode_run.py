"""Leaps: many steps in which every running request gets one token, nobody joins, leaves or lacks a block, at once.

Not another algorithm: `advance(n)` leaves the scheduler exactly as n rounds of `schedule()` and `commit()` would, and
`quiet_steps` says up to which n that is sure. The one idea: in such steps only counters move.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from sim.core.step import Limit, StepPlan

if TYPE_CHECKING:
    from sim.core.scheduler import Scheduler

_WORTH_IT = 3
"""Fewer steps than this are not worth looking for."""


def quiet_steps(scheduler: Scheduler, most: int) -> int:
    """How many rounds from here on only give every running request one token; 0 where that is few or not sure.

    The scheduler must be between rounds (sync), or have one pure decode of all running requests in flight (async).
    """
    config, running, manager = scheduler.config, scheduler.running, scheduler.kv_cache_manager
    held_back = len(running) >= config.seqs_cap  # whoever waits cannot be admitted before somebody leaves
    if config.num_speculative_tokens or len(running) > config.token_budget or (scheduler.num_held and not held_back):
        return 0
    steps = most
    for request in running:
        if not request.quiet_tokens:
            return 0
        steps = min(steps, request.final_num_tokens - 1 - request.num_tokens, manager.quiet_steps(request))
        if steps < _WORTH_IT:
            return 0
    needed = sum(
        max(0, manager.blocks_for(request.num_computed_tokens + steps) - request.num_blocks) for request in running
    )
    return steps if needed <= manager.num_free_blocks else 0


def advance(scheduler: Scheduler, n: int) -> list[int]:
    """Do n quiet rounds; returns the free blocks after each of their `schedule()` calls."""
    manager, size = scheduler.kv_cache_manager, scheduler.config.block_size
    taken = [0] * n
    for request in scheduler.running:
        for step in range(request.num_blocks * size - request.num_computed_tokens, n, size):
            taken[step] += 1
    taken[0] -= manager.num_free_blocks
    for request in scheduler.running:
        request.num_computed_tokens += n
        request.num_tokens += n
        manager.extend_decode(request)
    return [-blocks for blocks in accumulate(taken)]


def decode_plan(scheduler: Scheduler, num_free_blocks: int) -> StepPlan:
    """The plan of the last round's `schedule()` call, whose output is still to come (async)."""
    running, num_waiting = scheduler.running, scheduler.num_held
    return StepPlan(
        requests=list(running),
        num_scheduled_tokens=[1] * len(running),
        num_computed_tokens=[request.num_computed_tokens - 1 for request in running],
        chunks=[],
        partial=[],
        num_drafts={},
        admitted=[],
        preempted=[],
        total_num_scheduled_tokens=len(running),
        num_running=len(running),
        num_waiting=num_waiting,
        num_free_blocks=num_free_blocks,
        limit=Limit.SEQS if num_waiting else Limit.NOTHING,
        num_host_blocks=scheduler.swap.num_used_blocks,
    )
