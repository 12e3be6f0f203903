"""vLLM V1's scheduling loop: how many tokens of which request go into the next forward pass.

There is no prefill phase and no decode phase: a request only catches up its computed tokens with its known tokens.
Running requests come first, in order of admission; then waiting ones, unless somebody had to be preempted.
Mirrors vllm/v1/core/sched/scheduler.py (vLLM 0.32), synchronous scheduling.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sim.core.kv_cache_manager import KVCacheManager
from sim.core.request import Request, Status
from sim.core.request_queue import FCFSQueue, PriorityQueue, RequestQueue
from sim.core.step import Limit, StepOutcome, StepPlan
from sim.errors import InputError

if TYPE_CHECKING:
    from sim.core.config import SchedulerConfig


class RequestRejected(InputError):
    """A request that could never be served with these settings; the message names it and says why."""


@dataclass(slots=True)
class _Step:
    """One `schedule()` call in the making."""

    token_budget: int
    threshold: int
    """Cap on each request's tokens; at least the budget where there is none."""
    requests: list[Request] = field(default_factory=list)
    num_scheduled_tokens: list[int] = field(default_factory=list)
    num_computed_tokens: list[int] = field(default_factory=list)
    chunks: list[int] = field(default_factory=list)
    partial: list[int] = field(default_factory=list)
    admitted: list[tuple[Request, int]] = field(default_factory=list)
    preempted: list[Request] = field(default_factory=list)
    limit: Limit = Limit.NOTHING

    def add(self, request: Request, n: int, known: int) -> None:
        """Schedule n tokens of a request that has `known` tokens."""
        computed = request.num_computed_tokens
        if n > 1:
            self.chunks.append(len(self.requests))
        # Advanced when scheduled, not when the output is back.
        request.num_computed_tokens = computed + n
        request.is_prefill_chunk = computed + n < known
        if request.is_prefill_chunk:
            self.partial.append(len(self.requests))
        self.requests.append(request)
        self.num_scheduled_tokens.append(n)
        self.num_computed_tokens.append(computed)
        self.token_budget -= n

    def add_quiet_decodes(self, running: list[Request], index: int) -> int:
        """Schedule requests from `index` on that need one token and no block; the index of the first other one.

        What `add` does, for the rows that make up nearly all of a simulation's work.
        """
        add_request, add_tokens = self.requests.append, self.num_scheduled_tokens.append
        add_computed = self.num_computed_tokens.append
        end = min(len(running), index + self.token_budget)
        for at in range(index, end):
            request = running[at]
            computed = request.num_computed_tokens
            if request.num_tokens - computed != 1 or computed >= request.quiet_tokens:
                end = at
                break
            request.num_computed_tokens = computed + 1
            request.is_prefill_chunk = False
            add_request(request)
            add_tokens(1)
            add_computed(computed)
        self.token_budget -= end - index
        return end

    def withdraw(self, request: Request) -> None:
        """Take a request out again, and give its tokens back to the budget."""
        at = self.requests.index(request)
        n = self.num_scheduled_tokens.pop(at)
        del self.requests[at], self.num_computed_tokens[at]
        self.chunks = [i - (i > at) for i in self.chunks if i != at]
        self.partial = [i - (i > at) for i in self.partial if i != at]
        self.token_budget += n
        request.num_computed_tokens -= n


