"""Decodes that go on and on: running requests that get one token in every step, kept by counting steps.

Not another algorithm: whatever is out of the ordinary dissolves the cohort, and `Scheduler` goes the plain way. The one
idea: a member's counters follow from the steps since it joined, and when it fills a block and when it ends is known
ahead; so a step costs the same whether 2 or 200 decode, and many steps cost hardly more than one.

    running    | member | ending | member | member | prompt in flight | ...
               <------------ the cohort ----------->  the plain way
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from itertools import accumulate, count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sim.core.config import SchedulerConfig
    from sim.core.kv_cache_manager import KVCacheManager
    from sim.core.request import Request
    from sim.core.step_in_making import StepInMaking

_WORTH_IT = 3
"""Fewer rounds than this are not worth taking at once."""


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
        self._ends: list[tuple[int, int, Request]] = []
        """Heap of (rounds when it has had its last one, order of joining, member)."""
        self._hashes: dict[int, list[Request]] = {}
        """Hashed rounds -> members that have then filled a block which somebody may look for."""
        self._joins = count()

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

    def schedule(self, step: StepInMaking) -> None:
        """One round: every member's next token. If that is not all there is to it, the cohort dissolves instead."""
        num_members, pool = len(self.members), self._manager.block_pool
        needed = self._fills[self._rounds % self._size]
        if num_members > step.budget or needed > pool.num_free_blocks:
            self.dissolve()
            num_members = 0
        self.in_flight.append(num_members)
        if num_members:
            step.add_decodes(self.members, self.contexts())
            pool.take(needed)
            self._pass(1, len(self.in_flight) - 1)

    def commit(self) -> int:
        """The output of the oldest step in flight is back; how many of its first rows are done with that."""
        rows = self.in_flight.popleft()
        self._hash(self._rounds - len(self.in_flight))
        return rows

    def quiet_rounds(self, most: int) -> int:
        """Rounds from here on in which nobody ends, and blocks suffice; at most `most`."""
        if self.ending or not self.members:
            return 0
        # Sync, a round includes its output, and with it the end.
        last = self._ends[0][0] - self._rounds - (not self.in_flight)
        rounds = min(most, last)
        if rounds < _WORTH_IT:
            return 0
        return rounds if sum(self._blocks_needed(rounds)) <= self._manager.num_free_blocks else 0

    def advance(self, rounds: int) -> list[int]:
        """Quiet rounds at once; returns the free blocks after each of their steps was scheduled."""
        needed = self._blocks_needed(rounds)
        free = self._manager.num_free_blocks
        self._manager.block_pool.take(sum(needed))
        if self.in_flight:
            self.in_flight[-1] = len(self.members)
        self._pass(rounds, len(self.in_flight))
        return [free - taken for taken in accumulate(needed)]

    def contexts(self) -> list[int]:
        """Computed tokens of each member."""
        return [base + self._rounds for base in self._bases]

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
            self._ends = [entry for entry in self._ends if entry[-1] is not request]
            heapify(self._ends)
        request.joined = None

    def dissolve(self) -> None:
        """From here on nobody belongs to it, and each row of the steps in flight is looked at."""
        self.settle()
        for request in (*self.members, *self.ending):
            request.joined = None
        for entries in (self.members, self.ending, self._bases, self._ends, self._hashes):
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
        heappush(self._ends, (rounds + left, next(self._joins), request))
        if self._is_hashing and not request.nameless:
            full = (request.num_cached_blocks + 1) * self._size
            due = rounds + full - computed
            assert due > self._hashed_rounds
            self._hashes.setdefault(due, []).append(request)

    def _pass(self, rounds: int, unknown: int) -> None:
        """Rounds have been scheduled, the tokens of the last still unknown: hash, and part with who had its last."""
        self._rounds += rounds
        self._hash(self._rounds - unknown)
        while self._ends and self._ends[0][0] <= self._rounds:
            request = heappop(self._ends)[-1]
            self._leave(request)
            self.ending.append(request)

    def _leave(self, request: Request) -> None:
        self._settle(request)
        at = self.members.index(request)
        del self.members[at], self._bases[at]
        self._fills[(self._rounds - request.num_computed_tokens) % self._size] -= 1
        if self._is_hashing and not request.nameless:
            for due in self._hashes.values():
                if request in due:
                    due.remove(request)

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
        while self._hashed_rounds < rounds:
            self._hashed_rounds = self._hashed_rounds + 1 if self._hashes else rounds
            due = self._hashes.pop(self._hashed_rounds, None)
            for request in due or ():
                self._settle(request)
                self._hashes.setdefault(self._hashed_rounds + self._size, []).append(request)

    def _blocks_needed(self, rounds: int) -> list[int]:
        """Blocks to take in each of the next rounds."""
        start, size = self._rounds % self._size, self._size
        return (self._fills * (-(-rounds // size) + 1))[start : start + rounds]
