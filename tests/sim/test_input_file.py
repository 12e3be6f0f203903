"""What is read of a file that somebody hands over: no device, no more than its kind ever has."""

from __future__ import annotations

import gzip
import os

import pytest

import sim.input_file
from sim.errors import InputError
from sim.input_file import SETTINGS_BYTES, input_file, read_lines, read_text
from sim.json_file import read_json

NO_FILE = "a pipe or device, expected a regular file; save it first"


@pytest.fixture
def large(tmp_path):
    """A file of many bytes that takes none on the disk."""

    def make(size: int, name: str = "large.json"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(size)
        return tmp_path / name

    return make


@pytest.fixture
def pipe():
    """What a shell makes of `<(printf TEXT)`: the name of a pipe whose writer has left."""
    ends = []

    def make(text: str) -> str:
        end, write = os.pipe()
        ends.append(end)
        os.write(write, text.encode())
        os.close(write)
        return f"/dev/fd/{end}"

    yield make
    for end in ends:
        os.close(end)


@pytest.mark.parametrize("read", [input_file, read_text, read_json, lambda file: next(read_lines(file))])
def test_no_device(read, tmp_path) -> None:
    (tmp_path / "link").symlink_to("/dev/null")
    for file in ("/dev/null", tmp_path / "link"):
        with pytest.raises(InputError) as caught:
            read(file)
        assert str(caught.value) == f"{file}: {NO_FILE}"


def test_a_pipe_is_read_by_who_reads_once(pipe) -> None:
    assert read_json(pipe('{"a": 1}')) == {"a": 1}
    assert list(read_lines(pipe("a\nb"))) == ["a\n", "b"]
    with pytest.raises(InputError, match=NO_FILE):
        input_file(pipe("a,b"))


def test_a_pipe_has_an_end_and_something_in_it(pipe) -> None:
    file = pipe("12345")
    with pytest.raises(InputError, match="a pipe of more, expected at most 4 bytes"):
        read_text(file, 4)
    assert read_text(pipe("1234"), 4) == "1234"
    with pytest.raises(InputError, match="an empty pipe, expected a regular file where it is read more than once"):
        read_text(pipe(""))


def test_no_more_than_its_kind_has(large) -> None:
    file = large(SETTINGS_BYTES + 1)
    for read in (read_text, read_json):
        with pytest.raises(InputError, match="16,777,217 bytes, expected at most 16,777,216") as caught:
            read(file)
        assert str(caught.value).startswith(f"{file}: ")
    assert len(read_text(large(SETTINGS_BYTES))) == SETTINGS_BYTES
    assert input_file(file) == file


def test_a_file_that_does_not_tell_its_size(tmp_path) -> None:
    """As those in /proc, which tell 0; an empty one has 0."""
    with pytest.raises(InputError, match=f"status: {NO_FILE}"):
        read_text("/proc/self/status")
    (tmp_path / "empty").touch()
    assert read_text(tmp_path / "empty") == ""


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_lines(name: str, tmp_path) -> None:
    text = "eins\nzwölf\n\nlast"
    (tmp_path / name).write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    assert list(read_lines(tmp_path / name)) == ["eins\n", "zwölf\n", "\n", "last"]


def test_a_line_without_end(large, monkeypatch) -> None:
    monkeypatch.setattr(sim.input_file, "_LINE_CHARACTERS", 1000)
    file = large(10_000, "a.log")
    file.write_bytes(b"fine\n" + b"\0" * 1001)
    lines = read_lines(file)
    assert next(lines) == "fine\n"
    with pytest.raises(InputError, match=r"a\.log:2: too long a line, expected at most 1,000"):
        next(lines)


def test_a_missing_one_and_a_folder_are_the_systems_errors(tmp_path) -> None:
    with pytest.raises(FileNotFoundError):
        read_text(tmp_path / "none")
    with pytest.raises(IsADirectoryError):
        read_text(tmp_path)
