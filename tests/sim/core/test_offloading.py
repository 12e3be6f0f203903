"""Offloading as vLLM's connector does it: what is stored and when, who loads, who waits, what a step waits for."""

from __future__ import annotations

import pytest

from sim.core.block_hash import BlockHasher, OwnTextHasher
from sim.core.check import Invariants
from sim.core.config import SchedulerConfig
from sim.core.make import make_scheduler
from sim.core.request import Request, Status
from sim.core.step import Limit
from sim.engine.sampler import sample

BLOCK = 4


class Server:
    """A scheduler with blocks of 4 tokens, driven by hand."""

    def __init__(self, blocks: int = 40, host: int = 100, **changes):
        settings = {
            "max_num_batched_tokens": 64,
            "max_num_seqs": 8,
            "max_model_len": 100,
            "num_gpu_blocks": blocks + 1,
            "block_size": BLOCK,
            "kv_preemption": "offload",
            "num_host_blocks": host,
        }
        self.scheduler = make_scheduler(SchedulerConfig(**(settings | changes)))
        self.watch = Invariants(self.scheduler)
        self.count = 0
        self.plans = []

    def add(self, *pieces: tuple[int, int], output: int = 30, own: int = 0) -> Request:
        """A prompt of content pieces, or of `own` tokens that nobody else has."""
        self.count += 1
        hasher = OwnTextHasher(self.count) if own else BlockHasher(pieces, 1000 + self.count, BLOCK)
        prompt = own or sum(n for _, n in pieces)
        request = Request(f"r{self.count}", prompt, output, hasher, arrival_time=float(self.count))
        self.scheduler.add_request(request)
        return request

    def schedule(self):
        self.plans.append(self.scheduler.schedule())
        self.watch.plan_made(self.plans[-1])
        return self.plans[-1]

    def commit(self):
        plan = self.plans.pop(0)
        finished = self.scheduler.commit(plan, sample(plan))
        self.watch.settled()
        return finished

    def step(self):
        plan = self.schedule()
        self.commit()
        return plan

    def done(self, transfers):
        for transfer in transfers:
            self.scheduler.transfer_done(transfer.number)
        self.watch.settled()

    def forget_on_gpu(self):
        """Turn over the whole GPU cache, as other requests would."""
        pool = self.scheduler.kv_cache_manager.block_pool
        pool.free(pool.allocate(pool.num_free_blocks))


def blocks(transfers):
    return [transfer.num_blocks for transfer in transfers]


def served(server: Server, *pieces: tuple[int, int], output: int = 1) -> Request:
    """A request whose KV is in host memory, and no longer on the GPU."""
    request = server.add(*pieces, output=output)
    while not request.is_finished:
        server.done(server.step().stores)
    server.done(server.step().stores)
    server.forget_on_gpu()
    return request


def test_full_blocks_are_stored_as_a_prompt_is_computed():
    """A prompt of 18 in chunks of 10: two full blocks, then two more; the rest of it, and the output, never."""
    server = Server(max_num_batched_tokens=10)
    server.add((1, 18), output=20)
    assert [blocks(server.step().stores) for _ in range(8)] == [[2], [2], *[[]] * 6]
    assert server.scheduler.num_host_blocks == 4


def test_or_all_text_is_stored():
    server = Server(max_num_batched_tokens=10, offload_prompt_only=False)
    server.add((1, 18), output=6)
    stores = [blocks(server.step().stores) for _ in range(10)]
    # Tokens 19 and 20 fill block 5; of 24, the last is never computed.
    assert stores == [[2], [2], [], [1], *[[]] * 6]


def test_what_host_memory_has_is_not_stored_again():
    server = Server()
    server.add((1, 16))
    server.done(server.step().stores)
    server.add((1, 16), (2, 8))
    assert blocks(server.step().stores) == [2]


def test_what_the_gpu_lost_is_loaded_and_waited_for():
    server = Server()
    served(server, (1, 16))
    request = server.add((1, 16), (2, 5))
    plan = server.step()
    assert blocks(plan.loads) == [4]
    assert (plan.requests, plan.admitted, plan.limit) == ([], [], Limit.TRANSFER)
    assert (request.status, request.num_blocks) == (Status.LOADING, 4)
    assert server.step().requests == []
    server.done(plan.loads)
    plan = server.step()
    assert plan.admitted == [(request, 16)]
    assert plan.num_scheduled_tokens == [5]
    assert blocks(plan.stores) == [1], "the fifth block of the prompt"


def test_the_last_known_token_is_computed_again():
    server = Server()
    served(server, (1, 16))
    request = server.add((1, 16))
    server.done(server.step().loads)
    plan = server.step()
    assert plan.admitted == [(request, 15)]
    assert plan.num_scheduled_tokens == [1]


def test_a_hit_on_the_gpu_comes_first():
    server = Server()
    served(server, (1, 16))
    first = server.add((1, 8), (2, 2))
    server.done(server.step().loads)
    server.step()
    assert first.status is Status.RUNNING
    server.add((1, 16), (3, 2))
    plan = server.step()
    assert blocks(plan.loads) == [2], "two of the four blocks are on the GPU again"


