"""Paths of every verb: what is said of an empty one, which is what a shell makes of a variable that is not set."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import sim.sweeps.files
from sim.cli.main import VerbGroup, cli
from sim.cli.paths import PathType


def verbs(group: click.Group, name: str = "elpase") -> Iterator[tuple[str, click.Command]]:
    """Every command below `group`, itself included."""
    yield name, group
    with click.Context(group) as ctx:
        for verb in group.list_commands(ctx):
            command = group.get_command(ctx, verb)
            assert command is not None
            inner = f"{name} {verb}"
            yield from verbs(command, inner) if isinstance(command, VerbGroup) else [(inner, command)]


PARAMS = [
    pytest.param(param, id=f"{name} {param.opts[0]}")
    for name, command in verbs(cli)
    for param in command.params
    if isinstance(param.type, click.Path)
]


def test_they_are_found() -> None:
    ids = " ".join(str(param.id) for param in PARAMS)
    for told in ("replay --out", "explain folder", "compare --plot", "calibrate log logs", "live --vllm-python"):
        assert told in ids


@pytest.mark.parametrize("param", PARAMS)
def test_an_empty_path_is_refused(param: click.Parameter) -> None:
    with pytest.raises(click.BadParameter, match="'' is not the name of a"):
        param.type.convert("", param, None)


@pytest.mark.parametrize(
    "args",
    [
        ("explain", ""),
        ("report", ""),
        ("report", "run", "-o", ""),
        ("compare", "", "run"),
        ("conform", ""),
        ("conform", "--live", ""),
        ("validate", "--measured", ""),
        ("validate", "live", "--vllm-python", ""),
        ("calibrate", "log", "", "--gpu", "h100", "--model", "llama-3.1-8b", "--out", "samples.parquet"),
        ("calibrate", "fit", "samples.parquet", "--out", ""),
        ("sweep", "azure-conv", "--vary", "max_num_seqs=2,4", "--limit", 5, "--out", ""),
        ("sweep", "", "--vary", "max_num_seqs=2,4"),
        ("preemption", ""),
        ("replay", ""),
        ("replay", "azure-conv", "--profile", ""),
        ("capacity", "--gpu", "h100", "--model", ""),
    ],
    ids=lambda args: " ".join(map(repr, args)),
)
def test_the_line_that_comes_of_it(elpase, args: tuple[object, ...]) -> None:
    assert "''" in elpase(*args).error


def test_others_become_paths(tmp_path: Path) -> None:
    assert PathType().convert(str(tmp_path), None, None) == tmp_path
    assert PathType(dir_okay=False).convert("there is none", None, None) == Path("there is none")
    with pytest.raises(click.BadParameter):
        PathType(exists=True).convert("there is none", None, None)


def test_no_name_at_all() -> None:
    """A file's name may be any bytes but this one, which only a program or a file can say."""
    with pytest.raises(click.BadParameter, match=r"'a\\x00b' is not the name of a file or folder"):
        PathType().convert("a\0b", None, None)


NO_UTF8 = os.fsdecode(b"caf\xe9")


def test_a_name_that_is_no_utf8(elpase, tmp_path: Path, monkeypatch, no_pictures) -> None:
    """Results go there, and are read from there again."""
    monkeypatch.chdir(tmp_path)
    few = ("random", "--num-prompts", 3, "--max-model-len", "2k")
    assert elpase("replay", *few, "--out", NO_UTF8).code == 0
    assert elpase("explain", NO_UTF8).code == 0
    assert elpase("report", NO_UTF8).code == 0
    assert elpase("sweep", *few, "--vary", "max_num_seqs=2", "--jobs", 1, "--out", f"{NO_UTF8}.sweep").code == 0
    modes = ("--modes", "recompute", "--kv-blocks", 300, "--max-num-seqs", 4, "--jobs", 1)
    assert elpase("preemption", *few, *modes, "--out", f"{NO_UTF8}.modes").code == 0


@pytest.mark.parametrize("name", ["~", "http://x/y"])
def test_a_folder_is_where_it_is_said_to_be(name: str, elpase, tmp_path: Path, monkeypatch) -> None:
    """The shell has taken what it takes; pandas must not."""
    monkeypatch.chdir(tmp_path)
    few = ("random", "--num-prompts", 3, "--max-model-len", "2k", "--vary", "max_num_seqs=2", "--jobs", 1)
    assert elpase("sweep", *few, "--out", name).code == 0
    assert (tmp_path / name / "bench_sweep" / "summary.csv").is_file()


def test_a_disk_that_fills_up_late_leaves_nothing_half_written(elpase, tmp_path: Path, monkeypatch) -> None:
    def full(folder: Path, *_results: object) -> None:
        (folder / "half.json").touch()
        raise OSError(errno.ENOSPC, "No space left on device", "half.json")

    monkeypatch.setattr(sim.sweeps.files, "write_bench_sweep", full)
    few = ("random", "--num-prompts", 3, "--max-model-len", "2k", "--vary", "max_num_seqs=2", "--jobs", 1)
    assert elpase("sweep", *few, "--out", tmp_path / "out").code == 2
    assert not list(tmp_path.rglob("*.partial"))
    assert (tmp_path / "out" / "sweep.csv").is_file()
