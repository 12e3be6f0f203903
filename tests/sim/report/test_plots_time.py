"""The picture over time: its headline, its means and peaks, and every token in some bin of the throughput."""

from __future__ import annotations

import numpy as np
import pytest

from sim.report import plots_time, words
from sim.report.curves import StepCurves
from sim.report.time_axis import TimeAxis


def test_headlines_say_what_happened(toy_run):
    def headline(**run):
        return words.run_headline(toy_run(**run))

    pressed = {"blocks": 1200, "rate": 20, "prompt": 300, "output": 200, "requests": 150}
    steps = toy_run(**pressed).steps
    assert headline(**pressed) == (
        f"At most {steps['running'].max()} running, {steps['waiting'].max()} left waiting, KV cache 100 %; "
        f"{steps['preempted'].sum()} preemptions"
    )
    assert "held back by the client" in headline(requests=60, rate=40.0, cap=8)
    assert headline(requests=1) == "At most 1 running, nobody left waiting, KV cache 0.35 %; no preemption"
    assert headline(requests=0) == "Nothing ran"


def test_a_share_that_rounds_to_nothing_is_said_in_a_sentence(toy_run, monkeypatch):
    drawn = []
    monkeypatch.setattr(plots_time, "save_figure", lambda figure, _path: drawn.append(figure))
    plots_time.plot_timeseries(toy_run(requests=1, blocks=1_000_000), None)
    titles = [panel.get_title(loc="left") for panel in drawn[0].axes]
    assert "KV cache usage, always < 0.01 %" in titles


def test_a_long_runs_bins_keep_the_mean_over_time_and_the_peaks(toy_run):
    frames = toy_run(requests=300, rate=3.0)
    assert len(frames.steps) > plots_time._RAW_STEPS
    starts_s, ends_s = (frames.steps[name].to_numpy() for name in ("start_s", "end_s"))
    curves = StepCurves(frames)
    values = curves.values(frames.steps["running"].to_numpy())
    edges_s = np.linspace(0, ends_s[-1], plots_time._BINS + 1)
    area = curves.means(values, edges_s).sum() * ends_s[-1] / plots_time._BINS
    assert len(values) > len(frames.steps) + 1  # it pauses
    assert area == pytest.approx((frames.steps["running"] * (ends_s - starts_s)).sum(), rel=1e-6)
    assert curves.peaks(values, edges_s).max() == frames.steps["running"].max()


@pytest.mark.parametrize("gap_s", [0.0, 3.0, 100.0, 1e5])
@pytest.mark.parametrize("steps", [1, 2, 7, 400])
def test_every_token_is_in_the_throughput(gap_s, steps):
    """Its area is their number, wherever an edge falls: at a step's end, in a rest, at a cut."""
    starts_s = 0.01 * np.arange(2 * steps) + np.where(np.arange(2 * steps) < steps, 0.0, gap_s)
    ends_s, sampled = starts_s + 0.01, np.arange(1.0, 2 * steps + 1)
    axis = TimeAxis.of_steps(starts_s, ends_s)
    edges_s = axis.edges_s(plots_time._bin_width_s(axis.shown_s, 2 * steps))
    rates = plots_time._rates(ends_s, sampled, edges_s)
    assert (rates * np.diff(edges_s)).sum() == pytest.approx(sampled.sum())
    assert len(axis.cuts) == (gap_s > 3 * 0.02 * steps)


def test_a_bin_holds_the_tokens_of_the_steps_that_end_in_it():
    """Steps end at 0.5 and 1.0 s, exactly on the edge, and at 1.5 s: 3 tokens in the first second, 4 in the second."""
    rates = plots_time._rates(np.array([0.5, 1.0, 1.5]), np.array([1.0, 2.0, 4.0]), np.array([0.0, 1.0, 2.0]))
    assert rates.tolist() == [3.0, 4.0]
