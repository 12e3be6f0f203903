"""Leaps: many steps in which every running request gets one token and nobody joins or lacks a block, at once.

Not another algorithm: `advance(n)` leaves the scheduler exactly as n rounds of `schedule()` and `commit()` would, and
`outlook` says how far ahead that is sure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sim.core.step import Limit, StepOutcome, StepPlan

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
    """Rounds that are over: the last one, and those before it."""

    num_seqs: int
    """Rows of each step before the last."""
    num_free_blocks: list[int]
    """After each of those was made."""
    last: Round
    finished: list[Request]
    """By the output that came back in the last round."""


def advance(scheduler: Scheduler, rounds: int) -> Advance:
    """Rounds at once, each a step scheduled and an output that comes back; nobody may finish before the last."""
    cohort = scheduler.cohort
    num_seqs = len(cohort.members)
    free = cohort.advance(rounds - 1) if rounds > 1 else []
    last = cohort.go_round()
    return Advance(num_seqs, free, last, scheduler.commit_cohort()[1])


def commit_round(scheduler: Scheduler, made: Round) -> list[Request]:
    """Commit a round that `advance` has scheduled."""
    requests = made.requests
    plan = StepPlan(
        requests=requests,
        num_scheduled_tokens=[1] * len(requests),
        num_computed_tokens=made.num_computed_tokens,
        chunks=[],
        partial=[],
        num_drafts={},
        admitted=[],
        preempted=[],
        total_num_scheduled_tokens=len(requests),
        num_running=len(requests),
        num_waiting=0,
        num_free_blocks=made.num_free_blocks,
        limit=Limit.NOTHING,
    )
    return scheduler.commit(plan, StepOutcome([1] * len(requests)))


def limit_of(scheduler: Scheduler, num_seqs: int, num_waiting: int) -> Limit:
    """What keeps those out who wait, in a round with so many rows."""
    if not num_waiting:
        return Limit.NOTHING
    return Limit.TOKENS if num_seqs >= scheduler.config.token_budget else Limit.SEQS
