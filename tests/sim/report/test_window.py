"""A run without its ends: rates of what came out in the window, latencies of those who arrived in it."""

from __future__ import annotations

import pytest

from sim import EngineConfig, simulate
from sim.errors import InputError
from sim.report.summary import SummaryOptions, summarize
from sim.report.window import summarize_window
from workloads import Request


@pytest.fixture
def frames(constant_profile):
    """One request each second from 1 s to 10 s, each 11 tokens in steps of 50 ms: half of every second is busy."""
    load = [Request(f"r{i}", float(i), 10, 11) for i in range(1, 11)]
    return simulate(load, EngineConfig(async_scheduling=False), constant_profile(0.05)).frames


def test_without_cuts_it_is_the_whole_run(frames) -> None:
    options = SummaryOptions(goodput_slo_ms={"ttft": 1000.0})
    whole = summarize(frames, options, detailed=False)
    for name in ("request_throughput", "output_throughput", "total_token_throughput", "request_goodput", "duration"):
        # The last token comes at the window's very end, which is outside of it.
        assert summarize_window(frames, options, 0.0, -1e-9)[name] == pytest.approx(whole[name])


def test_rates_are_of_the_window(frames) -> None:
    """From 2.9 to 6.9 s: four requests come and go, 44 tokens."""
    end_s = float(frames.requests["finish_s"].max())
    cut = summarize_window(frames, SummaryOptions(goodput_slo_ms={"ttft": 1000.0}), 2.9, end_s - 6.9)
    assert cut["duration"] == pytest.approx(4.0)
    assert cut["completed"] == 4
    assert cut["request_throughput"] == pytest.approx(1.0)
    assert cut["request_goodput"] == pytest.approx(1.0)
    assert cut["output_throughput"] == pytest.approx(11.0)
    assert cut["total_token_throughput"] == pytest.approx(21.0)


def test_latencies_are_of_those_who_arrived_in_it(constant_profile) -> None:
    """One place: each waits longer than the one before. The first half's mean is below the second's."""
    load = [Request(f"r{i}", i / 10, 10, 11) for i in range(20)]
    config = EngineConfig(max_num_seqs=1, async_scheduling=False)
    frames = simulate(load, config, constant_profile(0.05)).frames
    end_s = float(frames.requests["finish_s"].max())
    first = summarize_window(frames, SummaryOptions(), 0.0, end_s - 0.95)
    second = summarize_window(frames, SummaryOptions(), 0.95, 0.0)
    assert (first["completed"], second["completed"]) == (10, 10)
    # 0.55 s of service against 0.1 s between arrivals: the wait grows by 0.45 s from each to the next, ten apart.
    assert second["mean_ttft_ms"] - first["mean_ttft_ms"] == pytest.approx(4500, rel=0.01)


def test_an_empty_window_is_an_error(frames) -> None:
    with pytest.raises(InputError, match="no request arrives between --warmup-s 50 and --cooldown-s 0"):
        summarize_window(frames, SummaryOptions(), 50.0, 0.0)
