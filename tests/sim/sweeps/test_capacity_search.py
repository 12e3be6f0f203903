"""The highest rate, where arithmetic knows it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.config import EngineConfig
from sim.sweeps.backends import local
from sim.sweeps.capacity import STEP, best_capacity, capacities
from sim.sweeps.store import Store
from sim.sweeps.study import outcomes
from sim.sweeps.sweep import _silent

BOUND = {"p99_ttft_ms": 1000.0}


@pytest.fixture
def sync(constant_profile):
    """With async scheduling a place is free one step late where others run on."""
    return replace(constant_profile(0.01), server={"async_scheduling": False})


@pytest.fixture
def found():
    def search(plan, slo=BOUND):
        store, tried = Store(None), []

        def run(settings):
            tried.extend(settings)
            return outcomes(plan, settings, store, local(1), lambda n: _silent("", n))

        return capacities(plan, slo, run), tried

    return search


def test_the_rate_at_which_a_server_of_known_speed_is_full(study, found, sync) -> None:
    """Evenly spaced requests of 11 tokens (11 steps of 10 ms, one of them the prompt's), k at a time: k / 0.11 s."""
    plan = study(
        {"max_num_seqs": [1, 4]},
        num_prompts=150,
        request_rate=1.0,
        burstiness=float("inf"),
        output_len=11,
        profile=sync,
    )
    [one, four], tried = found(plan, {"p99_ttft_ms": 200.0})
    assert 1 / 0.11 / STEP < one.rate_rps < 1 / 0.11 * STEP
    assert 4 / 0.11 / STEP < four.rate_rps < 4 / 0.11 * STEP
    assert best_capacity([one, four]) is four
    assert one.row["p99_ttft_ms"] <= 200
    assert len(tried) < 2 * 20


def test_the_answer_is_within_two_percent(study, found, sync) -> None:
    plan = study(
        {}, num_prompts=150, request_rate=1.0, burstiness=float("inf"), output_len=11, engine=seqs(1), profile=sync
    )
    [one], tried = found(plan, {"p99_ttft_ms": 200.0})
    scales = sorted(setting.knobs["rate_scale"] for setting in tried)
    good = one.row["offered_rps"]
    assert any(scale == pytest.approx(good * STEP, rel=1e-6) for scale in scales)


def seqs(n: int):
    return EngineConfig(max_num_seqs=n)


def test_a_queue_that_only_grows_is_not_sustained_whatever_the_bound(study, found, sync) -> None:
    """An ITL bound alone would be met at any rate: running requests do not feel the queue."""
    plan = study(
        {}, num_prompts=150, request_rate=1.0, burstiness=float("inf"), output_len=11, engine=seqs(1), profile=sync
    )
    [one], _ = found(plan, {"p99_itl_ms": 50.0})
    assert 1 / 0.11 / 1.02 < one.rate_rps < 1 / 0.11 * 1.025


def test_bounds_that_no_rate_meets(study, found) -> None:
    [one], _ = found(study({}, num_prompts=5), {"p99_ttft_ms": 1.0})
    assert (one.rate_rps, one.why) == (None, "not within bounds at any rate")


def test_all_at_once_has_no_rate(study, found) -> None:
    [one], tried = found(study({}, request_rate=None))
    assert one.rate_rps is None
    assert "all requests come at once" in one.why
    assert len(tried) == 1


def test_rates_of_the_grid_are_not_settings_of_their_own(study, found) -> None:
    plan = study({"request_rate": [1.0, 2.0], "max_num_seqs": [1, 4]}, num_prompts=10)
    answers, _ = found(plan)
    assert [dict(one.knobs) for one in answers] == [{"max_num_seqs": 1}, {"max_num_seqs": 4}]


def test_an_impossible_setting_says_why(study, found) -> None:
    [bad], _ = found(study({"max_num_batched_tokens": [1]}, num_prompts=5, engine=seqs(4)))
    assert "at least max_num_seqs" in bad.why
