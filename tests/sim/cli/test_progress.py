"""The bar says where a run stands, and only to somebody who looks on."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

import sim.cli.progress
from sim.cli.progress import progress_bar, working


@pytest.fixture
def terminal(monkeypatch) -> io.StringIO:
    seen = io.StringIO()
    console = Console(file=seen, force_terminal=True, width=120, color_system=None)
    monkeypatch.setattr(sim.cli.progress, "Console", lambda **_: console)
    monkeypatch.setattr(sim.cli.progress, "_EVERY_S", 0.0)
    return seen


def test_requests_of_how_many_simulated_time_and_rate(terminal) -> None:
    with progress_bar("replay", 2000) as update:
        update(12.5, 500)
        update(1234.5, 2000)
    last = terminal.getvalue()
    assert "replay" in last
    assert "2,000/2,000 requests" in last
    assert "1,234 s simulated" in last
    assert "requests/s" in last


def test_without_a_total_it_counts(terminal) -> None:
    with progress_bar("replay") as update:
        update(3.0, 700)
    assert "700 requests" in terminal.getvalue()
    assert "/" not in terminal.getvalue().split("700 requests")[0].split("replay")[-1]


def test_the_last_request_shows_however_soon_after_the_one_before(terminal, monkeypatch) -> None:
    monkeypatch.setattr(sim.cli.progress, "_EVERY_S", 1e9)
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


def test_work_has_a_line(terminal) -> None:
    with working("writing results"):
        pass
    assert "writing results" in terminal.getvalue()
