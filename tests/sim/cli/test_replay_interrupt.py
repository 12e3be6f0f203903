"""Ctrl-C: what has finished is written whole and marked partial; a second one leaves nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pytest

import sim.cli.replay
import sim.report.log
import sim.report.tables
from sim.cli.main import main

ELPASE = str(Path(sys.executable).with_name("elpase"))
pytestmark = pytest.mark.usefixtures("ctrl_c_as_usual")


def ctrl_c_by_default() -> None:
    """A child would inherit that Ctrl-C is ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture
def ctrl_c_after(monkeypatch):
    """Press Ctrl-C when so many requests are done, or the first time that more are."""

    def arrange(count: int) -> None:
        pressed = []

        @contextmanager
        def bar(_title, _total):
            def update(_simulated_s, done):
                if done >= count and not pressed:
                    pressed.append(done)
                    ctrl_c()

            yield update

        monkeypatch.setattr(sim.cli.replay, "progress_bar", bar)

    return arrange


def replay(elpase, out: Path):
    return elpase("replay", "random", "--num-prompts", 50, "--request-rate", 10, "--out", out)


def test_what_has_finished_is_there_and_marked_partial(elpase, tmp_path, ctrl_c_after, no_pictures) -> None:
    ctrl_c_after(7)
    done = replay(elpase, tmp_path / "out")
    assert done.code == 130
    assert done.err.startswith("elpase: interrupted: what has finished is kept, marked partial")
    assert "Cut short, unfinished requests:" in done.out
    result = json.loads((tmp_path / "out/result.json").read_text())
    completed = result["completed"]
    assert 7 <= completed < 50
    assert result["sim"]["partial"] is True
    requests = pd.read_parquet(tmp_path / "out/requests.parquet")
    assert (requests["status"] == "finished").sum() == completed
    assert result["sim"]["unfinished"] == len(requests) - completed > 0


def test_what_has_finished_is_there_though_stderr_is_full(tmp_path, ctrl_c_after, no_pictures, monkeypatch) -> None:
    ctrl_c_after(7)
    with Path("/dev/full").open("w", buffering=1) as full, pytest.raises(SystemExit) as end:
        monkeypatch.setattr(sys, "stderr", full)
        main(["replay", "random", "--num-prompts", "50", "--request-rate", "10", "--out", str(tmp_path / "out")])
    assert end.value.code == 130
    assert json.loads((tmp_path / "out/result.json").read_text())["sim"]["partial"] is True


def test_a_run_that_finished_is_not_partial(elpase, tmp_path, no_pictures) -> None:
    assert replay(elpase, tmp_path / "out").code == 0
    assert json.loads((tmp_path / "out/result.json").read_text())["sim"]["partial"] is False
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_one_while_writing_leaves_nothing(elpase, tmp_path, ctrl_c_after, monkeypatch) -> None:
    ctrl_c_after(7)
    monkeypatch.setattr(sim.report.tables, "write_frames", lambda _frames, _folder: ctrl_c())
    (tmp_path / "out").mkdir()
    (tmp_path / "out/result.json").write_text("of an earlier run")
    done = replay(elpase, tmp_path / "out")
    assert (done.code, done.out) == (130, "")
    assert done.err.splitlines()[-1] == "elpase: interrupted"
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "result.json"]
    assert (tmp_path / "out/result.json").read_text() == "of an earlier run"


