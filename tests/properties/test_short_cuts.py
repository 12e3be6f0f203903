"""Short cuts of the core change no decision: own text that is only counted, and cohorts that only count rounds.

The reference names and hashes every block, and looks at every request in every step.
"""

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
from sim.core.step import StepOutcome, StepPlan

MAX_MODEL_LEN = 96
OWN, OUTPUT = 1_000, 2_000
"""First content ids of prompts that nobody else has, and of generated text."""
PLANNED = [name for name in dir(StepPlan()) if not name.startswith("_")]
"""All that a plan says."""


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
        kv_preemption=rng.choice(["recompute", "recompute", "swap"]),
        num_host_blocks=rng.randint(0, MAX_MODEL_LEN // size),
    )


def random_requests(rng):
    """(arrival step, prompt, output content, max_tokens, priority, abort step) of each; lengths are often of blocks."""
    shared = rng.choice([0.0, 0.0, 0.5])
    requests = []
    for index in range(rng.randint(4, 16)):
        own = (OWN + index, rng.choice([1, 4, 8, 15, 16, 17, 32, 40]))
        pieces, output = (own,), OUTPUT + index
        if rng.random() < shared:
            pieces, output = ((rng.randint(0, 1), rng.choice([4, 16, 25])), own), rng.choice([output, OUTPUT])
            pieces = pieces[: rng.randint(1, 2)]
        aborted = rng.randint(1, 60) if rng.random() < 0.1 else None
        max_tokens = rng.choice([1, 8, 16, 33, 50])
        requests.append((rng.randint(0, 20), pieces, output, max_tokens, rng.randint(0, 2), aborted))
    return sorted(requests, key=lambda request: request[0])


def named(value):
    """A plan's field with requests' ids for the requests, which are others in every run."""
    if isinstance(value, Request):
        return value.request_id
    return [named(part) for part in value] if isinstance(value, list | tuple) else value


class Run:
    """One scheduler and its requests; `step` returns all that it decides."""

    def __init__(self, config, requests, *, counted, cohorts, checked=True):
        self.scheduler = make_scheduler(config, cohorts=cohorts)
        self.depth = 2 if config.async_scheduling else 1
        self.drafts = config.num_speculative_tokens
        self.watch = Invariants(self.scheduler)
        self.in_flight = deque()
        self.coming = deque(enumerate(requests))
        self.requests = {}
        self.counted, self.checked = counted, checked

    def arrive(self, now):
        while self.coming and self.coming[0][1][0] <= now:
            index, (_, pieces, output, max_tokens, priority, _) = self.coming.popleft()
            own = self.counted and pieces[0][0] >= OWN
            size = self.scheduler.config.block_size
            hasher = OwnTextHasher(index) if own else BlockHasher(pieces, output, size)
            n = sum(n for _, n in pieces)
            self.requests[index] = Request(f"r{index}", n, max_tokens, hasher, float(index), priority)
            self.scheduler.add_request(self.requests[index])

    def step(self, rng):
        decided = []
        while len(self.in_flight) < self.depth and self.scheduler.num_unfinished:
            plan = self.scheduler.schedule()
            if self.checked:
                self.watch.plan_made(plan)
            self.in_flight.append(plan)
            decided.append({name: named(getattr(plan, name)) for name in PLANNED})
        if self.in_flight:
            decided += [request.request_id for request in self.commit(self.in_flight.popleft(), rng)]
        if self.checked:
            self.watch.settled()
        return decided

    def commit(self, plan, rng):
        partial = set(plan.partial)
        sampled = [
            0 if i in partial else 1 + rng.randint(0, plan.num_drafts.get(i, 0)) for i in range(len(plan.requests))
        ]
        proposed = [rng.randint(0, self.drafts) for _ in sampled] if self.drafts and self.depth == 1 else None
        stops = {i: 1 for i, n in enumerate(sampled) if n and rng.random() < 0.01}
        return self.scheduler.commit(plan, StepOutcome(sampled, stops, proposed))


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32), checked=st.booleans())
def test_short_cuts_decide_as_the_long_way_does(seed, checked):
    """checked: invariants, which bring all counters up to date; without, cohorts go on and on."""
    rng = Random(seed)
    config, requests = random_config(rng), random_requests(rng)
    reference = Run(config, requests, counted=False, cohorts=False)
    short = [
        Run(config, requests, counted=counted, cohorts=cohorts, checked=checked)
        for counted, cohorts in ((True, False), (False, True), (True, True))
    ]
    for now in range(400):
        decided = []
        for run in (reference, *short):
            run.arrive(now)
            for index, (*_, aborted) in enumerate(requests):
                if aborted == now and index in run.requests:
                    run.scheduler.abort(run.requests[index])
            decided.append(run.step(Random(seed + now)))
        for other in decided[1:]:
            assert other == decided[0]
    for run in short:
        for index, request in run.requests.items():
            expected = reference.requests[index]
            assert request.num_tokens == expected.num_tokens
            assert request.num_recomputed_tokens == expected.num_recomputed_tokens


def test_the_random_loads_reach_the_corners():
    """Requests that come back find all they had, or less; and cached blocks that nobody looks for are reused."""
    found, lost, reused = 0, 0, 0
    for seed in range(100):
        rng = Random(seed)
        run = Run(random_config(rng), random_requests(rng), counted=True, cohorts=True)
        size, pool = run.scheduler.config.block_size, run.scheduler.kv_cache_manager.block_pool
        for now in range(200):
            run.arrive(now)
            extents = sum(isinstance(entry, Extent) for entry in pool._evictable)
            for plan in (decision for decision in run.step(rng) if isinstance(decision, dict)):
                for name, hit in plan["admitted"]:
                    request = run.requests[int(name[1:])]
                    if request.num_preemptions and request.block_hasher.own_text:
                        found += hit > 0
                        lost += hit < request.num_prompt_tokens // size * size
            reused += sum(isinstance(entry, Extent) for entry in pool._evictable) < extents
    assert min(found, lost, reused) > 50
