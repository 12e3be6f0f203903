"""The closed loop against the simulator: where passes take exactly what a profile says, both runs are one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calibrate.closed_loop import ClosedLoop, WallClock, prompt_tokens
from calibrate.real_run import FIGURES, figures, predict, serve_for_real, step_errors
from sim.core.config import SchedulerConfig
from sim.errors import InputError
from sim.experiment import simulate
from sim.latency.profile import DEFAULT_PROFILE, ClientTerms, Profile
from sim.latency.shape import StepShape
from sim.report.log import RunLog
from workloads import Request

CONFIG = SchedulerConfig(
    max_num_batched_tokens=512,
    max_num_seqs=16,
    max_model_len=2048,
    num_gpu_blocks=2000,
    enable_prefix_caching=False,
    async_scheduling=False,
)


class VirtualClock:
    def __init__(self):
        self.now = 0.0

    def now_s(self):
        return self.now

    def wait_until(self, due_s):
        self.now = max(self.now, due_s)


class LawForward:
    """Takes the time that a profile says, and hands out token 1."""

    vocab_size = 1000

    def __init__(self, profile, clock):
        self.profile, self.clock = profile, clock
        self.read = []

    def run(self, inputs):
        chunks, decodes = inputs.chunks, inputs.decodes
        shape = StepShape(
            num_tokens=inputs.num_tokens,
            num_seqs=len(chunks) + len(decodes),
            decode_context=sum(decodes),
            chunk_tokens=sum(n for n, _ in chunks),
            chunk_pairs=sum(n * (c + 0.5 * n) for n, c in chunks),
            num_sampled=inputs.sampled.size,
        )
        time = self.profile.step_time(shape)
        self.clock.now += time.host_s + time.device_s
        self.read.append(inputs)
        return np.ones(inputs.sampled.size, dtype=np.int64), time.device_s


@pytest.fixture
def profile():
    shipped = Profile.load(DEFAULT_PROFILE)
    law = replace(shipped.law, host_step_s=2e-4, host_row_s=1e-5)
    return replace(shipped, law=law, client=ClientTerms(), server={})


def _requests(count, gap_s=0.05, prompt=(20, 700), output=(1, 40), seed=0):
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(gap_s, count))
    return [
        Request(f"r{i}", float(at), int(rng.integers(*prompt)), int(rng.integers(*output)))
        for i, at in enumerate(arrivals)
    ]


def _served(requests, config, profile, cap=None):
    clock = VirtualClock()
    forward = LawForward(profile, clock)
    return serve_for_real(requests, config, forward, clock=clock, max_in_flight=cap), forward


def _assert_one(requests, config, profile, cap=None):
    run, _ = _served(requests, config, profile, cap)
    told = simulate(requests, config, profile, max_in_flight=cap, outside="warn").frames
    for column in ("send_s", "first_token_s", "finish_s"):
        np.testing.assert_allclose(run.frames.requests[column], told.requests[column], rtol=0, atol=1e-9)
    assert run.frames.requests["preemptions"].tolist() == told.requests["preemptions"].tolist()
    np.testing.assert_allclose(run.frames.itls.values_s, told.itls.values_s, rtol=0, atol=1e-9)
    return run


@pytest.mark.filterwarnings("ignore::sim.experiment.ExtrapolationWarning")
@pytest.mark.parametrize("gap_s", [0.002, 0.05, 0.5])
def test_every_token_of_every_request_comes_when_the_simulator_says(profile, gap_s):
    _assert_one(_requests(60, gap_s), CONFIG, profile)


@pytest.mark.filterwarnings("ignore::sim.experiment.ExtrapolationWarning")
def test_with_a_cap_in_flight(profile):
    _assert_one(_requests(40, 0.005), CONFIG, profile, cap=3)


@pytest.mark.filterwarnings("ignore::sim.experiment.ExtrapolationWarning")
def test_with_preemptions(profile):
    config = replace(CONFIG, num_gpu_blocks=80, max_num_seqs=12, max_model_len=1000, scheduler_reserve_full_isl=False)
    run = _assert_one(_requests(40, 0.01, prompt=(50, 200), output=(50, 120)), config, profile)
    assert run.frames.requests["preemptions"].sum() > 0


@pytest.mark.filterwarnings("ignore::sim.experiment.ExtrapolationWarning")
def test_with_shared_prefixes(profile):
    config = replace(CONFIG, enable_prefix_caching=True)
    requests = [Request(f"r{i}", 0.02 * i, 300, 5, content=((7, 256), (100 + i, 44))) for i in range(12)]
    run = _assert_one(requests, config, profile)
    assert run.frames.requests["cached_tokens"].tolist()[1:] == [256] * 11


def test_a_recomputed_request_computes_what_it_had_generated(profile):
    """After a preemption the tokens that were sampled (1, here) are part of what is computed again."""
    config = replace(CONFIG, num_gpu_blocks=30, max_num_seqs=4, max_model_len=400, scheduler_reserve_full_isl=False)
    requests = [Request(f"r{i}", 0.0, 100, 150) for i in range(3)]
    run, forward = _served(requests, config, profile)
    assert run.frames.requests["preemptions"].sum() > 0
    again = [inputs for inputs in forward.read for n, c in inputs.chunks if c == 0 and n > 100]
    assert again
    assert (again[0].tokens[-20:] == 1).all()


def test_a_server_that_is_idle_waits_for_the_next_request(profile):
    requests = [Request("a", 0.0, 50, 2), Request("b", 30.0, 50, 2)]
    run, _ = _served(requests, CONFIG, profile)
    assert run.frames.requests["scheduled_s"].tolist()[1] == pytest.approx(30.0)


def test_a_request_that_cannot_be_served_is_refused_and_the_rest_is_served(profile):
    requests = [Request("long", 0.0, 5000, 2), Request("ok", 0.0, 50, 2)]
    run, _ = _served(requests, CONFIG, profile)
    assert run.frames.requests["status"].tolist() == ["rejected", "finished"]


def test_host_and_device_are_told_apart(profile):
    run, _ = _served(_requests(10), CONFIG, profile)
    errors = step_errors(run.steps, profile)
    assert errors.total == pytest.approx(0.0, abs=1e-6)
    assert errors.host_measured_s == pytest.approx(errors.host_predicted_s, rel=1e-6)
    assert errors.steps == len(run.frames.steps)


@pytest.mark.filterwarnings("ignore::sim.experiment.ExtrapolationWarning")
def test_figures_are_those_of_the_bench(profile):
    requests = _requests(20)
    run, _ = _served(requests, CONFIG, profile)
    assert figures(run.frames) == pytest.approx(figures(predict(requests, CONFIG, profile, None)), rel=1e-6)
    assert set(figures(run.frames)) == set(FIGURES)


def test_what_real_passes_cannot_do_is_refused(profile):
    clock = VirtualClock()
    with pytest.raises(InputError, match="no-async-scheduling"):
        ClosedLoop(replace(CONFIG, async_scheduling=True), LawForward(profile, clock), RunLog(), clock)
    with pytest.raises(InputError, match="--kv-preemption recompute"):
        ClosedLoop(replace(CONFIG, kv_preemption="swap"), LawForward(profile, clock), RunLog(), clock)
    turn = Request("b", 0.0, 5, 5, after="a")
    with pytest.raises(InputError, match="follow-up"):
        ClosedLoop(CONFIG, LawForward(profile, clock), RunLog(), clock).serve([turn])


def test_equal_content_is_equal_text_and_other_content_is_not():
    one, two = (Request("x", 0.0, 40, 1, content=((5, 30), (9 + i, 10))) for i in range(2))
    a, b = prompt_tokens(0, one, 1000), prompt_tokens(1, two, 1000)
    assert a[:30].tolist() == b[:30].tolist()
    assert a[30:].tolist() != b[30:].tolist()
    longer = Request("y", 0.0, 100, 1, content=((5, 100),))
    assert prompt_tokens(2, longer, 1000)[:30].tolist() == a[:30].tolist()
    own = [prompt_tokens(row, Request("z", 0.0, 20, 1), 1000).tolist() for row in range(2)]
    assert own[0] != own[1]


def test_the_wall_clock_waits():
    clock = WallClock()
    clock.wait_until(0.02)
    assert 0.02 <= clock.now_s() < 2.0
