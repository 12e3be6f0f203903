"""Pictures: right curves, nothing cut off or empty, the same bytes each time. Looks are judged by eye, not here."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from PIL import Image

from sim.errors import InputError
from sim.report import plots, words

RUNS = {
    "usual": {"requests": 60},
    "pressed": {"blocks": 1200, "rate": 20, "prompt": 300, "output": 200, "requests": 150},
    "capped": {"requests": 60, "rate": 40.0, "cap": 8},
    "one": {"requests": 1},
    "one token": {"requests": 1, "output": 1},
    "none": {"requests": 0},
    "cut": {"requests": 80, "rate": 40.0, "stop_s": 2.0, "seats": 8},
}
DRAW = {"time": plots.plot_timeseries, "latency": plots.plot_latency}


@pytest.fixture
def draw(monkeypatch):
    """A picture's figure, laid out, instead of its file."""

    def figure(kind, frames):
        caught = []
        monkeypatch.setattr(
            plots, "save_figure", lambda figure, _path: (figure.draw_without_rendering(), caught.append(figure))
        )
        DRAW[kind](frames, None)
        return caught[0]

    return figure


@pytest.mark.parametrize("kind", DRAW)
@pytest.mark.parametrize("run", RUNS)
def test_every_word_stands_inside_the_picture(toy_run, draw, kind, run):
    """Neither an edge cuts a label off, nor do neighbouring labels of an axis touch. Warnings are errors."""
    figure = draw(kind, toy_run(**RUNS[run]))
    texts = [*figure.texts, *(t for axes in figure.axes for t in (axes.title, axes._left_title, *axes.texts))]
    boxes = [text.get_window_extent() for text in texts if text.get_text() and text.get_visible()]
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            labels = [label.get_window_extent() for label in axis.get_ticklabels() if label.get_text() and axes.axison]
            inside = [box for box in labels if axes.bbox.x0 - 90 <= box.x0 <= axes.bbox.x1]
            if axis is axes.xaxis and axes.get_subplotspec().is_last_row():
                assert all(a.x1 < b.x0 for a, b in pairwise(inside))
    width, height = figure.bbox.width, figure.bbox.height
    assert width == 1200
    assert all(box.x0 >= 0 and box.x1 <= width and box.y0 >= 0 and box.y1 <= height for box in boxes)


def test_headlines_say_what_happened(toy_run):
    def headline(run):
        return words.run_headline(toy_run(**RUNS[run]))

    steps = toy_run(**RUNS["pressed"]).steps
    assert headline("pressed") == (
        f"At most {steps['running'].max()} running, {steps['waiting'].max()} left waiting, KV cache 100 %; "
        f"{steps['preempted'].sum()} preemptions"
    )
    assert "held back by the client" in headline("capped")
    assert headline("one") == "At most 1 running, nobody left waiting, KV cache 0.35 %; no preemption"
    assert headline("none") == "Nothing ran"
    assert words.latency_headline(np.zeros(0), toy_run(**RUNS["none"])) == "Nobody got a token"


def test_a_long_runs_bins_keep_the_mean_over_time_and_the_peaks(toy_run):
    frames = toy_run(requests=300, rate=3.0)
    assert len(frames.steps) > plots._RAW_STEPS
    end_s = frames.steps["end_s"].max()
    curves = plots._Curves(frames, end_s, 1.0)
    values = curves._steps.values(frames.steps["running"].to_numpy())
    edges_s = np.linspace(0, end_s, plots._BINS + 1)
    area = curves._steps.means(values, edges_s).sum() * end_s / plots._BINS
    exact = (frames.steps["running"] * (frames.steps["end_s"] - frames.steps["start_s"])).sum()
    assert len(values) > len(frames.steps)  # it pauses
    assert area == pytest.approx(exact, rel=1e-6)
    assert curves._steps.peaks(values, edges_s).max() == frames.steps["running"].max()


@pytest.mark.parametrize("kind", DRAW)
@pytest.mark.parametrize("extension", ["png", "svg"])
def test_the_same_run_gives_the_same_bytes(toy_run, tmp_path, kind, extension):
    paths = [tmp_path / f"{name}.{extension}" for name in "ab"]
    for path in paths:
        DRAW[kind](toy_run(requests=20), path)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    if extension == "png":
        with Image.open(paths[0]) as image:
            assert image.width == 1200


def test_other_file_types_are_refused(toy_run, tmp_path):
    with pytest.raises(InputError, match=r"a\.jpg: extension: got '\.jpg', expected \.png or \.svg"):
        plots.plot_latency(toy_run(requests=1), tmp_path / "a.jpg")


def test_no_global_state_is_touched():
    code = "import sys, sim.report.plots; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