@pytest.mark.parametrize("exists", [False, True])
def test_one_while_the_files_move_into_place_waits_until_all_have(
    exists, elpase, tmp_path, monkeypatch, no_pictures
) -> None:
    """Half of an old and half of a new run would be worse than either."""
    for name in ("rename", "replace"):
        before = getattr(Path, name)

        def move(self, target, before=before):
            ctrl_c()
            return before(self, target)

        monkeypatch.setattr(Path, name, move)
    out = tmp_path / "out"
    if exists:
        out.mkdir()
    assert replay(elpase, out).code == 130
    assert sorted(path.name for path in out.iterdir()) == ["requests.parquet", "result.json", "steps.parquet"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_the_real_thing(tmp_path) -> None:
    """From outside, at any moment of a long run."""
    out = tmp_path / "out"
    command = [ELPASE, "replay", "azure-conv", "--out", out]
    running = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=ctrl_c_by_default,  # noqa: PLW1509  # no other thread runs here
    )
    while not list(tmp_path.iterdir()):  # the folder aside: the run begins
        assert running.poll() is None, running.communicate()
        time.sleep(0.05)
    time.sleep(1.5)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=120)
    assert running.returncode == 130, err
    assert err.splitlines()[0].startswith("elpase: interrupted: what has finished is kept")
    result = json.loads((out / "result.json").read_text())
    assert result["sim"]["partial"] is True
    assert 0 < len(result["ttfts"]) < 19366
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


WAITS_WHILE_WRITING = """
import pathlib, sys, time
import sim.report.plots_time
from sim.cli.main import main
def plot(_frames, path):
    path.touch()
    print("writing", file=sys.stderr, flush=True)
    while not pathlib.Path("go on").exists():
        time.sleep(0.01)
sim.report.plots_time.plot_timeseries = plot
main(["replay", "random", "--num-prompts", "30", "--out", "out", *sys.argv[1:]])
"""
"""The command, except that one picture is not ready before the test says so."""
STILL_WRITTEN = "elpase: interrupted: the results are still written; Ctrl-C again drops them\n"


class Writing:
    """A process that is in the middle of writing its results."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-c", WAITS_WHILE_WRITING],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=ctrl_c_by_default,  # noqa: PLW1509  # no other thread runs here
        )
        assert self.says() == "writing\n"

    def says(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.readline()

    def ctrl_c(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def ends(self) -> tuple[int, str, str]:
        (self.folder / "go on").touch()
        out, err = self.process.communicate(timeout=120)
        (self.folder / "go on").unlink()
        return self.process.returncode, out, err


def test_ctrl_c_while_results_are_written_lets_them_be_written(tmp_path) -> None:
    writing = Writing(tmp_path)
    writing.ctrl_c()
    assert writing.says() == STILL_WRITTEN
    code, out, err = writing.ends()
    assert (code, err) == (130, "elpase: wrote out/\n")
    assert f"{'Successful requests:':<40} 30 " in out
    files = {path.name for path in (tmp_path / "out").iterdir()}
    assert files == {"result.json", "requests.parquet", "steps.parquet", "timeseries.png", "latency.png"}
    result = json.loads((tmp_path / "out/result.json").read_text())
    assert (result["completed"], result["sim"]["partial"]) == (30, False)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_second_ctrl_c_while_results_are_written_removes_what_is_half_written(tmp_path) -> None:
    writing = Writing(tmp_path)
    assert [path.name for path in tmp_path.glob(".out.*.partial/*.json")] == ["result.json"]
    writing.ctrl_c()
    assert writing.says() == STILL_WRITTEN
    writing.ctrl_c()
    assert writing.process.wait(timeout=120) == 130
    assert writing.ends()[1:] == ("", "\nelpase: interrupted\n")
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_between_the_run_and_its_files_loses_nothing(elpase, tmp_path, monkeypatch, no_pictures) -> None:
    """Tables are put together, then figures: seconds, after a long run."""
    frames = sim.report.log.RunLog.frames

    def put_together(self, meta):
        ctrl_c()
        return frames(self, meta)

    monkeypatch.setattr(sim.report.log.RunLog, "frames", put_together)
    done = replay(elpase, tmp_path / "out")
    assert (done.code, done.err) == (130, f"{STILL_WRITTEN}elpase: wrote {tmp_path / 'out'}/\n")
    assert json.loads((tmp_path / "out/result.json").read_text())["completed"] == 50
