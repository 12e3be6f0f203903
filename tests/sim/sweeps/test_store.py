"""What is on disk is whole; a folder of another version is left alone; a full disk loses nothing."""

from __future__ import annotations

import errno
import json
import os
import signal
from pathlib import Path

import pytest

import sim.sweeps.store
from sim.errors import InputError
from sim.sweeps.store import Store


def test_what_was_put_is_there_in_another_process(tmp_path) -> None:
    Store(tmp_path / "tasks").put("a1", '{"summary": {}}')
    again = Store(tmp_path / "tasks")
    assert again.get("a1") == '{"summary": {}}'
    assert again.get("b2") is None
    assert sorted(p.name for p in (tmp_path / "tasks").iterdir()) == ["a1.json", "about.json"]


def test_in_memory_only(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = Store(None)
    store.put("a1", "{}")
    assert store.get("a1") == "{}"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("left", ['{"summary": {"outp', "[" * 100_000])
def test_a_damaged_result_is_made_again(left: str, tmp_path) -> None:
    store = Store(tmp_path / "tasks")
    (tmp_path / "tasks/a1.json").write_text(left)
    assert store.get("a1") is None
    store.put("a1", "{}")
    assert Store(tmp_path / "tasks").get("a1") == "{}"


@pytest.mark.parametrize("about", [{"elpase_version": "0.0.9"}, {"format": 2}])
def test_a_folder_of_another_version_is_refused_and_left_alone(tmp_path, about) -> None:
    folder = tmp_path / "out/tasks"
    Store(folder).put("a1", "{}")
    file = folder / "about.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | about))
    before = {p.name: p.read_text() for p in folder.iterdir()}
    with pytest.raises(InputError, match="they are left as they are, say another --out") as error:
        Store(folder)
    assert str(error.value).startswith(f"{tmp_path / 'out'}: holds results of elpase ")
    assert {p.name: p.read_text() for p in folder.iterdir()} == before


def test_a_full_disk_loses_nothing_that_was_there(tmp_path, monkeypatch) -> None:
    store = Store(tmp_path / "tasks")
    store.put("a1", "{}")

    def full(path: Path, _text: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(path))

    monkeypatch.setattr(sim.sweeps.store, "write_text_atomic", full)
    with pytest.raises(OSError, match="No space left on device"):
        store.put("b2", "{}")
    assert [p.name for p in sorted((tmp_path / "tasks").iterdir())] == ["a1.json", "about.json"]
    assert Store(tmp_path / "tasks").get("a1") == "{}"


@pytest.mark.usefixtures("ctrl_c_as_usual")
def test_ctrl_c_while_a_result_is_written_waits_until_it_is_kept(tmp_path, monkeypatch) -> None:
    """Or it would be told as done, and run again all the same."""
    store, write = Store(tmp_path), sim.sweeps.store.write_text_atomic

    def interrupted(path: Path, text: str) -> None:
        signal.raise_signal(signal.SIGINT)
        write(path, text)

    monkeypatch.setattr(sim.sweeps.store, "write_text_atomic", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.put("a1", "{}")
    assert (tmp_path / "a1.json").read_text() == store.get("a1") == "{}"
