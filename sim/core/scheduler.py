"""vLLM V1's scheduling loop: how many tokens of which request go into the next forward pass.

There is no prefill phase and no decode phase: a request only catches up its computed tokens with its known tokens.
Running requests come first, in order of admission; then waiting ones, unless somebody had to be preempted.
Mirrors vllm/v1/core/sched/scheduler.py (vLLM 0.32), synchronous scheduling; async_scheduler.py is the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.core.cohort import Cohort
from sim.core.kv_cache_manager import KVCacheManager
from sim.core.outputs import Outputs
from sim.core.request import ABORTED, PREEMPTED, RUNNING, SWAPPED, Request
from sim.core.request_queue import RequestQueue, make_queue
from sim.core.servable import check_servable
from sim.core.step import Limit, StepPlan
from sim.core.step_in_making import StepInMaking
from sim.core.swap import SwapSpace

if TYPE_CHECKING:
    from sim.core.config import SchedulerConfig


class Scheduler(Outputs):
    """Decides step by step. Call `add_request` and `abort` at any time, then `schedule()` and `commit()` in turn.

    cohorts: see `sim.core.cohort`; without, the same is decided, request by request.
    """

    def __init__(self, config: SchedulerConfig, *, cohorts: bool = True) -> None:
        self.config = config
        self.kv_cache_manager = KVCacheManager(config)
        self.cohort = Cohort(config, self.kv_cache_manager, is_open=cohorts and config.has_cohorts)
        self.waiting: RequestQueue = make_queue(config.policy)
        self.swap = SwapSpace(config)
        self.running: list[Request] = []
        self.token_budget, self.seqs_cap = config.token_budget, config.seqs_cap  # looked at in every step

    @property
    def num_unfinished(self) -> int:
        """Requests that run, wait or are swapped out."""
        return len(self.running) + self.num_held

    @property
    def num_held(self) -> int:
        """Requests that wait for admission, swapped ones among them."""
        return len(self.waiting) + len(self.swap.requests)

    @property
    def num_host_blocks(self) -> int:
        """Blocks of host memory in use."""
        return self.swap.num_used_blocks

    def held(self) -> list[Request]:
        """Requests that wait, swapped ones first."""
        return [*self.swap.requests, *self.waiting]

    def holding(self) -> list[Request]:
        """Requests with KV blocks."""
        return self.running

    def has_news(self) -> bool:
        """Somebody left since the last step, and that is worth a step (offloading)."""
        return False

    def transfer_done(self, number: int) -> None:
        """A load or store of an earlier plan is over (offloading: no other plan has any)."""
        raise NotImplementedError

    def is_settled(self) -> bool:
        """No KV is on its way beside the steps, nor has to be sent before the next."""
        return True

    def add_request(self, request: Request) -> None:
        """Queue a request. Raises RequestRejected if it could never be served."""
        config = self.config
        final = request.num_prompt_tokens + request.max_tokens
        request.final_num_tokens = final if final < config.max_model_len else config.max_model_len
        check_servable(request, config)
        self.waiting.add(request)

    def abort(self, request: Request) -> None:
        """Drop a request wherever it is; nothing happens if it has left already."""
        if not request.is_finished:
            self._drop(request)
            request.status = ABORTED

    def schedule(self) -> StepPlan:
        """Decide the next step. Sync: its plan must be answered by `commit` before the next call."""
        step = StepInMaking(self.config, self.token_budget, self._long_prefill_threshold())
        self._schedule_running(step)
        if step.preempted:
            step.limit = Limit.PREEMPTION
        else:
            self._schedule_waiting(step)
        self._after_schedule(step)
        if not step.requests:
            self.cohort.in_flight.pop()
        num_free = self.kv_cache_manager.block_pool.num_free_blocks
        return step.close(len(self.running), self.num_held, num_free, self.num_host_blocks)

    def _drop(self, request: Request) -> None:
        """It leaves, wherever it is: async, a request can get its last token while it waits after a preemption."""
        if request.status is RUNNING:
            self.cohort.drop(request)
            self.running.remove(request)
            self._free(request)
        elif request.status is SWAPPED:
            self.swap.give_back(request)
        else:
            self.waiting.remove(request)

    def _free(self, request: Request) -> None:
        self.kv_cache_manager.free(request)

    def _after_schedule(self, step: StepInMaking) -> None:
        """What async scheduling adds."""

    def _long_prefill_threshold(self) -> int:
        """The cap on one request's tokens in this step. A request that is alone has nobody to starve."""
        config = self.config
        threshold = config.long_prefill_token_threshold
        if threshold == 0 or self.num_unfinished <= 1:
            return config.max_num_batched_tokens
        if config.long_prefill_token_threshold_adaptive:
            return max(threshold, config.max_num_batched_tokens // self.num_unfinished)
        return threshold

    def _schedule_running(self, step: StepInMaking) -> None:
        """Running requests, in order of admission, while budget is left."""
        running = self.running
        self.cohort.gather(running)
        self.cohort.schedule(step, self._make_room_for_cohort(step))
        index = len(self.cohort)
        while index < len(running) and step.budget > 0:
            request = running[index]
            n = self._num_new_tokens(request, step)
            if n <= 0:
                index += 1
                continue
            if not self._make_room(request, n, step):
                return
            if step.preempted:  # a victim before this request has shifted it
                index = running.index(request)
            step.prompt_in_flight |= request.is_prefill_chunk
            if request.num_draft_tokens:
                self._schedule_drafts(request, n, step)
            step.add(request, n)
            index += 1

    def _num_new_tokens(self, request: Request, step: StepInMaking) -> int:
        """How far a running request may catch up in this step.

        Not at all where the step in flight is sure to reach max_tokens, even if all its drafts are rejected.
        """
        placeholders, computed = request.num_output_placeholders, request.num_computed_tokens
        if placeholders and computed + 2 - placeholders >= request.num_prompt_tokens + request.max_tokens:
            return 0
        known = request.num_tokens + placeholders
        # Room for the token that is sampled behind the drafts.
        room = self.config.max_model_len - 1 - computed
        return min(known + request.num_draft_tokens - computed, step.threshold, step.budget, room)

    def _schedule_drafts(self, request: Request, n: int, step: StepInMaking) -> None:
        """Of a request's drafts, those that its n tokens reach are verified; the others are lost."""
        known = request.num_tokens + request.num_output_placeholders
        reached = request.num_computed_tokens + n - known
        if reached > 0:
            step.drafts[request] = min(request.num_draft_tokens, reached)
        request.num_draft_tokens = 0

    def _make_room(self, request: Request, n: int, step: StepInMaking) -> bool:
        """Slots for n more tokens, preempting others until there are; False when the request itself had to go."""
        while not self.kv_cache_manager.allocate_slots(request, n):
            self.cohort.dissolve()
            victim = self._choose_victim()
            if not self._may_preempt(victim):
                return False
            self.running.remove(victim)
            if victim in step.requests:
                # Its hashes of this step stay, though the blocks will never be computed: vLLM's flaw.
                self.kv_cache_manager.cache_blocks(victim, min(victim.num_computed_tokens, victim.num_tokens))
                step.withdraw(victim)
            self._preempt(victim, step)
            if victim is request:
                return False
        return True

    def _make_room_for_cohort(self, step: StepInMaking) -> int:
        """What `_make_room` comes to where victims are always the last, who had no turn; blocks it then has taken."""
        config, cohort, pool, taken = self.config, self.cohort, self.kv_cache_manager.block_pool, 0
        if config.policy != "fcfs" or config.kv_preemption == "offload" or len(cohort.members) > step.budget:
            return 0
        while cohort.num_new_blocks - taken > pool.num_free_blocks:
            taken += pool.num_free_blocks
            pool.take(pool.num_free_blocks)  # those before the first who lacks one
            victim = self.running.pop()
            cohort.preempt(victim)
            self._preempt(victim, step)
        return taken

    def _choose_victim(self) -> Request:
        """fcfs: the last admitted. priority: the largest (priority, arrival time), the first of equals."""
        if self.config.policy == "priority":
            return max(self.running, key=lambda request: (request.priority, request.arrival_time))
        return self.running[-1]

    def _may_preempt(self, victim: Request) -> bool:  # noqa: ARG002  # async offloading looks at it
        """Whether its blocks would be free at once."""
        return True

    def _preempt(self, request: Request, step: StepInMaking) -> None:
        """Out of the running: its KV goes to the swap space, where there is one with room, or is computed again.

        Hashes stay with the blocks until these are reused.
        """
        computed = request.num_computed_tokens
        swapped = self.swap.take(request, self.kv_cache_manager.blocks_for(computed))
        self.kv_cache_manager.name_blocks(request)
        self.kv_cache_manager.free(request)
        request.num_preemptions += 1
        request.num_draft_tokens = 0
        step.preempted.append(request)
        if swapped:
            step.swapped_out.append((request, swapped))
            return
        request.status = PREEMPTED
        request.num_recomputed_tokens += computed
        request.num_computed_tokens = request.num_output_placeholders = 0
        self.waiting.prepend(request)

    def _schedule_waiting(self, step: StepInMaking) -> None:
        """Admit from the head of the queue until something lacks; whoever does not fit blocks those behind.

        Swapped requests go before all that wait.
        """
        swapped, waiting = self.swap.requests, self.waiting
        while (waiting or swapped) and step.limit is None:
            if step.budget <= 0:
                step.limit = Limit.TOKENS
            elif len(self.running) >= self.seqs_cap:
                step.limit = Limit.SEQS
            elif swapped:
                step.limit = self._swap_in(swapped.peek(), step)
            else:
                step.limit = self._admit(waiting, step)

    def _swap_in(self, request: Request, step: StepInMaking) -> Limit | None:
        """Bring a swapped request back and go on with it where it was; what lacks if that cannot be."""
        n = self._num_new_tokens(request, step)
        if not self.kv_cache_manager.admit(request, [], n, anything_running=bool(self.running)):
            return self.kv_cache_manager.what_lacks(request, [], n)
        step.swapped_in.append((request, self.swap.give_back(request)))
        request.status = RUNNING
        self.running.append(request)
        step.add(request, n)
        return None

    def _admit(self, queue: RequestQueue, step: StepInMaking) -> Limit | None:
        """Move a queue's head to running, with its first tokens; what lacks if it cannot.

        What it has computed already, if anything (offloading), counts as a hit.
        """
        request = queue.peek()
        hit = [] if request.num_blocks else self.kv_cache_manager.find_computed_blocks(request)
        num_hit_tokens = request.num_computed_tokens + len(hit) * self.config.block_size
        n = request.num_tokens - num_hit_tokens
        drafts = self._padding(n, num_hit_tokens, step)
        if drafts and n + drafts > step.budget:
            return Limit.TOKENS  # rather not now than without its padding
        n += drafts
        if n > step.threshold:
            n = step.threshold
        if n > step.budget:
            if not self.config.enable_chunked_prefill:
                return Limit.TOKENS
            n = step.budget
        if not self.kv_cache_manager.admit(request, hit, n, anything_running=bool(self.running)):
            return self.kv_cache_manager.what_lacks(request, hit, n)
        queue.pop()
        self.running.append(request)
        if request.status is PREEMPTED:
            request.num_recomputed_tokens -= num_hit_tokens
        request.status = RUNNING
        request.num_computed_tokens = num_hit_tokens
        if drafts:
            step.drafts[request] = drafts
        step.add(request, n)
        step.admitted.append((request, num_hit_tokens))
        return None

    def _padding(self, n: int, num_hit_tokens: int, step: StepInMaking) -> int:
        """Drafts that a request with one token left is padded with, to look like the decodes beside it."""
        drafts = self.config.num_speculative_tokens
        fits = num_hit_tokens + 1 + drafts + 1 <= self.config.max_model_len
        running_scheduled = len(step.requests) > len(step.admitted)
        beside_decodes = not step.prompt_in_flight and (running_scheduled or num_hit_tokens > 0)
        return drafts if drafts and n == 1 and beside_decodes and fits else 0
