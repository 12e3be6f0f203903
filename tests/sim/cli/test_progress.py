"""The bar says where a run stands, and only to somebody who looks on."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

import sim.cli.bars
from sim.cli.progress import counting, progress_bar, working


@pytest.fixture
def terminal_of(monkeypatch):
    """What a terminal of some width gets to show."""

    def make(width: int, **settings: object) -> io.StringIO:
        seen = io.StringIO()
        console = Console(file=seen, force_terminal=True, width=width, color_system=None, **settings)
        monkeypatch.setattr(sim.cli.bars, "Console", lambda **_: console)
        monkeypatch.setattr(sim.cli.bars, "_EVERY_S", 0.0)
        monkeypatch.setattr("sys.stderr.isatty", lambda: True)
        return seen

    return make


@pytest.fixture
def terminal(terminal_of) -> io.StringIO:
    return terminal_of(120)


def test_requests_of_how_many_simulated_time_and_rate(terminal) -> None:
    with progress_bar("replay", 2000) as update:
        update(12.5, 500)
        update(1234.5, 2000)
    last = terminal.getvalue()
    assert "replay" in last
    assert "2,000/2,000 requests" in last
    assert "1,234 s simulated" in last
    assert "requests/s" in last


def test_one_request(terminal) -> None:
    with progress_bar("replay", 1) as update:
        update(1.0, 1)
    with counting("sweep", "setting", 1) as count:
        count()
    with counting("fit", "step") as count:
        count()
    text = terminal.getvalue()
    assert "1/1 request " in text
    assert "1/1 setting " in text
    assert " 1 step " in text


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120])
def test_the_largest_numbers_fit_one_line_uncut(terminal_of, width) -> None:
    """A second line, or a word with dots for its end, would be all that is seen."""
    seen = terminal_of(width)
    with progress_bar("replay", 100_000) as update:
        update(123_456.0, 100_000)
    with counting("sweep", "setting", 1_000) as count:
        count()
    text = seen.getvalue()
    assert "100,000/100,000 requests" in text
    assert "1/1,000 settings" in text
    assert ("123,456 s simulated" in text) == (width >= 60)
    assert "…" not in text
    frames = [frame for frame in re.split(r"\r|\x1b\[[\d?]*[A-Za-z]", text) if frame.strip()]
    assert all("\n" not in frame.strip() for frame in frames)


def test_a_terminal_that_cannot_write_over_its_line_is_left_alone(terminal_of) -> None:
    seen = terminal_of(80, _environ={"TERM": "dumb"})
    with progress_bar("replay", 10) as update:
        update(1.0, 10)
    with counting("sweep", "setting", 2) as count:
        count()
    with working("writing results"):
        pass
    assert seen.getvalue() == ""


def test_without_a_total_it_counts(terminal) -> None:
    with progress_bar("replay") as update:
        update(3.0, 700)
    assert "700 requests" in terminal.getvalue()
    assert "/" not in terminal.getvalue().split("700 requests")[0].split("replay")[-1]


def test_the_last_request_shows_however_soon_after_the_one_before(terminal, monkeypatch) -> None:
    monkeypatch.setattr(sim.cli.bars, "_EVERY_S", 1e9)
    with progress_bar("replay", 10) as update:
        for done in range(1, 11):
            update(1.0, done)
    assert "10/10 requests" in terminal.getvalue()


def test_nobody_looks_on_nothing_is_said(capsys) -> None:
    with progress_bar("replay", 10) as update:
        update(1.0, 10)
    with working("writing results"):
        pass
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("said", ["FORCE_COLOR", "TTY_COMPATIBLE"])
def test_what_is_said_to_be_a_terminal_gets_a_bar(monkeypatch, capsys, said) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv(said, "1")
    with progress_bar("replay", 10) as update:
        update(1.0, 10)
    assert "10/10 requests" in capsys.readouterr().err


@pytest.mark.parametrize("said", ["FORCE_COLOR", "TTY_COMPATIBLE"])
def test_a_closed_stderr_is_no_terminal_whatever_is_said(monkeypatch, said) -> None:
    monkeypatch.setenv(said, "1")
    monkeypatch.setattr("sys.stderr", None)
    with progress_bar("replay", 10) as update, counting("sweep", "setting") as count, working("writing results"):
        update(1.0, 10)
        count()


def test_work_has_a_line(terminal) -> None:
    with working("writing results"):
        pass
    assert "writing results" in terminal.getvalue()
