"""What a log's totals leave open is found where the requests are known, and never guessed where they are not."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest

from calibrate.iteration_log import Iteration, parse_iteration_log, read_iteration_log
from calibrate.log_samples import compose, is_clear, log_steps
from sim.core.block_hash import OwnTextHasher
from sim.core.config import SchedulerConfig
from sim.core.request import Request
from sim.core.scheduler import Scheduler
from sim.engine.sampler import sample

DATA = Path(__file__).parent / "data"


def served(requests, budget, max_num_seqs, arrivals):
    """The log and the true compositions of a simulated server; `arrivals`: step -> how many requests come before it."""
    config = SchedulerConfig(budget, max_num_seqs, 4096, 10_000, block_size=16, enable_prefix_caching=False)
    scheduler = Scheduler(config)
    coming = [
        Request(str(i), prompt, output, OwnTextHasher(i), arrival_time=i) for i, (prompt, output) in enumerate(requests)
    ]
    outputs: dict[str, int] = {}
    steps, truth = [], []
    while coming or scheduler.num_unfinished:
        for request in [coming.pop(0) for _ in range(min(len(coming), arrivals(len(steps))))]:
            scheduler.add_request(request)
        if not scheduler.num_unfinished:
            continue
        plan = scheduler.schedule()
        rows = list(zip(plan.requests, plan.num_scheduled_tokens, plan.num_computed_tokens, strict=True))
        prompts = [(n, c) for r, n, c in rows if not outputs.get(r.request_id)]
        decodes = [c for r, _, c in rows if outputs.get(r.request_id)]
        steps.append(
            Iteration(
                "engine 0", len(steps), len(prompts), sum(n for n, _ in prompts), len(decodes), len(decodes), 0.01
            )
        )
        truth.append((tuple(prompts), tuple(decodes)))
        for position, request in enumerate(plan.requests):
            outputs[request.request_id] = outputs.get(request.request_id, 0) + (position not in plan.partial)
        scheduler.commit(plan, sample(plan))
    return steps, truth


def told(compositions):
    """Sums that the law asks for; rows that decode stand in no particular order."""
    return [None if c is None else (c[0], sorted(c[1])) for c in compositions]


@pytest.mark.parametrize("seed", range(8))
def test_compositions_are_those_of_the_scheduler(seed: int) -> None:
    rng = random.Random(seed)
    budget, seqs = rng.choice([(64, 8), (256, 16), (1024, 32)])
    requests = [(rng.randint(2, 3 * budget // 2), rng.randint(1, 40)) for _ in range(60)]
    steps, truth = served(requests, budget, seqs, lambda _: rng.choice([0, 0, 0, 1, 1, 2]))
    assert told(compose(steps, requests, budget)) == told(truth)


def test_a_full_server_too() -> None:
    rng = random.Random(0)
    requests = [(rng.randint(200, 600), rng.randint(32, 96)) for _ in range(60)]
    steps, truth = served(requests, 512, 32, lambda _: 60)
    assert told(compose(steps, requests, 512)) == told(truth)


def test_requests_that_changed_places_on_their_way() -> None:
    """Sent together, they may reach the engine in another order: the contexts are still nearly right."""
    rng = random.Random(1)
    requests = [(rng.randint(200, 600), rng.randint(32, 96)) for _ in range(40)]
    steps, truth = served(requests, 512, 16, lambda _: 1)
    swapped = [*requests]
    for i in (3, 10, 21):
        swapped[i], swapped[i + 1] = swapped[i + 1], swapped[i]
    found = compose(steps, swapped, 512)
    assert all(composition is not None for composition in found)
    for (_, rows), (_, true_rows) in zip(found, truth, strict=True):
        assert sum(rows) == pytest.approx(sum(true_rows), rel=0.1, abs=500)


def test_a_log_of_other_requests_is_not_composed() -> None:
    steps, _ = served([(100, 10)] * 20, 64, 8, lambda _: 1)
    found = compose(steps, [(90, 10)] * 20, 64)
    assert found[0] is not None  # a chunk of 64 can be either's
    assert found[-1] is None
    assert compose([], [(1, 1)], 64) == []


def test_totals_of_a_log_alone() -> None:
    steps = list(log_steps(read_iteration_log(DATA / "vllm_0_32.log")))
    assert [step.regime for step in steps[:2]] == ["prompt", "mixed"]
    second = steps[1]
    assert (second.num_tokens, second.num_seqs, second.num_chunks, second.chunk_tokens) == (512, 3, 2, 511)
    assert second.chunks is None
    assert math.isnan(second.chunk_pairs)
    assert math.isnan(second.decode_context)


def test_contexts_from_the_kv_usage() -> None:
    """100 sequences of 1,000 tokens in 10,000 blocks of 16: half a block each is empty, usage is in whole 0.1 %."""
    usage = 100 * 63 / 10_000
    lines = [
        f"Engine 000: Iteration({i}): 0 context requests, 0 context tokens, 100 generation requests, 100 generation "
        f"tokens, iteration elapsed time: 9.00 ms, GPU KV cache usage: {100 * usage:.1f}%"
        for i in range(2)
    ]
    first, second = log_steps(parse_iteration_log(["INFO GPU KV cache size: 160,000 tokens", *lines]))
    assert math.isnan(first.decode_context)  # nobody knows what was there before
    assert second.decode_context == pytest.approx(100_000, rel=0.01)


def test_a_usage_too_coarse_to_tell_is_not_used() -> None:
    lines = [
        f"Engine 000: Iteration({i}): 0 context requests, 0 context tokens, 1 generation requests, 1 generation "
        "tokens, iteration elapsed time: 9.00 ms, GPU KV cache usage: 0.1%"
        for i in range(2)
    ]
    steps = list(log_steps(parse_iteration_log(["INFO GPU KV cache size: 160,000 tokens", *lines])))
    assert math.isnan(steps[1].decode_context)


@pytest.mark.parametrize(
    ("step", "clear"),
    [
        (Iteration("e", 0, 0, 0, 3, 3, 0.01), True),
        (Iteration("e", 0, 0, 0, 3, 403, 0.01), False),  # a resumed request computes its 401 tokens again
        (Iteration("e", 0, 0, 0, 3, 12, 0.01), False),  # drafts
        (Iteration("e", 0, 0, 0, 0, 0, 0.01), False),
        (Iteration("e", 0, 1, 9, 0, 0, 0.0), False),
    ],
)
def test_steps_whose_totals_say_what_was_computed(step: Iteration, clear: bool) -> None:
    assert is_clear(step) is clear
