"""Pictures: right curves, nothing cut off or empty, the same bytes each time. Looks are judged by eye, not here."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from PIL import Image

from sim.errors import InputError
from sim.report import curves, plots, plots_time, words

RUNS = {
    "usual": {"requests": 60},
    "pressed": {"blocks": 1200, "rate": 20, "prompt": 300, "output": 200, "requests": 150},
    "capped": {"requests": 60, "rate": 40.0, "cap": 8},
    "one": {"requests": 1},
    "two": {"requests": 2},
    "one token": {"requests": 1, "output": 1},
    "none": {"requests": 0},
    "cut": {"requests": 80, "rate": 40.0, "stop_s": 2.0, "seats": 8},
    "gap": {},
    "days": {},
    "wide": {},
}
DRAW = {"time": plots_time.plot_timeseries, "latency": plots.plot_latency}


def made(toy_run, run):
    """A run; "gap": half of it comes five hours later; "days": a request, and nine days later another; "wide": some
    wait for milliseconds and some for hours.
    """
    if run == "gap":
        return with_a_gap(toy_run(requests=60, rate=0.2), 30, 18_000.0)
    if run == "days":
        return with_a_gap(toy_run(requests=2, rate=0.1), 1, 777_777.0)
    if run == "wide":
        frames = toy_run(requests=60)
        late = frames.requests["first_token_s"] + 18_000.0 * (frames.requests.index > 30)
        return replace(frames, requests=frames.requests.assign(first_token_s=late))
    return toy_run(**RUNS[run])


def with_a_gap(frames, row, gap_s):
    """The same, but that all from this request on happens later."""
    later_s = frames.requests["arrival_s"][row]
    assert frames.requests["finish_s"][:row].max() < later_s
    tables = []
    for table in (frames.requests, frames.steps):
        times = [name for name in table.columns if name.endswith("_s") and name != "host_s"]
        tables.append(table.assign(**{name: table[name] + gap_s * (table[name] >= later_s) for name in times}))
    return replace(frames, requests=tables[0], steps=tables[1])


@pytest.fixture
def draw(monkeypatch):
    """A picture's figure, laid out, instead of its file."""

    def figure(kind, frames):
        caught = []
        for module in (plots, plots_time):
            monkeypatch.setattr(
                module, "save_figure", lambda figure, _path: (figure.draw_without_rendering(), caught.append(figure))
            )
        DRAW[kind](frames, None)
        return caught[0]

    return figure


@pytest.mark.parametrize("kind", DRAW)
@pytest.mark.parametrize("run", RUNS)
def test_every_word_stands_inside_the_picture(toy_run, draw, kind, run):
    """Neither an edge cuts a label off, nor do neighbouring labels of an axis touch. Warnings are errors."""
    figure = draw(kind, made(toy_run, run))
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


def labels(axis) -> list[str]:
    return [label.get_text() for label in axis.get_ticklabels() if label.get_text()]


@pytest.mark.parametrize("kind", DRAW)
@pytest.mark.parametrize("run", RUNS)
def test_no_two_ticks_of_an_axis_say_the_same(toy_run, draw, kind, run):
    for axes in draw(kind, made(toy_run, run)).axes:
        for axis in (axes.xaxis, axes.yaxis):
            assert len(labels(axis)) == len(set(labels(axis)))


@pytest.mark.parametrize("run", ["usual", "one", "two"])
def test_the_longest_wait_is_drawn_and_named(toy_run, draw, run):
    frames = made(toy_run, run)
    figure = draw("latency", frames)
    longest_ms = 1000 * (frames.requests["first_token_s"] - frames.requests["send_s"]).max()
    curve = figure.axes[0].lines[0]
    assert curve.get_xdata()[-1] == pytest.approx(longest_ms)
    assert [text.get_text() for text in figure.axes[0].texts][-1] == f"longest  {longest_ms:.3g} ms"
    assert labels(figure.axes[0].yaxis)[-1] == "100 %"
    assert labels(figure.axes[0].yaxis)[:4] == ["0 %", "50 %", "90 %", "99 %"]


def test_the_curve_has_the_percentiles_that_vllm_reports():
    """numpy's, linear between ranks: of 1 to 101 ms they are whole numbers."""
    top = curves.spread_top(101)
    x_ms, height = curves.spread_ms(np.arange(1, 102) / 1000, top)
    assert np.interp([-np.log10(1 - q) for q in (0.0, 0.5, 0.9, 0.99)], height, x_ms) == pytest.approx(
        [1, 51, 91, 100], abs=0.01
    )
    assert (x_ms[-1], height[-1]) == (101.0, top)


def test_the_headline_says_how_long_the_longest_waits_were(toy_run):
    def headline(run):
        frames = made(toy_run, run)
        ttft_s = (frames.requests["first_token_s"] - frames.requests["send_s"]).dropna().to_numpy()
        return words.latency_headline(ttft_s, frames)

    assert headline("none") == "Nobody got a token"
    assert headline("one token").endswith("; nobody got a second")
    assert "for a next one" in headline("usual")


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
    code = "import sys, sim.report.plots, sim.report.plots_time; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("draw", DRAW.values(), ids=DRAW)
def test_a_name_in_another_script_is_drawn_without_a_word(toy_run, tmp_path, draw):
    """Warnings are errors here."""
    frames = toy_run(requests=2)
    frames.meta["trace"] = "\u65e5\u672c.csv"
    draw(frames, tmp_path / "a.png")
    assert (tmp_path / "a.png").exists()
