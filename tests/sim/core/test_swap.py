"""Swap as V0 did it: who leaves, who comes back and when, and what happens when host memory is full."""

from __future__ import annotations

import pytest

from sim.core.block_hash import BlockHasher
from sim.core.config import SchedulerConfig
from sim.core.make import make_scheduler
from sim.core.request import Request, Status
from sim.core.step import Limit, StepOutcome
from sim.errors import InputError

BLOCK = 4


class Server:
    """A scheduler with blocks of 4 tokens, driven by hand; the i-th request is called by a letter."""

    def __init__(self, blocks: int, host: int = 100, **changes):
        settings = {
            "max_num_batched_tokens": 64,
            "max_num_seqs": 8,
            "max_model_len": 4 * blocks,
            "num_gpu_blocks": blocks + 1,
            "block_size": BLOCK,
            "enable_prefix_caching": False,
            "kv_preemption": "swap",
            "num_host_blocks": host,
        }
        self.scheduler = make_scheduler(SchedulerConfig(**(settings | changes)))
        self.depth = 2 if self.scheduler.config.async_scheduling else 1
        self.requests: dict[str, Request] = {}
        self.plans = []

    def add(self, name: str, prompt: int, output: int, priority: int = 0) -> Request:
        index = len(self.requests)
        hasher = BlockHasher(((index, prompt),), 100 + index, BLOCK)
        request = Request(name, prompt, output, hasher, arrival_time=float(index), priority=priority)
        self.requests[name] = request
        self.scheduler.add_request(request)
        return request

    def schedule(self):
        self.plans.append(self.scheduler.schedule())
        return self.plans[-1]

    def commit(self):
        plan = self.plans.pop(0)
        sampled = [int(position not in plan.partial) for position in range(len(plan.requests))]
        return self.scheduler.commit(plan, StepOutcome(sampled))

    def step(self):
        plan = self.schedule()
        self.commit()
        return plan

    def until(self, happens):
        for _ in range(200):
            plan = self.step()
            if happens(plan):
                return plan
        raise AssertionError("it never happened")


def names(pairs):
    return [(request.request_id, blocks) for request, blocks in pairs]


def test_a_victim_leaves_with_its_computed_blocks_and_keeps_its_tokens():
    """Two prompts of 8 in 4 blocks: the first token of each fills them, so a's next needs one of b's."""
    server = Server(blocks=4)
    server.add("a", 8, 6)
    b = server.add("b", 8, 6)
    server.step()
    plan = server.step()
    assert names(plan.swapped_out) == [("b", 2)]
    assert plan.preempted == [b]
    assert (b.status, b.num_computed_tokens, b.num_tokens) == (Status.SWAPPED, 8, 9)
    assert (b.num_preemptions, b.num_swaps, b.num_recomputed_tokens) == (1, 1, 0)
    assert plan.num_host_blocks == server.scheduler.swap.num_used_blocks == 2
    assert plan.num_waiting == 1


def test_it_comes_back_when_its_known_tokens_fit_and_goes_on_at_once():
    """b's 9 known tokens need 3 of 4 blocks, and a holds 3 or 4 until it is done."""
    server = Server(blocks=4)
    a, b = server.add("a", 8, 6), server.add("b", 8, 6)
    plan = server.until(lambda plan: plan.swapped_in)
    assert a.status is Status.FINISHED
    assert names(plan.swapped_in) == [("b", 2)]
    assert plan.num_computed_tokens == [8]
    assert plan.num_scheduled_tokens == [1]
    assert plan.admitted == []
    assert server.scheduler.swap.num_used_blocks == 0
    server.until(lambda _: b.is_finished)
    assert b.num_output_tokens == 6


def test_nobody_who_waits_is_admitted_while_somebody_is_swapped_out():
    """c would fit at once: one block, and one is free while a decodes in its third."""
    server = Server(blocks=4)
    a, b = server.add("a", 8, 6), server.add("b", 8, 6)
    server.step()
    c = server.add("c", 3, 1)
    server.step()
    plan = server.step()
    assert plan.num_free_blocks == 1
    assert plan.limit is Limit.BLOCKS
    assert (b.status, c.status) == (Status.SWAPPED, Status.WAITING)
    plan = server.until(lambda plan: plan.admitted)
    assert a.is_finished
    assert [request for request, _ in plan.admitted] == [c]
    assert names(plan.swapped_in) == [("b", 2)], "b comes back in the same step, before it"
    assert [request.request_id for request in plan.requests] == ["b", "c"]


def test_victims_come_back_in_the_order_in_which_they_left():
    """c was admitted last and leaves first; V0's queue is first in, first out."""
    server = Server(blocks=6)
    for name in "abc":
        server.add(name, 8, 9)
    left, back = [], []
    for _ in range(60):
        plan = server.step()
        left += [request.request_id for request, _ in plan.swapped_out]
        back += [request.request_id for request, _ in plan.swapped_in]
    assert left[:2] == ["c", "b"]
    assert back == left


