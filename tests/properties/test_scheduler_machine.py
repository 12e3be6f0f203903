"""No sequence of requests, steps, stops and aborts breaks the core's invariants, and nobody is ever lost."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sim.core.block_hash import BlockHasher
from sim.core.check import Invariants
from sim.core.config import SchedulerConfig
from sim.core.make import make_scheduler
from sim.core.request import Request, Status
from sim.core.servable import RequestRejected
from sim.core.step import StepOutcome

if TYPE_CHECKING:
    from sim.core.step import StepPlan

MAX_MODEL_LEN = 96


@st.composite
def configs(draw):
    block_size = draw(st.sampled_from([1, 4, 16]))
    seqs = draw(st.integers(1, 8))
    chunked = draw(st.booleans())
    drafts = draw(st.sampled_from([0, 0, 1, 3]))
    # vLLM waits for ever where a padded decode or its draft slot does not fit the budget.
    budget = max(seqs, draw(st.integers(1, 128)), drafts + 2 if drafts else 1)
    return SchedulerConfig(
        max_num_batched_tokens=budget if chunked else max(budget, MAX_MODEL_LEN),
        max_num_seqs=seqs,
        max_model_len=MAX_MODEL_LEN,
        # From just enough for one longest request to plenty.
        num_gpu_blocks=1 + -(-MAX_MODEL_LEN // block_size) * draw(st.integers(1, 4)) + draw(st.integers(0, 3)),
        block_size=block_size,
        policy=draw(st.sampled_from(["fcfs", "priority"])),
        enable_chunked_prefill=chunked,
        enable_prefix_caching=draw(st.booleans()),
        scheduler_reserve_full_isl=draw(st.booleans()),
        watermark=draw(st.sampled_from([0.0, 0.05, 0.3])),
        long_prefill_token_threshold=draw(st.sampled_from([0, 7, 40] if drafts else [0, 1, 7, 40])),
        long_prefill_token_threshold_adaptive=draw(st.booleans()),
        max_num_active_seqs=draw(st.none() | st.integers(1, seqs)),
        async_scheduling=draw(st.booleans()),
        num_speculative_tokens=drafts,
        spec_method=draw(st.sampled_from(["ngram", "eagle", "draft_model"])),
        kv_preemption=draw(st.sampled_from(["recompute", "swap", "offload", "offload"])),
        num_host_blocks=draw(st.sampled_from([0, 1, 7, 40, 10_000])),
        offload_prompt_only=draw(st.booleans()),
    )


class SchedulerMachine(RuleBasedStateMachine):
    @initialize(config=configs())
    def start(self, config):
        self.scheduler = make_scheduler(config)
        self.watch = Invariants(self.scheduler)
        self.requests: list[Request] = []
        self.in_flight: deque[StepPlan] = deque()
        self.open: list[int] = []
        """Transfers on their way."""

    @rule(
        shared=st.integers(0, 2),
        shared_n=st.integers(0, 40),
        own_n=st.integers(1, 50),
        max_tokens=st.integers(1, 40),
        priority=st.integers(0, 2),
    )
    def add(self, shared, shared_n, own_n, max_tokens, priority):
        index = len(self.requests)
        pieces = tuple(piece for piece in ((shared, shared_n), (100 + index, own_n)) if piece[1])
        hasher = BlockHasher(pieces, 1000 + index, self.scheduler.config.block_size)
        request = Request(f"r{index}", shared_n + own_n, max_tokens, hasher, float(index), priority)
        self.requests.append(request)
        self.scheduler.add_request(request)

    @rule(prompt=st.integers(MAX_MODEL_LEN, 2 * MAX_MODEL_LEN))
    def refuse(self, prompt):
        request = Request("too long", prompt, 1, BlockHasher(((0, prompt),), 1, 1))
        try:
            self.scheduler.add_request(request)
        except RequestRejected as error:
            assert "too long" in str(error)  # noqa: PT017  # a state machine has no pytest.raises in its rules' style
        else:
            raise AssertionError("a prompt of max_model_len tokens was accepted")

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def abort(self, data):
        self.scheduler.abort(data.draw(st.sampled_from(self.requests)))

    @precondition(lambda self: self.scheduler.num_unfinished or self.in_flight)
    @rule(data=st.data())
    def step(self, data):
        self.take_step(lambda low, high: data.draw(st.integers(low, high)))

    def take_step(self, choose):
        """Schedule as far ahead as the mode allows, then take in the oldest output. `choose` picks what is random."""
        depth = 2 if self.scheduler.config.async_scheduling else 1
        while len(self.in_flight) < depth and self.scheduler.num_unfinished:
            plan = self.scheduler.schedule()
            self.watch.plan_made(plan)
            self.in_flight.append(plan)
            self.open += [transfer.number for transfer in (*plan.loads, *plan.stores)]
            assert all(number in self.open for number in plan.flushes)
            for number in plan.flushes:
                self.transfer(number)
            if not plan.requests:
                break
        if self.in_flight:
            self.take_output(self.in_flight.popleft(), choose)

    def transfer(self, number):
        self.open.remove(number)
        self.scheduler.transfer_done(number)
        self.watch.settled()

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def some_transfer_is_done(self, data):
        self.transfer(data.draw(st.sampled_from(self.open)))

    def take_output(self, plan, choose):
        partial = set(plan.partial)
        sampled = [0 if i in partial else 1 + choose(0, plan.num_drafts.get(i, 0)) for i in range(len(plan.requests))]
        stopped = {}
        if sampled and choose(0, 3) == 0:
            position = choose(0, len(sampled) - 1)
            if sampled[position]:
                stopped[position] = choose(1, sampled[position])
        drafts = self.scheduler.config.num_speculative_tokens
        proposed = None
        if drafts and not self.scheduler.config.async_scheduling:
            proposed = [choose(0, drafts) for _ in sampled]
        self.scheduler.cohort.settle()
        known = [request.num_tokens for request in plan.requests]
        gone = [request.is_finished for request in plan.requests]
        finished = self.scheduler.commit(plan, StepOutcome(sampled, stopped, proposed))
        self.scheduler.cohort.settle()
        for i, request in enumerate(plan.requests):
            wanted = 0 if gone[i] else min(stopped.get(i, sampled[i]), request.final_num_tokens - known[i])
            assert request.num_tokens - known[i] == wanted
        assert all(request.status is Status.FINISHED for request in finished)
        assert all(plan.requests[i] in finished for i in stopped if not gone[i])

    @invariant()
    def settled(self):
        if hasattr(self, "scheduler"):
            self.watch.settled()

    def teardown(self):
        """Everybody who came is served, in finitely many steps, and every block comes back."""
        if not hasattr(self, "scheduler"):
            return
        # Each request alone needs at most one step per token, computed once again after each of its preemptions; the
        # request that is never the victim always gets on, so this bound is far above what can be needed.
        for _ in range(len(self.requests) * MAX_MODEL_LEN * (len(self.requests) + 1)):
            if not self.scheduler.num_unfinished and not self.in_flight:
                break
            self.take_step(lambda _low, high: high)
            for number in self.open[:1]:
                self.transfer(number)
        for number in list(self.open):
            self.transfer(number)
        assert not self.scheduler.num_unfinished
        assert all(request.is_finished for request in self.requests)
        assert self.scheduler.kv_cache_manager.block_pool.num_free_blocks == self.scheduler.config.usable_blocks
        assert self.scheduler.swap.num_used_blocks == 0


SchedulerMachine.TestCase.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
TestScheduler = SchedulerMachine.TestCase