def test_who_wants_what_is_being_loaded_waits_for_it_and_others_pass():
    server = Server()
    served(server, (1, 16))
    first, second, third = server.add((1, 16), (2, 2)), server.add((1, 16), (3, 2)), server.add((4, 6))
    plan = server.step()
    assert blocks(plan.loads) == [4]
    assert plan.requests == [third]
    assert [request.status for request in (first, second)] == [Status.LOADING, Status.WAITING]
    server.done(plan.loads)
    assert [request for request, _ in server.step().admitted] == [first, second]


def test_who_wants_what_is_being_stored_waits_for_it():
    """The first has left, and its blocks have been taken by others, before its store is over."""
    server = Server(blocks=12)
    server.add((1, 16), output=1)
    plan = server.step()
    server.forget_on_gpu()
    second = server.add((1, 16), (3, 2))
    assert server.step().limit is Limit.TRANSFER
    assert second.status is Status.WAITING
    server.done(plan.stores)
    assert blocks(server.step().loads) == [4]


def test_loading_blocks_nobody_and_is_admitted_first():
    server = Server(max_num_seqs=2)
    served(server, (1, 16))
    loading = server.add((1, 16), (2, 2))
    server.add(own=10)
    loads = server.step().loads
    late = server.add(own=10)
    server.done(loads)
    plan = server.step()
    assert plan.admitted == [(loading, 16)]
    assert plan.limit is Limit.SEQS
    assert late.status is Status.WAITING


def test_a_load_needs_room_beside_prompts_in_flight():
    """Of 20 blocks a prompt of 40 tokens holds 6 after two chunks, and will need 4 more: 10 are left, 11 are needed."""
    for prompt, loads in ((40, 0), (36, 1)):
        server = Server(blocks=20, max_num_batched_tokens=16, long_prefill_token_threshold=8)
        served(server, (1, 44))
        server.add(own=prompt)
        server.step()
        server.add((1, 44), (2, 1))
        assert len(server.step().loads) == loads


def test_a_victim_finds_its_prompt_in_host_memory():
    """Two prompts of 8 fill 4 blocks; the first needs both of the second's until it is done."""
    server = Server(blocks=4, max_model_len=16)
    server.add(own=8, output=6)
    victim = server.add(own=8, output=6)
    server.done(server.step().stores)
    assert server.step().preempted == [victim]
    loads = []
    for _ in range(12):
        plan = server.step()
        server.done([*plan.stores, *plan.loads])
        loads += blocks(plan.loads)
    assert victim.is_finished
    assert loads == [2]
    assert victim.num_recomputed_tokens == 0


def test_a_step_that_preempts_waits_for_the_victims_stores():
    server = Server(blocks=4, max_model_len=16)
    server.add(own=8, output=6)
    victim = server.add(own=8, output=6)
    first = server.step()
    plan = server.step()
    assert plan.preempted == [victim]
    assert plan.flushes == [first.stores[1].number]
    assert server.step().flushes == []


def test_a_step_that_reuses_blocks_of_the_finished_waits_for_their_stores():
    server = Server(blocks=8, max_model_len=32)
    server.add(own=16, output=1)
    first = server.step()
    server.add(own=15, output=1)
    assert server.schedule().flushes == [], "the other four blocks are free"
    server.commit()
    server.add(own=31, output=1)
    assert server.step().flushes == [first.stores[0].number, first.stores[0].number + 1]


def test_a_full_host_memory_is_tried_again():
    server = Server(host=2)
    server.add(own=8)
    server.add(own=8)
    first = server.step()
    assert blocks(first.stores) == [2]
    assert blocks(server.step().stores) == []
    server.done(first.stores)
    assert blocks(server.step().stores) == [2]


@pytest.mark.parametrize("is_there", [False, True])
def test_one_that_loads_can_be_aborted(is_there):
    """The load still writes its blocks until it is done."""
    server = Server()
    served(server, (1, 16))
    request = server.add((1, 16), (2, 2))
    loads = server.step().loads
    if is_there:
        server.done(loads)
    server.scheduler.abort(request)
    server.watch.settled()
    if not is_there:
        assert server.scheduler.kv_cache_manager.block_pool.num_free_blocks == 36
        server.done(loads)
    assert server.scheduler.kv_cache_manager.block_pool.num_free_blocks == 40


def test_async_nobody_in_flight_is_preempted():
    """The one that lacks a block, and all behind it, sit a step out; then the last can go."""
    server = Server(blocks=4, max_model_len=16, async_scheduling=True)
    first = server.add(own=8, output=6)
    last = server.add(own=8, output=6)
    server.schedule()
    plan = server.schedule()
    assert (plan.requests, plan.preempted) == ([], [])
    server.commit()
    server.plans.clear()
    plan = server.schedule()
    assert plan.preempted == [last]
    assert plan.requests == [first]


def test_without_a_prefix_cache_on_the_gpu_host_memory_is_found_all_the_same():
    server = Server(enable_prefix_caching=False)
    served(server, (1, 16))
    server.add((1, 16), (2, 2))
    assert blocks(server.step().loads) == [4]
