"""Leaps: many steps in which every running request gets one token and nobody joins or lacks a block, at once.

Not another algorithm: `advance(n)` leaves the scheduler exactly as n rounds of `schedule()` and `commit()` would, and
`outlook` says how far ahead that is sure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.core.step import Limit

if TYPE_CHECKING:
    from sim.core.cohort import Stretch
    from sim.core.request import Request
    from sim.core.scheduler import Scheduler


def may_be_quiet(scheduler: Scheduler, num_held: int) -> bool:
    """Nobody waits, or nobody can be admitted before somebody leaves; and the budget is enough for all who run."""
    num_running = len(scheduler.running)
    return 0 < num_running <= scheduler.token_budget and (num_running >= scheduler.seqs_cap or not num_held)


def outlook(scheduler: Scheduler, num_held: int, most: int) -> tuple[list[Stretch], list[int]]:
    """The rounds from here on that only give every running request one token, as `Cohort.outlook`; none if not sure.

    They `may_be_quiet`, and the scheduler is between rounds (sync), or has one step in flight, with a token for each
    running request (async).
    """
    config, running, cohort = scheduler.config, scheduler.running, scheduler.cohort
    if not scheduler.is_settled():
        return [], []
    cohort.gather(running)
    if len(cohort) < len(running) or not cohort.members:
        return [], []
    if num_held:
        most = min(most, cohort.first_finish())  # then somebody is admitted
    if config.kv_preemption == "offload":
        most = min(most, cohort.first_finish() - 1)  # then host memory is told
    return cohort.outlook(most)


class Advance:
    """Rounds that are over."""

    def __init__(self) -> None:
        self.alike: list[tuple[int, int, int, int]] = []
        """Rows of each step, requests that run, so many steps in a row that have them, and free blocks before those."""
        self.taken: list[int] = []
        """Blocks, by each step."""
        self.last: list[Request] = []
        """The rows of the last step."""
        self.finished: list[tuple[int, Request]] = []
        """After how many rounds, by the output that then came back, and who."""


def advance(scheduler: Scheduler, rounds: int) -> Advance:
    """Rounds at once, each a step scheduled and an output that comes back; no more than `outlook` knows of."""
    cohort, running, pool = scheduler.cohort, scheduler.running, scheduler.kv_cache_manager.block_pool
    over = Advance()
    done = 0
    while done < rounds:
        over.last = cohort.members[:]
        n = cohort.rounds_alike()
        if n > rounds - done:
            n = rounds - done
        over.alike.append((len(over.last), len(running), n, pool.num_free_blocks))
        over.taken += cohort.advance(n)
        done += n
        if cohort.ending:
            for request in scheduler.end_members():
                over.finished.append((done, request))
    return over


def limit_of(scheduler: Scheduler, num_seqs: int, num_waiting: int) -> Limit | None:
    """What keeps those out who wait, in a round with so many rows."""
    if not num_waiting:
        return None
    return Limit.TOKENS if num_seqs >= scheduler.token_budget else Limit.SEQS
