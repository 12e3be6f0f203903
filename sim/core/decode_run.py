"""Leaps: many steps in which every running request gets one token and nobody joins or lacks a block, at once.

Not another algorithm: `advance(n)` leaves the scheduler exactly as n rounds of `schedule()` and `commit()` would, and
`outlook` says how far ahead that is sure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sim.core.step import Limit, StepPlan

if TYPE_CHECKING:
    from sim.core.cohort import Round, Stretch
    from sim.core.request import Request
    from sim.core.scheduler import Scheduler


def outlook(scheduler: Scheduler, most: int) -> tuple[list[Stretch], list[int]]:
    """The rounds from here on that only give every running request one token, as `Cohort.outlook`; none if not sure.

    The scheduler must be between rounds (sync), or have one step in flight, with a token for each running request
    (async).
    """
    config, running, cohort = scheduler.config, scheduler.running, scheduler.cohort
    if not scheduler.is_settled():
        return [], []
    held_back = len(running) >= config.seqs_cap  # whoever waits cannot be admitted before somebody leaves
    if len(running) > config.token_budget or (scheduler.num_held and not held_back):
        return [], []
    cohort.gather(running)
    if len(cohort) < len(running) or not cohort.members:
        return [], []
    if scheduler.num_held:
        most = min(most, cohort.first_finish())  # then somebody is admitted
    if config.kv_preemption == "offload":
        most = min(most, cohort.first_finish() - 1)  # then host memory is told
    return cohort.outlook(most)


class Advance(NamedTuple):
    """Rounds that are over."""

    num_seqs: list[int]
    num_free_blocks: list[int]
    """Rows of each step, and the free blocks after it was made."""
    limits: list[Limit]
    last: Round
    finished: list[Request]
    """By the output that came back in the last round."""


def advance(scheduler: Scheduler, rounds: int) -> Advance:
    """Rounds at once, each a step scheduled and an output that comes back; nobody may finish before the last."""
    cohort = scheduler.cohort
    num_seqs = [len(cohort.members)] * (rounds - 1)
    free = cohort.advance(rounds - 1)
    last = cohort.go_round()
    num_seqs.append(len(last.requests))
    free.append(last.num_free_blocks)
    limits = [_limit(scheduler, num_seqs[0])] * (rounds - 1) + [_limit(scheduler, num_seqs[-1])]
    return Advance(num_seqs, free, limits, last, scheduler.commit_cohort()[1])


def schedule_round(scheduler: Scheduler) -> StepPlan:
    """What `schedule()` would decide, where that is the next quiet round."""
    if scheduler.config.kv_preemption == "offload":
        return scheduler.schedule()  # which also notes who is in a step in flight
    num_running = len(scheduler.running)
    return decode_plan(scheduler, scheduler.cohort.go_round(), num_running)


def decode_plan(scheduler: Scheduler, made: Round, num_running: int) -> StepPlan:
    """A round as `schedule()` would have returned it, with so many running."""
    num_waiting, num_seqs = scheduler.num_held, len(made.requests)
    return StepPlan(
        requests=made.requests,
        num_scheduled_tokens=[1] * num_seqs,
        num_computed_tokens=made.num_computed_tokens,
        chunks=[],
        partial=[],
        num_drafts={},
        admitted=[],
        preempted=[],
        total_num_scheduled_tokens=num_seqs,
        num_running=num_running,
        num_waiting=num_waiting,
        num_free_blocks=made.num_free_blocks,
        limit=_limit(scheduler, num_seqs),
        num_host_blocks=scheduler.num_host_blocks,
    )


def _limit(scheduler: Scheduler, num_seqs: int) -> Limit:
    """What keeps those out who wait, in a round with so many rows."""
    if not scheduler.num_held:
        return Limit.NOTHING
    return Limit.TOKENS if num_seqs >= scheduler.config.token_budget else Limit.SEQS
