"""Runs the command in this process, which is some fifty times as quick as starting another."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from typing import NamedTuple

import pytest

import sim.report.plots
import sim.report.plots_time
from sim.cli.main import main


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one line of an error, without its opening."""
        assert (self.code, self.out) == (2, ""), self
        assert self.err.startswith("elpase: error: ")
        assert self.err.endswith("\n")
        assert self.err.count("\n") == 1, self.err
        assert self.err[:-1].isprintable()
        return self.err[:-1].removeprefix("elpase: error: ")


def run(*args: object) -> Done:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as end:
        main([str(arg) for arg in args])
    assert isinstance(end.value.code, int)
    return Done(end.value.code, out.getvalue(), err.getvalue())


@pytest.fixture(scope="session")
def elpase() -> Callable[..., Done]:
    """`elpase("replay", ...)`: exit code, stdout and stderr."""
    return run


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures take longer than all else of a small run."""
    monkeypatch.setattr(sim.report.plots, "plot_latency", lambda _frames, _path: None)
    monkeypatch.setattr(sim.report.plots_time, "plot_timeseries", lambda _frames, _path: None)
