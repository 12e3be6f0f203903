"""Leaping over quiet steps changes nothing: every table of a run is the same, bit for bit, as stepping one by one.

Nor does forgetting them: the summary is that of the tables, but for percentiles of the ITL, which are within a bound.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sim.report.log
import sim.report.step_totals
from sim.core.config import SchedulerConfig
from sim.experiment import simulate
from sim.latency.model import FusedLaw
from sim.latency.profile import Profile
from sim.report.gap_totals import QUANTILE_ERROR
from sim.report.summary import SummaryOptions
from workloads import Request

PROFILE = Profile.load("h100-qwen3-14b")


@st.composite
def runs(draw):
    """A workload, settings, a profile with or without host time, and a cap in flight."""
    seed = draw(st.integers(0, 2**20))
    rng = np.random.default_rng(seed)
    n = draw(st.integers(1, 25))
    rate = draw(st.sampled_from([0.5, 3.0, 30.0, 1e6]))
    outputs = rng.integers(1, draw(st.sampled_from([3, 60, 400])), n)
    prompts = rng.integers(1, draw(st.sampled_from([5, 300])), n)
    shared = draw(st.booleans())
    requests = [
        Request(
            f"r{i}",
            float(t),
            int(p),
            int(o),
            content=((1, int(p) // 2 + 1), (50 + i, int(p) - int(p) // 2 - 1)) if shared and p > 2 and i % 2 else None,
            priority=int(rng.integers(0, 3)),
        )
        for i, (t, p, o) in enumerate(zip(np.cumsum(rng.exponential(1 / rate, n)), prompts, outputs, strict=True))
    ]
    seqs = draw(st.sampled_from([1, 3, 16]))
    block_size = draw(st.sampled_from([4, 16]))
    config = SchedulerConfig(
        max_num_batched_tokens=max(seqs, draw(st.sampled_from([4, 64, 512]))),
        max_num_seqs=seqs,
        max_model_len=1024,
        num_gpu_blocks=1 + 1024 // block_size + draw(st.sampled_from([0, 7, 1000])),
        block_size=block_size,
        policy=draw(st.sampled_from(["fcfs", "priority"])),
        enable_prefix_caching=draw(st.booleans()),
        scheduler_reserve_full_isl=draw(st.booleans()),
        async_scheduling=draw(st.booleans()),
        kv_preemption=draw(st.sampled_from(["recompute", "swap", "offload"])),
        num_host_blocks=draw(st.sampled_from([0, 40, 10_000])),
        offload_prompt_only=draw(st.booleans()),
    )
    host_s = draw(st.sampled_from([0.0, 0.001, 0.03]))
    profile = dataclasses.replace(PROFILE, law=dataclasses.replace(PROFILE.law, host_step_s=host_s))
    return requests, config, profile, draw(st.sampled_from([None, 2, 8]))


def assert_same(requests, config, profile, cap):
    leaping, stepping = (
        simulate(requests, config, profile, max_in_flight=cap, outside="clip", leap=leap) for leap in (True, False)
    )
    pd.testing.assert_frame_equal(leaping.requests, stepping.requests, check_exact=True)
    pd.testing.assert_frame_equal(leaping.steps, stepping.steps, check_exact=True)
    assert np.array_equal(leaping.itls.values_s, stepping.itls.values_s)
    assert np.array_equal(leaping.itls.offsets, stepping.itls.offsets)


@settings(max_examples=60, deadline=None)
@given(runs())
def test_leaping_equals_stepping(run):
    assert_same(*run)


@settings(max_examples=60, deadline=None)
@given(runs())
def test_steps_that_are_forgotten_leave_the_same_summary(run):
    """With blocks of few steps, so that there are many."""
    requests, config, profile, cap = run
    options = SummaryOptions(
        ("ttft", "tpot", "itl", "e2el", "client_queue_time"), (0, 5, 50, 90, 99, 100), {"ttft": 90}
    )
    with pytest.MonkeyPatch.context() as patch:
        for module in (sim.report.log, sim.report.step_totals):
            patch.setattr(module, "BLOCK_STEPS", 7)
        kept, forgotten = (
            simulate(requests, config, profile, max_in_flight=cap, outside="clip", keep_steps=keep)
            for keep in (True, False)
        )
        expected, got = (result.record for result in (kept, forgotten))
        pd.testing.assert_frame_equal(got.requests, expected.requests, check_exact=True)
        assert len(got.gaps) == len(expected.itls.values_s)
        assert_same_summary(forgotten.summary(options), kept.summary(options))


def assert_same_summary(got, expected):
    lists = {name for name, value in expected.items() if isinstance(value, list)}
    assert list(got) == [name for name in expected if name not in lists]
    assert list(got["sim"]) == list(expected["sim"])
    bound = got["sim"].pop("itl_percentile_error")
    assert (bound, expected["sim"].pop("itl_percentile_error")) == (QUANTILE_ERROR, 0.0)
    for name, value in got.items():
        if name in ("mean_itl_ms", "std_itl_ms"):
            assert value == pytest.approx(expected[name], rel=1e-12, abs=1e-9)
        elif name.endswith("_itl_ms"):
            assert value == pytest.approx(expected[name], rel=bound)
        else:
            assert value == expected[name], name


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 30), st.integers(1, 40)), min_size=1, max_size=12),
    st.booleans(),
    st.sampled_from([None, 2]),
)
def test_requests_that_come_just_as_steps_end(ticks, asynchronous, cap):
    """Every step takes 1/16 s, to the bit, and requests come at multiples of it."""
    law = FusedLaw.linear(1 / 16, 0.0)
    profile = Profile.of_law("ticks", law, model="llama-3.1-8b", gpu="h100")
    requests = [Request(f"r{i}", at / 16, p, o) for i, (at, p, o) in enumerate(sorted(ticks))]
    assert_same(requests, SchedulerConfig(64, 4, 1024, 500, async_scheduling=asynchronous), profile, cap)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_it_really_leaps(asynchronous, monkeypatch):
    """One request of 500 tokens: few rounds are scheduled one by one."""
    from sim.core.scheduler import Scheduler

    calls = []
    schedule = Scheduler.schedule
    monkeypatch.setattr(Scheduler, "schedule", lambda self: (calls.append(1), schedule(self))[1])
    config = SchedulerConfig(512, 8, 2048, 1000, async_scheduling=asynchronous)
    result = simulate([Request("a", 0.0, 100, 500)], config, PROFILE)
    assert len(result.steps) == 500
    assert len(calls) < 20
