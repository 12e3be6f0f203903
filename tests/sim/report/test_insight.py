"""The `sim` block against what the frames and queueing theory say."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from sim.report.frames import Frames, Itls
from sim.report.insight import insight, kv_usage, ttft_parts_s

PRESSED = {"blocks": 1200, "rate": 20, "prompt": 300, "output": 200, "requests": 150}


def test_counts_and_peaks_are_those_of_the_frames(toy_run):
    frames = toy_run(**PRESSED, max_model_len=900)
    sim, steps = insight(frames), frames.steps
    assert sim["preemptions"] == steps["preempted"].sum() > 0
    assert sim["preempted_requests"] < sim["preemptions"]
    assert sim["rejected"] == frames.requests["queued_s"].isna().sum() > 0
    assert sim["steps"] == len(steps)
    assert sim["mean_batch"] * len(steps) == pytest.approx(steps["num_seqs"].sum())
    assert sim["extrapolated_share"] == sim["extrapolated_steps"] / len(steps)
    assert sim["unfinished"] == 0


def test_kv_usage_leaves_out_the_null_block(toy_run):
    """BlockPool.get_usage of vLLM 0.32: 1 - free / (blocks - 1)."""
    frames = toy_run(requests=2)
    frames = replace(frames, steps=frames.steps.head(3).assign(free_blocks=[100, 50, 0]), meta={"num_gpu_blocks": 101})
    assert kv_usage(frames).tolist() == [0.0, 0.5, 1.0]
    assert insight(frames)["peak_kv_usage"] == 1.0


def test_hit_rate_is_tokens_found_over_tokens_asked_by_admitted_requests(toy_run):
    frames = toy_run(requests=4)
    table = frames.requests.assign(prompt_tokens=[100, 300, 50, 50], cached_tokens=[0, 200, 0, 0])
    table.loc[3, "scheduled_s"] = math.nan
    assert insight(replace(frames, requests=table))["prefix_hit_rate"] == 200 / 450


def test_the_parts_of_ttft_add_up_and_the_clients_queue_is_not_the_servers(toy_run):
    """Fault to avoid: client-side waiting counted as server TTFT."""
    frames = toy_run(requests=100, rate=40.0, cap=4)
    parts = ttft_parts_s(frames)
    whole = frames.requests["first_token_s"] - frames.requests["arrival_s"]
    assert np.allclose(sum(parts.values()), whole)
    assert all((part > -1e-9).all() for part in parts.values())
    assert parts["client_queue"].mean() > 1.0 > 0.1 > parts["server_queue"].mean()
    assert parts["delivery"] == pytest.approx(np.full(100, 0.008))


@pytest.mark.parametrize(("servers", "load"), [(1, 0.8), (1, 0.96), (8, 0.9), (32, 0.97)])
def test_the_load_of_an_m_m_c_queue_is_recovered(servers, load):
    """Queueing theory gives the truth: M/M/c at a known load, of any number of servers."""
    sim = insight(m_m_c(servers, load, events=400_000))
    assert sim["load"]["utilization"] == pytest.approx(load, abs=0.012)
    assert sim["load"]["ordering_only"] == (load >= 0.95)


def m_m_c(servers: int, load: float, events: int) -> Frames:
    """A birth-death chain as frames: one "step" per stay in a state, idle stays left out as an engine's are."""
    rng = np.random.default_rng(5)
    coin, expo = rng.random(events).tolist(), rng.exponential(size=events).tolist()
    arrival_rate, now_s, inside, rows, arrivals_s = load * servers, 0.0, 0, [], []
    for u, e in zip(coin, expo, strict=True):
        rate = arrival_rate + min(inside, servers)
        if inside:
            rows.append((now_s, now_s + e / rate, max(0, inside - servers)))
        now_s += e / rate
        if u < arrival_rate / rate:
            arrivals_s.append(now_s)
            inside += 1
        else:
            inside -= 1
    steps = pd.DataFrame(rows, columns=["start_s", "end_s", "waiting"])
    steps = steps.assign(running=servers, free_blocks=0, num_seqs=1, num_tokens=1, extrapolated=False, limit="seqs")
    requests = pd.DataFrame({"arrival_s": arrivals_s, "send_s": arrivals_s, "queued_s": arrivals_s})
    requests = requests.assign(scheduled_s=math.nan, first_token_s=math.nan, preemptions=0, recomputed_tokens=0)
    requests = requests.assign(cached_tokens=0, prompt_tokens=1, status="finished")
    return Frames(requests, Itls(np.zeros(0), np.zeros(len(requests) + 1, dtype=np.int64)), steps, {})


def test_what_held_requests_back_is_named(toy_run):
    by_blocks = insight(toy_run(**PRESSED))["load"]["held_back_by"]
    assert by_blocks["blocks"] > 0.4
    assert by_blocks["seqs"] == by_blocks["client_cap"] == 0.0
    by_cap = insight(toy_run(requests=100, rate=40.0, cap=4))["load"]
    assert by_cap["held_back_by"]["client_cap"] > 0.8
    assert by_cap["ordering_only"]
    by_seats = insight(toy_run(requests=100, rate=40.0, seats=4))["load"]["held_back_by"]
    assert by_seats["seqs"] > 0.8