def test_under_priority_the_more_important_comes_back_first():
    server = Server(blocks=6, policy="priority")
    for name, priority in (("a", 0), ("b", 1), ("c", 2)):
        server.add(name, 8, 9, priority)
    server.until(lambda _: len(server.scheduler.swap.requests) == 2)
    plan = server.until(lambda plan: plan.swapped_in)
    assert plan.swapped_in[0][0].request_id == "b"


@pytest.mark.parametrize("host", [0, 1])
def test_without_room_in_host_memory_the_victim_is_recomputed(host):
    server = Server(blocks=4, host=host)
    server.add("a", 8, 6)
    b = server.add("b", 8, 6)
    server.step()
    plan = server.step()
    assert plan.preempted == [b]
    assert plan.swapped_out == []
    assert (b.status, b.num_computed_tokens, b.num_recomputed_tokens, b.num_swaps) == (Status.PREEMPTED, 0, 8, 0)


@pytest.mark.parametrize(("watermark", "waits_for_a"), [(0.0, False), (0.2, True)])
def test_the_watermark_stays_free_while_somebody_runs(watermark, waits_for_a):
    """b leaves when a and c need another block. c ends: a holds 3 blocks of 6, b needs 3, the watermark is 1."""
    server = Server(blocks=6, watermark=watermark)
    a = server.add("a", 8, 5)
    server.add("c", 4, 2)
    server.add("b", 8, 4)
    plan = server.until(lambda plan: plan.swapped_in)
    assert names(plan.swapped_in) == [("b", 2)]
    assert a.is_finished == waits_for_a


def test_async_the_output_in_flight_is_not_stale():
    """The step in flight writes its KV before it is copied: its token counts, and its context is kept."""
    server = Server(blocks=4, async_scheduling=True)
    a, b = server.add("a", 8, 6), server.add("b", 8, 6)
    server.schedule()
    plan = server.schedule()
    assert names(plan.swapped_out) == [("b", 2)]
    assert (b.num_tokens, b.num_output_placeholders) == (8, 1)
    server.commit()
    assert (b.num_tokens, b.num_output_placeholders, b.num_computed_tokens) == (9, 0, 8)
    for _ in range(30):
        while len(server.plans) < 2 and server.scheduler.num_unfinished:
            plan = server.schedule()
            if plan.swapped_in:
                assert (plan.num_computed_tokens, plan.num_scheduled_tokens) == ([8], [1])
        if server.plans:
            server.commit()
    assert (a.num_output_tokens, b.num_output_tokens) == (6, 6)


def test_async_one_that_the_step_in_flight_finishes_leaves_host_memory():
    server = Server(blocks=4, async_scheduling=True)
    server.add("a", 8, 6)
    b = server.add("b", 8, 1)
    server.schedule()
    plan = server.schedule()
    assert names(plan.swapped_out) == [("b", 2)]
    assert server.commit() == [b]
    assert server.scheduler.swap.num_used_blocks == 0
    assert list(server.scheduler.swap.requests) == []


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_victim_of_the_same_step_keeps_what_it_had_before(asynchronous):
    """priority: the worse one has been scheduled when the better one behind it needs its block."""
    server = Server(blocks=4, policy="priority", async_scheduling=asynchronous)
    worse = server.add("worse", 6, 6, priority=1)
    server.step()
    better = server.add("better", 8, 6, priority=0)
    server.step()
    plan = server.step()
    assert plan.requests == [better]
    assert names(plan.swapped_out) == [("worse", 2)]
    assert (worse.num_computed_tokens, worse.num_tokens, worse.num_output_placeholders) == (7, 8, 0)
    server.until(lambda _: worse.is_finished)
    assert worse.num_output_tokens == 6


def test_a_swapped_request_can_be_aborted():
    server = Server(blocks=4)
    server.add("a", 8, 6)
    b = server.add("b", 8, 6)
    server.step()
    server.step()
    server.scheduler.abort(b)
    assert b.status is Status.ABORTED
    assert server.scheduler.swap.num_used_blocks == 0
    assert server.scheduler.num_unfinished == 1


def test_what_comes_back_can_be_hit_by_others():
    """The blocks that a swapped request brings back carry their hashes again."""
    server = Server(blocks=4, enable_prefix_caching=True)
    server.add("a", 8, 6)
    b = server.add("b", 8, 6)
    server.until(lambda plan: plan.swapped_in)
    assert b.num_cached_blocks == 2


@pytest.mark.parametrize(("name", "value"), [("kv_preemption", "swop"), ("num_host_blocks", -1)])
def test_bad_settings_are_refused(name, value):
    with pytest.raises(InputError, match=f"{name}: got {value!r}"):
        SchedulerConfig(64, 8, 64, 20, **{name: value})
