"""Invariants of the core, checked from outside after a `schedule()` or `commit()`. Slow, for tests and for `--check`.

Each check says what no sequence of requests may ever break; `Invariants` also remembers what the last step left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.core.offloading import OffloadingScheduler
from sim.core.request import PREEMPTED, RUNNING, SWAPPED, WAITING

if TYPE_CHECKING:
    from sim.core.block_pool import Block
    from sim.core.request import Request
    from sim.core.scheduler import Scheduler
    from sim.core.step import StepPlan


class InvariantError(AssertionError):
    """The core is in a state that must not exist: a bug of ours, never of the input."""


def _require(ok: bool, message: str) -> None:
    if not ok:
        raise InvariantError(message)


class Invariants:
    """Watches one scheduler. Call `plan_made` after each `schedule()`, `settled` after each `commit()` or `abort()`."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._first_admissions: list[Request] = []

    def plan_made(self, plan: StepPlan) -> None:
        """The plan keeps to its budgets, and to first come, first served."""
        config = self._scheduler.config
        self._scheduler.cohort.settle()
        total = sum(plan.num_scheduled_tokens)
        _require(total == plan.total_num_scheduled_tokens, f"total {plan.total_num_scheduled_tokens}, sum {total}")
        _require(total <= config.token_budget, f"{total} tokens scheduled, the budget is {config.token_budget}")
        rows = total + config.num_draft_slots * len(plan.requests)
        _require(rows <= config.max_num_batched_tokens, f"{rows} input rows, max is {config.max_num_batched_tokens}")
        _require(plan.num_running <= config.seqs_cap, f"{plan.num_running} running, the cap is {config.seqs_cap}")
        _require(len(set(map(id, plan.requests))) == len(plan.requests), "a request is scheduled twice")
        _require(not (plan.preempted and plan.admitted), "admitted in a step that preempted")
        _require(not (plan.preempted and plan.swapped_in), "swapped in in a step that preempted")
        _require(not (plan.admitted and self._scheduler.swap.held), "admitted while others were swapped out")
        for position, request in enumerate(plan.requests):
            n = plan.num_scheduled_tokens[position]
            _require(n >= 1, f"{request.request_id} is scheduled {n} tokens")
            _require((n > 1) == (position in plan.chunks), f"{request.request_id}: {n} tokens, chunk or not?")
            reached = plan.num_computed_tokens[position] + n - plan.num_drafts.get(position, 0)
            partial = reached < request.num_tokens + self._placeholders_before(plan, position)
            _require(partial == (position in plan.partial), f"{request.request_id}: partial or not?")
        self._check_first_come(plan)
        self.settled()

    def _placeholders_before(self, plan: StepPlan, position: int) -> int:
        """A request's placeholders when the step was decided: those for its own tokens came after."""
        placeholders = plan.requests[position].num_output_placeholders
        if not self._scheduler.config.async_scheduling or position in plan.partial:
            return placeholders
        return placeholders - 1 - plan.num_drafts.get(position, 0)

    def settled(self) -> None:
        """Blocks are conserved, references are counted, and nobody is in two places."""
        self._scheduler.cohort.settle()
        self._check_places()
        self._check_host()
        if isinstance(self._scheduler, OffloadingScheduler):
            _check_tier(self._scheduler)
        self._check_blocks()

    def _check_first_come(self, plan: StepPlan) -> None:
        """fcfs: requests are admitted for the first time in the order in which they came."""
        config = self._scheduler.config
        if config.policy != "fcfs" or config.kv_preemption == "offload":  # who waits for a transfer is passed over
            return
        fresh = [request for request, _ in plan.admitted if request.num_preemptions == 0]
        last = self._first_admissions[-1:]
        for earlier, later in zip([*last, *fresh], fresh, strict=False):
            _require(
                earlier.arrival_time <= later.arrival_time,
                f"{later.request_id} was admitted after {earlier.request_id}, which came later",
            )
        self._first_admissions = fresh[-1:] or last

    def _check_places(self) -> None:
        running, waiting = self._scheduler.running, list(self._scheduler.waiting)
        swapped = list(self._scheduler.swap.requests)
        everybody = [*running, *self._scheduler.held()]
        _require(len(set(map(id, everybody))) == len(everybody), "a request both runs and waits, or does one twice")
        for request in running:
            _require(request.status is RUNNING, f"{request.request_id} runs as {request.status.value}")
        for request in waiting:
            _require(
                request.status in (WAITING, PREEMPTED),
                f"{request.request_id} waits as {request.status.value}",
            )
            _require(not request.num_blocks, f"{request.request_id} waits and holds {request.num_blocks} blocks")
            _require(request.num_computed_tokens == 0, f"{request.request_id} waits with computed tokens")
        for request in swapped:
            _require(request.status is SWAPPED, f"{request.request_id} is swapped as {request.status.value}")
            _require(not request.num_blocks, f"{request.request_id} is swapped and holds {request.num_blocks} blocks")

    def _check_host(self) -> None:
        """Host blocks are conserved, and hold what a swapped request has computed."""
        swap, blocks_for = self._scheduler.swap, self._scheduler.kv_cache_manager.blocks_for
        _require(set(map(id, swap.held)) == set(map(id, swap.requests)), "who is swapped out is not who holds space")
        for request, blocks in swap.held.items():
            needed = blocks_for(request.num_computed_tokens)
            _require(blocks >= needed > 0, f"{request.request_id}: {blocks} host blocks, {needed} are computed")
        held = sum(swap.held.values())
        _require(held == swap.num_used_blocks, f"{held} host blocks held, {swap.num_used_blocks} in use")
        _require(held <= swap.num_blocks, f"{held} host blocks held, of {swap.num_blocks}")

    def _check_blocks(self) -> None:
        pool, holding = self._scheduler.kv_cache_manager.block_pool, self._scheduler.holding()
        _require(len(set(map(id, holding))) == len(holding), "a request holds its blocks twice")
        holders: dict[Block, int] = {}
        for request in holding:
            self._check_holder(request)
            for block in request.blocks:
                holders[block] = holders.get(block, 0) + 1
        for block, references in holders.items():
            _require(block.ref_cnt == references, f"block {block.block_id}: {block.ref_cnt} != {references} holders")
        free = pool.count_free()
        _require(pool.num_free_blocks == free, f"{pool.num_free_blocks} blocks count as free, {free} are")
        total = free + len(holders) + sum(request.num_blocks for request in holding if request.nameless)
        usable = self._scheduler.config.usable_blocks
        _require(total == usable, f"{total} blocks free or held, there are {usable}")

    def _check_holder(self, request: Request) -> None:
        name, held = request.request_id, request.num_blocks
        needed = -(-request.num_computed_tokens // self._scheduler.config.block_size)
        _require(held >= needed, f"{name}: {held} blocks for {request.num_computed_tokens} tokens")
        named = 0 if request.nameless else held
        _require(len(request.blocks) == named, f"{name}: names for {len(request.blocks)} blocks, expected {named}")
        cached = request.num_cached_blocks
        _require(cached <= held, f"{name}: {cached} of {held} blocks cached")
        _require(
            all((block.block_hash is not None) == (i < cached) for i, block in enumerate(request.blocks)),
            f"{name}: its first {cached} blocks, and no others, should carry a hash",
        )


def _check_tier(scheduler: OffloadingScheduler) -> None:
    """The host tier keeps to its size, and knows of every transfer."""
    tier = scheduler.tier
    _require(tier.num_used_blocks <= tier.num_blocks, f"{tier.num_used_blocks} blocks in {tier.num_blocks} of the host")
    kept, counted = tier.count_idle()
    _require(kept == counted, f"{kept} host blocks count as idle, {counted} are")
    written = [block for open_ in scheduler.transfers.values() if open_.is_store for block in open_.hashes]
    _require(len(set(written)) == len(written), "a block is stored twice at once")
    _require(all(tier.holds(block) and not tier.is_readable(block) for block in written), "a store has lost its place")
    read = {block for open_ in scheduler.transfers.values() if not open_.is_store for block in open_.hashes}
    _require(all(tier.is_readable(block) for block in read), "what is loaded is not there")
    busy = tier.num_used_blocks - counted
    _require(
        busy == len(written) + len(read), f"{busy} host blocks are busy, transfers know of {len(written) + len(read)}"
    )
    for request in scheduler.loading:
        _require(request.num_blocks > 0, f"{request.request_id} waits for its load and holds no blocks")
        _require(request.status is not RUNNING, f"{request.request_id} loads and runs")
