"""Text that nobody else has is only counted; every decision is the one that comes of naming and hashing each block."""

from __future__ import annotations

from collections import deque
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from sim.core.block_hash import BlockHasher, OwnTextHasher
from sim.core.block_pool import Extent
from sim.core.check import Invariants
from sim.core.config import SchedulerConfig
from sim.core.make import make_scheduler
from sim.core.request import Request
from sim.core.step import StepOutcome

MAX_MODEL_LEN = 96
OWN, OUTPUT = 1_000, 2_000
"""First content ids of prompts that nobody else has, and of generated text."""


def random_config(rng):
    """Pools of one or two longest requests, so that nearly every run preempts."""
    size, seqs, drafts = rng.choice([1, 2, 4, 8, 16]), rng.randint(2, 8), rng.choice([0, 0, 0, 1, 3])
    return SchedulerConfig(
        max_num_batched_tokens=max(seqs, rng.choice([8, 20, 64, 200]), drafts + 2),
        max_num_seqs=seqs,
        max_model_len=MAX_MODEL_LEN,
        num_gpu_blocks=1 + -(-MAX_MODEL_LEN // size) + rng.randint(0, MAX_MODEL_LEN // size),
        block_size=size,
        policy=rng.choice(["fcfs", "priority"]),
        enable_prefix_caching=rng.random() < 0.9,
        scheduler_reserve_full_isl=rng.random() < 0.5,
        watermark=rng.choice([0.0, 0.0, 0.05, 0.2]),
        long_prefill_token_threshold=rng.choice([0, 7, 20] if drafts else [0, 3, 7, 20]),
        async_scheduling=rng.random() < 0.5,
        num_speculative_tokens=drafts,
        spec_method=rng.choice(["ngram", "eagle", "draft_model"]),
    )


def random_requests(rng):
    """(arrival step, prompt pieces, max_tokens, priority, abort step) of each; lengths about multiples of blocks."""
    shared = rng.choice([0.0, 0.0, 0.5])
    requests = []
    for index in range(rng.randint(4, 16)):
        own = (OWN + index, rng.choice([1, 4, 8, 15, 16, 17, 32, 40]))
        pieces = ((rng.randint(0, 1), rng.choice([4, 16, 25])), own) if rng.random() < shared else (own,)
        aborted = rng.randint(1, 60) if rng.random() < 0.1 else None
        requests.append((rng.randint(0, 20), pieces, rng.choice([1, 8, 16, 33, 50]), rng.randint(0, 2), aborted))
    return sorted(requests, key=lambda request: request[0])


class Run:
    """One scheduler and its requests; `step` returns all that it decides."""

    def __init__(self, config, requests, *, counted):
        self.scheduler = make_scheduler(config)
        self.depth = 2 if config.async_scheduling else 1
        self.drafts = config.num_speculative_tokens
        self.watch = Invariants(self.scheduler)
        self.in_flight = deque()
        self.coming = deque(enumerate(requests))
        self.requests = {}
        self.counted = counted

    def arrive(self, now):
        while self.coming and self.coming[0][1][0] <= now:
            index, (_, pieces, max_tokens, priority, _) = self.coming.popleft()
            own = self.counted and len(pieces) == 1
            size = self.scheduler.config.block_size
            hasher = OwnTextHasher(index) if own else BlockHasher(pieces, OUTPUT + index, size)
            n = sum(n for _, n in pieces)
            self.requests[index] = Request(f"r{index}", n, max_tokens, hasher, float(index), priority)
            self.scheduler.add_request(self.requests[index])

    def step(self, rng):
        decided = []
        while len(self.in_flight) < self.depth and self.scheduler.num_unfinished:
            plan = self.scheduler.schedule()
            self.watch.plan_made(plan)
            self.in_flight.append(plan)
            names = [request.request_id for request in plan.requests]
            admitted = [(request.request_id, hit) for request, hit in plan.admitted]
            decided.append((names, admitted, [r.request_id for r in plan.preempted], *plan[1:6], *plan[8:]))
        if self.in_flight:
            self.commit(self.in_flight.popleft(), rng)
            self.watch.settled()
        return decided, [(r.num_tokens, r.num_recomputed_tokens, r.status.value) for r in self.requests.values()]

    def commit(self, plan, rng):
        partial = set(plan.partial)
        sampled = [
            0 if i in partial else 1 + rng.randint(0, plan.num_drafts.get(i, 0)) for i in range(len(plan.requests))
        ]
        proposed = [rng.randint(0, self.drafts) for _ in sampled] if self.drafts and self.depth == 1 else None
        self.scheduler.commit(plan, StepOutcome(sampled, {}, proposed))


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_counting_own_text_decides_as_hashing_it_does(seed):
    rng = Random(seed)
    config, requests = random_config(rng), random_requests(rng)
    counted, hashed = (Run(config, requests, counted=counted) for counted in (True, False))
    for now in range(400):
        decided = []
        for run in (counted, hashed):
            run.arrive(now)
            for index, (*_, aborted) in enumerate(requests):
                if aborted == now and index in run.requests:
                    run.scheduler.abort(run.requests[index])
            decided.append(run.step(Random(seed + now)))
        assert decided[0] == decided[1]


def test_the_random_loads_reach_the_corners():
    """Requests that come back find all they had, or less; and cached blocks that nobody looks for are reused."""
    found, lost, reused = 0, 0, 0
    for seed in range(100):
        rng = Random(seed)
        run = Run(random_config(rng), random_requests(rng), counted=True)
        size, pool = run.scheduler.config.block_size, run.scheduler.kv_cache_manager.block_pool
        for now in range(200):
            run.arrive(now)
            extents = sum(isinstance(entry, Extent) for entry in pool._evictable)
            for _, admitted, *_ in run.step(rng)[0]:
                for name, hit in admitted:
                    request = run.requests[int(name[1:])]
                    if request.num_preemptions and request.block_hasher.own_text:
                        found += hit > 0
                        lost += hit < request.num_prompt_tokens // size * size
            reused += sum(isinstance(entry, Extent) for entry in pool._evictable) < extents
    assert min(found, lost, reused) > 100
