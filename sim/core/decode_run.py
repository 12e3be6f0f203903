"""Leaps: many steps in which every running request gets one token, nobody joins, leaves or lacks a block, at once.

Not another algorithm: `Cohort.advance(n)` leaves the scheduler exactly as n rounds of `schedule()` and `commit()`
would, and `quiet_steps` says up to which n that is sure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.core.step import Limit, StepPlan

if TYPE_CHECKING:
    from sim.core.scheduler import Scheduler


def quiet_steps(scheduler: Scheduler, most: int) -> int:
    """How many rounds from here on only give every running request one token; 0 where that is few or not sure.

    The scheduler must be between rounds (sync), or have one step in flight, with a token for each running request
    (async).
    """
    config, running, cohort = scheduler.config, scheduler.running, scheduler.cohort
    if not scheduler.is_settled():
        return 0
    held_back = len(running) >= config.seqs_cap  # whoever waits cannot be admitted before somebody leaves
    if len(running) > config.token_budget or (scheduler.num_held and not held_back):
        return 0
    cohort.gather(running)
    return cohort.quiet_rounds(most) if len(cohort.members) == len(running) else 0


def decode_plan(scheduler: Scheduler, num_free_blocks: int) -> StepPlan:
    """The plan of the last round's `schedule()` call, whose output is still to come (async)."""
    running, num_waiting = scheduler.running, scheduler.num_held
    return StepPlan(
        requests=list(running),
        num_scheduled_tokens=[1] * len(running),
        num_computed_tokens=[context - 1 for context in scheduler.cohort.contexts()],
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
        num_host_blocks=scheduler.num_host_blocks,
    )
