"""No sequence of requests, steps, stops and aborts breaks the core's invariants, and nobody is ever lost."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sim.core.block_hash import BlockHasher
from sim.core.check import Invariants
from sim.core.config import SchedulerConfig
from sim.core.request import Request, Status
from sim.core.scheduler import RequestRejected, Scheduler
from sim.core.step import StepOutcome

MAX_MODEL_LEN = 96


@st.composite
def configs(draw):
    block_size = draw(st.sampled_from([1, 4, 16]))
    seqs = draw(st.integers(1, 8))
    chunked = draw(st.booleans())
    budget = max(seqs, draw(st.integers(1, 128)))
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
        long_prefill_token_threshold=draw(st.sampled_from([0, 1, 7, 40])),
        long_prefill_token_threshold_adaptive=draw(st.booleans()),
        max_num_active_seqs=draw(st.none() | st.integers(1, seqs)),
    )


class SchedulerMachine(RuleBasedStateMachine):
    @initialize(config=configs())
    def start(self, config):
        self.scheduler = Scheduler(config)
        self.watch = Invariants(self.scheduler)
        self.requests: list[Request] = []

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

    @precondition(lambda self: self.scheduler.num_unfinished)
    @rule(stop=st.integers(0, 20))
    def step(self, stop):
        self.take_step(stop)

    def take_step(self, stop=None):
        plan = self.scheduler.schedule()
        self.watch.plan_made(plan)
        sampled = [0 if i in plan.partial else 1 for i in range(len(plan.requests))]
        stopped = frozenset({stop}) if stop is not None and stop < len(sampled) and sampled[stop] else frozenset()
        known = [request.num_tokens for request in plan.requests]
        finished = self.scheduler.commit(plan, StepOutcome(sampled, stopped))
        assert [request.num_tokens - before for request, before in zip(plan.requests, known, strict=True)] == sampled
        assert all(request.status is Status.FINISHED for request in finished)
        assert {plan.requests[i] for i in stopped} <= set(finished)
        return plan

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
            if not self.scheduler.num_unfinished:
                break
            self.take_step()
        assert not self.scheduler.num_unfinished
        assert all(request.is_finished for request in self.requests)
        assert self.scheduler.kv_cache_manager.num_free_blocks == self.scheduler.config.usable_blocks


SchedulerMachine.TestCase.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
TestScheduler = SchedulerMachine.TestCase
