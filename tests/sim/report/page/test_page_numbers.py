"""What the page's figures are drawn from: nothing lost in a short run, means and peaks kept in a long one."""

from __future__ import annotations

import numpy as np
import pytest

from sim.report.insight import ttft_parts_s
from sim.report.page import numbers
from sim.report.page.numbers import over_time, spread, wait_groups


def moments_s(data: dict) -> np.ndarray:
    return np.cumsum(data["time"]["t"]) * data["time"]["unit_s"]


def mean_over_time(data: dict, name: str) -> float:
    widths_s = np.diff(np.append(moments_s(data), data["end_s"]))
    return float((np.array(data["time"]["series"][name]["mean"]) * widths_s).sum())


@pytest.mark.parametrize("bins", [None, 50])
def test_no_token_and_no_peak_gets_lost(toy_run, monkeypatch, bins: int | None) -> None:
    if bins:
        monkeypatch.setattr(numbers, "EXACT", 10)
        monkeypatch.setattr(numbers, "BINS", bins)
    frames = toy_run(requests=60, rate=4.0)
    steps = frames.steps
    data, made = over_time(frames)
    assert (made.bin_s is None) == (bins is None)
    assert made.moments > len(steps)  # it pauses
    assert len(moments_s(data)) == (bins or made.moments)
    assert sum(data["time"]["sampled"]) == steps["sampled"].sum()
    peaks = data["time"]["series"]["running"]["peak" if bins else "mean"]
    assert max(peaks) == steps["running"].max()
    exact = float((steps["running"] * (steps["end_s"] - steps["start_s"])).sum())
    # Times are told to 0.1 ms, means to 0.1: of 50 bins at most 50 halves of that.
    assert mean_over_time(data, "running") == pytest.approx(exact, rel=0.01 if bins else 1e-3)
    assert data["end_s"] == steps["end_s"].max()


def test_tokens_belong_to_the_stretch_in_which_their_step_ends(toy_run) -> None:
    frames = toy_run(requests=3, rate=0.5, output=5)
    data, _ = over_time(frames)
    ends_s = np.append(moments_s(data)[1:], data["end_s"])
    told = {round(float(end), 3): n for end, n in zip(ends_s, data["time"]["sampled"], strict=True) if n}
    steps = frames.steps[frames.steps["sampled"] > 0]
    assert told == {round(row.end_s, 3): row.sampled for row in steps.itertuples()}


def test_marks_are_thinned_and_counted(toy_run, monkeypatch) -> None:
    frames = toy_run(requests=80, rate=20.0, blocks=300)
    hit = int((frames.steps["preempted"] > 0).sum())
    assert hit > 4
    data, made = over_time(frames)
    assert (len(data["preempted_s"]), made.marks_left_out) == (hit, 0)
    monkeypatch.setattr(numbers, "_MOST_MARKS", 4)
    data, made = over_time(frames)
    assert (len(data["preempted_s"]), made.marks_left_out) == (4, hit - 4)


def test_a_spread_s_heights_are_nines() -> None:
    """Of 1 to 10,000 ms: 90 % within 9,000.1 ms, at height 1."""
    told = spread(np.arange(1, 10_001) / 1000)
    at = dict(zip(told["height"], told["ms"], strict=True))
    assert at[0] == 1.0
    assert told["height"][-2] == pytest.approx(4.0, abs=0.05)
    assert told["ms"][-1] == 10_000
    nearest = min(told["height"], key=lambda height: abs(height - 1.0))
    assert at[nearest] == pytest.approx(1e4 * (1 - 10**-nearest), rel=1e-3)
    assert len(told["ms"]) == 200


def test_the_slowest_are_those_that_waited_longest(toy_run) -> None:
    frames = toy_run(requests=200, rate=30.0, seats=8)
    parts_s = ttft_parts_s(frames)
    groups = dict(wait_groups(parts_s))
    assert list(groups) == ["Everybody", "Slowest 10 %", "Slowest 1 %"]
    total_ms = 1000 * sum(parts_s.values())
    assert sum(groups["Everybody"].values()) == pytest.approx(total_ms.mean())
    assert sum(groups["Slowest 1 %"].values()) == pytest.approx(np.sort(total_ms)[-2:].mean())
