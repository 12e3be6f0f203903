"""Where theory knows the answer, the simulation agrees with it."""

from __future__ import annotations

import math
from itertools import count

import numpy as np
import pytest

from sim.core.block_hash import BlockHasher, OwnTextHasher
from sim.core.config import SchedulerConfig
from sim.core.request import Request as CoreRequest
from sim.core.scheduler import Scheduler
from sim.engine.sampler import sample
from sim.experiment import simulate
from workloads import Request

PLENTY = 1_000_000


def config(**changes) -> SchedulerConfig:
    settings = {
        "max_num_batched_tokens": 8192,
        "max_num_seqs": 512,
        "max_model_len": 32_768,
        "num_gpu_blocks": 20_001,
        "enable_prefix_caching": False,
    }
    return SchedulerConfig(**(settings | changes))


def poisson(rate: float, n: int, seed: int, prompt: int = 1, output: int = 1) -> list[Request]:
    times = np.cumsum(np.random.default_rng(seed).exponential(1 / rate, n))
    return [Request(f"r{i}", float(t), prompt, output) for i, t in enumerate(times)]


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_one_request_at_a_time_is_an_md1_queue(constant_profile, load):
    """Pollaczek-Khinchine: the mean wait in an M/D/1 queue is D * load / (2 * (1 - load)); here D is one step.

    The 99.9 % confidence interval comes from 20 independent runs.
    """
    step_s, means = 0.02, []
    for seed in range(20):
        result = simulate(poisson(load / step_s, 4_000, seed), config(max_num_seqs=1), constant_profile(step_s))
        wait_s = (result.requests["scheduled_s"] - result.requests["queued_s"]).to_numpy()
        means.append(wait_s[500:].mean())
    expected = step_s * load / (2 * (1 - load))
    half_width = 3.883 * np.std(means, ddof=1) / math.sqrt(len(means))  # Student's t, 19 degrees of freedom
    assert abs(np.mean(means) - expected) < half_width
    assert half_width < 0.15 * expected, "the interval must be narrow enough to mean something"


def test_littles_law(constant_profile):
    """L = lambda * W. The steps see a request from the first schedule() after it came until its last step's end."""
    step_s = 0.01
    requests = poisson(20.0, 3_000, seed=7, prompt=50, output=40)
    result = simulate(requests, config(max_num_seqs=16), constant_profile(step_s))
    steps, table = result.steps, result.requests
    held_s = ((steps["running"] + steps["waiting"]) * (steps["end_s"] - steps["start_s"])).sum()
    spent_s = (table["finish_s"] - table["queued_s"]).sum()
    assert spent_s - len(table) * step_s <= held_s <= spent_s


@pytest.mark.parametrize(("prompt", "output"), [(400, 200), (160, 800)])
def test_the_kv_cache_caps_what_runs(constant_profile, prompt, output):
    """N_max = B * b / L, with L the context of a request averaged over its life."""
    blocks, block_size = 500, 16
    requests = [Request(f"r{i}", 0.0, prompt, output) for i in range(400)]
    settings = config(num_gpu_blocks=blocks + 1, block_size=block_size)
    result = simulate(requests, settings, constant_profile(0.01))
    steps = result.steps.iloc[len(result.steps) // 4 : len(result.steps) // 2]
    expected = blocks * block_size / (prompt + output / 2)
    # Whole blocks, admission in waves and preemption keep it within a tenth.
    assert steps["running"].mean() == pytest.approx(expected, rel=0.10)


def test_more_seqs_than_the_kv_cache_holds_change_nothing_for_the_better(constant_profile):
    """The founding example: 400 seqs do not give 400 at once; the KV cache decides, and the rest is preemption."""
    requests = [Request(f"r{i}", 0.0, 160, 800) for i in range(300)]
    runs = {
        seqs: simulate(requests, config(num_gpu_blocks=501, max_num_seqs=seqs), constant_profile(0.01))
        for seqs in (8, 16, 256)
    }
    assert runs[8].requests["preemptions"].sum() == 0
    assert runs[256].requests["preemptions"].sum() > 0
    assert runs[256].steps["running"].max() <= 500 * 16 / 160
    assert len(runs[8].steps) > len(runs[16].steps)


class Server:
    """A scheduler driven by hand."""

    def __init__(self, **changes):
        self.scheduler = Scheduler(config(**changes))
        self.ids = count()

    def add(self, prompt: int, output: int = PLENTY) -> CoreRequest:
        index = next(self.ids)
        request = CoreRequest(f"r{index}", prompt, output, OwnTextHasher(index), arrival_time=float(index))
        # Only its first steps matter, so it may promise to be short.
        request.max_tokens = min(output, 100)
        self.scheduler.add_request(request)
        return request

    def step(self):
        plan = self.scheduler.schedule()
        self.scheduler.commit(plan, sample(plan))
        return {r.request_id: n for r, n in zip(plan.requests, plan.num_scheduled_tokens, strict=True)}


@pytest.fixture
def kitchen():
    """200 requests that decode, and a budget of 8192."""
    server = Server()
    for _ in range(200):
        server.add(1)
    while any(n > 1 for n in server.step().values()):
        pass
    return server


def test_200_decodes_leave_7992_tokens_for_prompts(kitchen):
    prompt = kitchen.add(4_000)
    other = kitchen.add(30_000)
    step = kitchen.step()
    assert sum(n for name, n in step.items() if name not in (prompt.request_id, other.request_id)) == 200
    assert step[prompt.request_id] == 4_000, "it fits whole"
    assert step[other.request_id] == 3_992, "what it leaves"


def test_a_prompt_of_30000_takes_a_chunk_of_7992_beside_200_decodes(kitchen):
    prompt = kitchen.add(30_000)
    assert kitchen.step()[prompt.request_id] == 7_992
    assert prompt.num_prompt_tokens - prompt.num_computed_tokens == 22_008


@pytest.mark.parametrize(("budget", "steps"), [(8192, 4), (2048, 15)])
def test_steps_of_a_30000_token_prompt_alone(budget, steps):
    server = Server(max_num_batched_tokens=budget)
    prompt = server.add(30_000)
    taken = 0
    while prompt.num_output_tokens == 0:
        server.step()
        taken += 1
    assert taken == steps


def test_a_preempted_request_goes_on_where_it_was():
    """Two requests of 160 + 200 tokens in 30 blocks of 16: about 320 steps; starting again from token 0 takes 400."""
    scheduler = Scheduler(config(num_gpu_blocks=31))
    for index in range(2):
        hasher = BlockHasher(((index, 160),), 10 + index, 16)
        scheduler.add_request(CoreRequest(f"r{index}", 160, 200, hasher, arrival_time=float(index)))
    steps = 0
    while scheduler.num_unfinished:
        plan = scheduler.schedule()
        scheduler.commit(plan, sample(plan))
        steps += 1
    assert 315 <= steps <= 325