class Scheduler:
    """Decides step by step. Call `add_request` and `abort` at any time, then `schedule()` and `commit()` in turn."""

    def __init__(self, config: SchedulerConfig) -> None:
        self.config = config
        self.kv_cache_manager = KVCacheManager(config)
        self.waiting: RequestQueue = PriorityQueue() if config.policy == "priority" else FCFSQueue()
        self.running: list[Request] = []

    @property
    def num_unfinished(self) -> int:
        """Requests that run or wait."""
        return len(self.running) + len(self.waiting)

    def add_request(self, request: Request) -> None:
        """Queue a request. Raises RequestRejected if it could never be served."""
        config = self.config
        request.final_num_tokens = min(request.num_prompt_tokens + request.max_tokens, config.max_model_len)
        self._check_servable(request)
        self.waiting.add(request)

    def abort(self, request: Request) -> None:
        """Drop a request wherever it is; nothing happens if it has left already."""
        if request.is_finished:
            return
        if request.status is Status.RUNNING:
            self.running.remove(request)
            self.kv_cache_manager.free(request)
        else:
            self.waiting.remove(request)
        request.status = Status.ABORTED

    def schedule(self) -> StepPlan:
        """Decide the next step; its plan must be answered by `commit` before the next call."""
        step = _Step(self.config.token_budget, self._long_prefill_threshold())
        self._schedule_running(step)
        if step.preempted:
            step.limit = Limit.PREEMPTION
        else:
            self._schedule_waiting(step)
        return StepPlan(
            requests=step.requests,
            num_scheduled_tokens=step.num_scheduled_tokens,
            num_computed_tokens=step.num_computed_tokens,
            chunks=step.chunks,
            partial=step.partial,
            admitted=step.admitted,
            preempted=step.preempted,
            total_num_scheduled_tokens=self.config.token_budget - step.token_budget,
            num_running=len(self.running),
            num_waiting=len(self.waiting),
            num_free_blocks=self.kv_cache_manager.num_free_blocks,
            limit=step.limit,
        )

    def commit(self, plan: StepPlan, outcome: StepOutcome) -> list[Request]:
        """Take in what the model sampled; returns the requests that finished, in the plan's order."""
        finished: list[Request] = []
        for request, sampled in zip(plan.requests, outcome.num_sampled, strict=True):
            if sampled:
                request.num_tokens += sampled
                if request.num_tokens >= request.final_num_tokens:
                    finished.append(request)
        if outcome.stopped:
            ended = {id(request) for request in finished} | {id(plan.requests[i]) for i in outcome.stopped}
            finished = [request for request in plan.requests if id(request) in ended]
        # Aborted while the step ran: its output has nowhere to go.
        finished = [request for request in finished if request.status is Status.RUNNING]
        for request in finished:
            self.kv_cache_manager.free(request)
            request.status = Status.FINISHED
        if finished:
            self.running = [request for request in self.running if request.status is Status.RUNNING]
        return finished

    def _check_servable(self, request: Request) -> None:
        config, prompt, name = self.config, request.num_prompt_tokens, f"request {request.request_id}"
        if prompt < 1 or request.max_tokens < 1:
            raise RequestRejected(
                f"{name}: got {prompt} prompt tokens and max_tokens {request.max_tokens}, expected >= 1"
            )
        if prompt >= config.max_model_len:
            raise RequestRejected(
                f"{name}: got {prompt} prompt tokens, expected < max_model_len {config.max_model_len}"
            )
        # The last generated token is never computed, so it needs no slot.
        needed = self.kv_cache_manager.blocks_for(request.final_num_tokens - 1)
        if needed > config.usable_blocks:
            raise RequestRejected(f"{name}: needs {needed} KV blocks, there are {config.usable_blocks}")
        self._check_unchunked(request, name)

    def _check_unchunked(self, request: Request, name: str) -> None:
        """Without chunks a prompt above the budget waits for ever, unless a threshold or a prefix hit shortens it."""
        config = self.config
        shortened = config.enable_prefix_caching or 0 < config.long_prefill_token_threshold <= config.token_budget
        if config.enable_chunked_prefill or shortened or request.num_prompt_tokens <= config.token_budget:
            return
        raise RequestRejected(
            f"{name}: got {request.num_prompt_tokens} prompt tokens,"
            f" expected <= {config.token_budget} in one step, as chunked prefill is off"
        )

    def _long_prefill_threshold(self) -> int:
        """The cap on one request's tokens in this step. A request that is alone has nobody to starve."""
        config = self.config
        threshold, live = config.long_prefill_token_threshold, self.num_unfinished
        if threshold == 0 or live <= 1:
            return config.max_num_batched_tokens
        if config.long_prefill_token_threshold_adaptive:
            return max(threshold, config.max_num_batched_tokens // live)
        return threshold

    def _schedule_running(self, step: _Step) -> None:
        """Running requests, in order of admission, while budget is left."""
        running, index = self.running, 0
        while True:
            index = step.add_quiet_decodes(running, index)
            if index == len(running) or step.token_budget == 0:
                return
            request = running[index]
            known = request.num_tokens
            n = min(known - request.num_computed_tokens, step.threshold, step.token_budget)
            if request.num_computed_tokens + n > request.quiet_tokens and not self._make_room(request, n, step):
                return
            if step.preempted:  # a victim before this request has shifted it
                index = running.index(request)
            step.add(request, n, known)
            index += 1

    def _make_room(self, request: Request, n: int, step: _Step) -> bool:
        """Slots for n more tokens, preempting others until there are; False when the request itself had to go."""
        while not self.kv_cache_manager.allocate_slots(request, n):
            victim = self._choose_victim()
            self.running.remove(victim)
            if victim in step.requests:
                step.withdraw(victim)
            self._preempt(victim)
            step.preempted.append(victim)
            if victim is request:
                return False
        return True

    def _choose_victim(self) -> Request:
        """fcfs: the last admitted. priority: the largest (priority, arrival time), the first of equals."""
        if self.config.policy == "priority":
            return max(self.running, key=lambda request: (request.priority, request.arrival_time))
        return self.running[-1]

    def _preempt(self, request: Request) -> None:
        """Recompute: forget its KV and queue it again. Hashes stay with the blocks until these are reused."""
        self.kv_cache_manager.free(request)
        request.status = Status.PREEMPTED
        request.num_preemptions += 1
        request.num_recomputed_tokens += request.num_computed_tokens
        request.num_computed_tokens = 0
        self.waiting.prepend(request)

    def _schedule_waiting(self, step: _Step) -> None:
        """Admit from the head of the queue until something lacks; whoever does not fit blocks those behind."""
        while self.waiting:
            if step.token_budget == 0:
                step.limit = Limit.TOKENS
            elif len(self.running) >= self.config.seqs_cap:
                step.limit = Limit.SEQS
            else:
                step.limit = self._admit(self.waiting.peek(), step)
            if step.limit is not Limit.NOTHING:
                return

    def _admit(self, request: Request, step: _Step) -> Limit:
        """Move the queue's head to running, with its first tokens; what lacks if it cannot."""
        hit = self.kv_cache_manager.find_computed_blocks(request)
        num_hit_tokens = len(hit) * self.config.block_size
        known = request.num_tokens
        n = min(known - num_hit_tokens, step.threshold)
        if n > step.token_budget:
            if not self.config.enable_chunked_prefill:
                return Limit.TOKENS
            n = step.token_budget
        if not self.kv_cache_manager.admit(request, hit, n, anything_running=bool(self.running)):
            return Limit.BLOCKS
        self.waiting.pop()
        self.running.append(request)
        if request.status is Status.PREEMPTED:
            request.num_recomputed_tokens -= num_hit_tokens
        request.status = Status.RUNNING
        request.num_computed_tokens = num_hit_tokens
        step.add(request, n, known)
        step.admitted.append((request, num_hit_tokens))
        return Limit.NOTHING
