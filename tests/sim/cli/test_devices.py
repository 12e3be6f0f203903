"""A device for a file, wherever a command reads one: one line, at once, instead of reading it for ever."""

from __future__ import annotations

import re

import pytest

SWEEP = ("sweep", "random", "--num-prompts", 3)
KNOB = ("--vary", "max_num_seqs=2,4")
LOG = ("calibrate", "log", "FILE", "--gpu", "h100", "--model", "llama-3.1-8b", "--out", "samples.parquet")
COMMANDS = [
    ("replay", "FILE"),
    ("replay", "random", "--profile", "FILE"),
    ("replay", "random", "--spec-method", "draft_model", "--spec-model", "FILE", "--spec-tokens", 2,
     "--draft-acceptance", 0.5),
    ("sweep", "FILE", *KNOB),
    ("sweep", "--experiment", "FILE"),
    (*SWEEP, *KNOB, "--profile", "FILE"),
    (*SWEEP, "--vary", "profile=FILE"),
    ("sweep", "--vary", "trace=FILE,FILE.csv"),
    (*SWEEP, "--serve-params", "FILE"),
    (*SWEEP, "--bench-params", "FILE"),
    ("preemption", "FILE"),
    ("preemption", "random", "--profile", "FILE"),
    ("capacity", "--gpu", "h100", "--model", "FILE"),
    ("capacity", "--gpu", "h100", "--model", "qwen3-14b", "--trace", "FILE"),
    ("compare", "FILE", "FILE"),
    ("compare", "folder", "folder"),
    ("conform", "FILE"),
    ("validate", "--measured", "FILE"),
    ("validate", "--measured", "FILE.csv"),
    ("validate", "--measured", "FILE.json"),
    ("calibrate", "fit", "FILE", "--out", "profile.json"),
    LOG,
    ("calibrate", "log", "FILE.gz", *LOG[3:]),
    ("calibrate", "tables", "folder", "--gpu", "h100", "--model", "llama-3.1-8b", "--out", "p.json"),
]  # fmt: skip


@pytest.fixture
def devices(tmp_path, monkeypatch) -> None:
    """Under names of several kinds: one that ends, as a mistake would read /dev/zero for ever."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for name in ("FILE", "FILE.csv", "FILE.json", "FILE.gz", "folder/gemm_perf.parquet", "folder/run=0.json"):
        (tmp_path / name).symlink_to("/dev/null")


@pytest.mark.parametrize("args", COMMANDS, ids=lambda args: " ".join(map(str, args)))
@pytest.mark.usefixtures("devices")
def test_one_line(args: tuple[object, ...], elpase) -> None:
    assert re.search(
        r"(FILE|gemm_perf|run=0)\S*: (file: )?(got )?'?a pipe or device'?, expected a regular", elpase(*args).error
    )
