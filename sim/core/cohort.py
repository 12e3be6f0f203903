"""Decodes that go on and on: running requests that get one token in every step, kept by counting steps.

Not another algorithm: whatever is out of the ordinary dissolves the cohort, and `Scheduler` goes the plain way. The one
idea: a member's counters follow from the steps since it joined, and when it fills a block and when it ends is known
ahead; so a step costs the same whether 2 or 200 decode, and many steps cost hardly more than one.

    running    | member | ending | member | member | prompt in flight | ...
               <------------ the cohort ----------->  the plain way
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sim.core.config import SchedulerConfig
    from sim.core.kv_cache_manager import KVCacheManager
    from sim.core.request import Request
    from sim.core.step_in_making import StepInMaking


Stretch = tuple[int, range]
"""Rounds in a row with the same members: how many, and their computed tokens before each round, summed up."""


class Cohort:
    """The first of the running requests, in order of admission, as far as nothing is special about them.

    A *round* is a step in which every member got its token. Blocks are taken from the pool when they are needed, as
    a number; a member's own counters, blocks and hashes are brought up to date by `settle`.
    """

    def __init__(self, config: SchedulerConfig, manager: KVCacheManager, *, is_open: bool) -> None:
        self.members: list[Request] = []
        self.ending: list[Request] = []
        """Their last token is on its way: no more steps, but each output that comes back is for them, too."""
        self.in_flight: deque[int] = deque()
        """Steps whose output is still to come, oldest first: how many of their first rows the cohort answers for."""
        self._is_open = is_open
        self._manager = manager
        self._pool = manager.block_pool
        self._size = config.block_size
        self._async = config.async_scheduling
        self._is_hashing = config.enable_prefix_caching
        self._rounds = 0
        self._hashed_rounds = 0
        """The tokens of so many rounds are known and computed: blocks that they filled have their hash."""
        self._bases: list[int] = []
        """Members' computed tokens less the rounds."""
        self._fills = [0] * config.block_size
        """Members by the round, modulo block size, that finds their blocks full."""
        self._ends: dict[int, list[Request]] = {}
        """Rounds -> members that have then had their last one."""
        self._calendar: list[int] = []
        """The same rounds, ascending."""
        self._hashes: dict[int, list[Request]] = {}
        """Hashed rounds -> members that have then filled a block which somebody may look for."""

    def __len__(self) -> int:
        return len(self.members) + len(self.ending)

    def gather(self, running: list[Request]) -> None:
        """Before a step: take in who has caught up with its known tokens, up to the first that has not.

        Behind somebody who waits for its turn nobody joins, since the order in which budgets are used up counts.
        """
        if not self.members:
            self._hashed_rounds = self._rounds - len(self.in_flight)
        for request in running[len(self) :] if self._is_open else ():
            uncomputed = request.num_tokens + request.num_output_placeholders - request.num_computed_tokens
            # Every output to come must be for it, or its known tokens would not follow from the rounds.
            outputs = request.num_output_placeholders if self._async else 0
            if uncomputed != 1 or outputs != len(self.in_flight):
                return
            self._join(request)

    @property
    def num_new_blocks(self) -> int:
        """Blocks that the next round needs."""
        return self._fills[self._rounds % self._size]

    def schedule(self, step: StepInMaking, taken: int) -> None:
        """One round: every member's next token. If that is not all there is to it, the cohort dissolves instead.

        taken: blocks for it that the pool has given already.
        """
        needed = self.num_new_blocks - taken
        if len(self.members) > step.budget or needed > self._pool.num_free_blocks:
            self.dissolve()
        if self.members:
            step.add_decodes(self.members, [base + self._rounds for base in self._bases])
            self._pool.take(needed)
            self.in_flight.append(len(self.members))
            self._pass(1, len(self.in_flight) - 1)
        else:
            self.in_flight.append(0)

    def commit(self) -> int:
        """The output of the oldest step in flight is back; how many of its first rows are done with that."""
        rows = self.in_flight.popleft()
        self._hash(self._rounds - len(self.in_flight))
        return rows

    def first_finish(self) -> int:
        """After how many rounds somebody finishes; there must be members."""
        # Async, a round ends with the output of the step before its own.
        return 1 if self.ending else self._calendar[0] - self._rounds + len(self.in_flight)

    def outlook(self, most: int) -> tuple[list[Stretch], list[int]]:
        """The rounds ahead, at most so many, for which blocks suffice; and after how many of them somebody finishes."""
        while sum(self._blocks_needed(most)) > self._pool.num_free_blocks:
            most //= 2
        finishes = [1] if self.ending else []
        stretches: list[Stretch] = []
        members, start, now = len(self.members), 0, self._rounds
        context = sum(self._bases) + members * now
        for at in self._calendar:
            end = at - now
            if end > most:
                break
            after = context + members * (end - start)
            stretches.append((members, range(context, after, members)))
            context, start = after, end
            for request in self._ends[at]:
                context -= request.final_num_tokens - 1
                members -= 1
            finishes.append(end + len(self.in_flight))
        if members and start < most:
            stretches.append((members, range(context, context + members * (most - start), members)))
        return stretches, finishes

    def rounds_alike(self) -> int:
        """Rounds with the same rows, after which somebody parts; there must be members."""
        return 1 if self.ending else self._calendar[0] - self._rounds

    def advance(self, rounds: int) -> list[int]:
        """Rounds at once, each with the output of a step; returns the blocks that each took.

        At most `rounds_alike`.
        """
        taken = self._blocks_needed(rounds)
        self._pool.take(sum(taken))
        self.in_flight.append(len(self.members))
        self._pass(rounds, len(self.in_flight) - 1)
        self.in_flight.popleft()
        return taken

    def settle(self) -> None:
        """Bring everything that members say of themselves up to date."""
        for request in self.members:
            self._settle(request)

    def drop(self, request: Request) -> None:
        """A request leaves the running ones; nothing happens unless it belongs to the cohort."""
        if request.joined is None:
            return
        if request in self.ending:
            self.ending.remove(request)
        else:
            self._leave(request)
            self._cancel(request)
        request.joined = None

    def preempt(self, request: Request) -> None:
        """A running request, member or not, goes; outputs on their way are stale for it, so each row is looked at."""
        self.drop(request)
        self.in_flight = deque([0] * len(self.in_flight))

    def dissolve(self) -> None:
        """From here on nobody belongs to it, and each row of the steps in flight is looked at."""
        self.settle()
        for request in (*self.members, *self.ending):
            request.joined = None
        for entries in (self.members, self.ending, self._bases, self._ends, self._calendar, self._hashes):
            entries.clear()
        self._fills = [0] * self._size
        self.in_flight = deque([0] * len(self.in_flight))

    def _join(self, request: Request) -> None:
        request.joined = rounds = self._rounds
        computed = request.num_computed_tokens
        left = request.final_num_tokens - 1 - computed  # the last token is never computed
        if not left:
            self.ending.append(request)
            return
        self.members.append(request)
        self._bases.append(computed - rounds)
        self._fills[(rounds - computed) % self._size] += 1
        self._end_at(rounds + left, request)
        if self._is_hashing and not request.nameless:
            full = (request.num_cached_blocks + 1) * self._size
            due = rounds + full - computed
            assert due > self._hashed_rounds
            self._hashes.setdefault(due, []).append(request)

    def _end_at(self, rounds: int, request: Request) -> None:
        members = self._ends.get(rounds)
        if members is None:
            self._ends[rounds] = [request]
            insort(self._calendar, rounds)
        else:
            members.append(request)

    def _cancel(self, request: Request) -> None:
        """Take a member out of the calendar."""
        end = self._rounds + request.final_num_tokens - 1 - request.num_computed_tokens
        _remove(self._ends, end, request)
        if end not in self._ends:
            del self._calendar[bisect_left(self._calendar, end)]

    def _pass(self, rounds: int, unknown: int) -> None:
        """Rounds have been scheduled, the tokens of the last still unknown: hash, and part with who had its last."""
        self._rounds += rounds
        self._hash(self._rounds - unknown)
        if self._calendar and self._calendar[0] == self._rounds:
            del self._calendar[0]
            for request in self._ends.pop(self._rounds):
                self._leave(request)
                self.ending.append(request)

    def _leave(self, request: Request) -> None:
        self._settle(request)
        at = self.members.index(request)
        del self.members[at], self._bases[at]
        self._fills[(self._rounds - request.num_computed_tokens) % self._size] -= 1
        if self._is_hashing and not request.nameless:
            for due in [due for due, members in self._hashes.items() if request in members]:
                _remove(self._hashes, due, request)

    def _settle(self, request: Request) -> None:
        assert request.joined is not None
        request.num_computed_tokens = computed = request.num_computed_tokens + self._rounds - request.joined
        request.joined = self._rounds
        request.num_tokens = computed + 1 - len(self.in_flight)
        request.num_output_placeholders = len(self.in_flight) if self._async else 0
        self._manager.own(request, computed)
        self._manager.cache_blocks(request, computed - (self._rounds - self._hashed_rounds))

    def _hash(self, rounds: int) -> None:
        """The tokens of so many rounds are known and computed."""
        if not self._hashes:
            if rounds > self._hashed_rounds:
                self._hashed_rounds = rounds
            return
        while self._hashed_rounds < rounds:
            self._hashed_rounds += 1
            due = self._hashes.pop(self._hashed_rounds, None)
            for request in due or ():
                self._settle(request)
                self._hashes.setdefault(self._hashed_rounds + self._size, []).append(request)

    def _blocks_needed(self, rounds: int) -> list[int]:
        """Blocks to take in each of the next rounds."""
        start, size = self._rounds % self._size, self._size
        stop = start + rounds
        return self._fills[start:stop] if stop <= size else (self._fills * -(-stop // size))[start:stop]


def _remove(calendar: dict[int, list[Request]], due: int, request: Request) -> None:
    calendar[due].remove(request)
    if not calendar[due]:
        del calendar[due]
