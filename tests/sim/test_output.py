"""Results reach the disk whole or not at all."""

from __future__ import annotations

import errno
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from sim.output import result_directory, write_text_atomic
from sim.report.plots import save_figure


def full_disk(*args: object, **kwargs: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def contents(folder: Path) -> dict[str, str]:
    """Every file below `folder`, hidden ones too."""
    return {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*") if p.is_file()}


def test_a_picture_on_a_full_disk_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "errors.png"
    path.write_text("old")
    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left") as caught:
        save_figure(Figure(), path)
    assert caught.value.filename == str(path)
    assert contents(tmp_path) == {"errors.png": "old"}


class TestWriteTextAtomic:
    def test_writes_and_replaces(self, tmp_path: Path) -> None:
        path = tmp_path / "result.json"
        write_text_atomic(path, "old")
        write_text_atomic(path, "new\n")
        assert contents(tmp_path) == {"result.json": "new\n"}

    def test_a_full_disk_leaves_the_old_file_and_nothing_else(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "result.json"
        path.write_text("old")
        monkeypatch.setattr(os, "fsync", full_disk)
        with pytest.raises(OSError, match="No space left") as caught:
            write_text_atomic(path, "new")
        assert caught.value.filename == str(path)
        assert contents(tmp_path) == {"result.json": "old"}

    def test_ctrl_c_leaves_the_old_file_and_nothing_else(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def interrupt(_: object) -> None:
            raise KeyboardInterrupt

        path = tmp_path / "result.json"
        path.write_text("old")
        monkeypatch.setattr(os, "fsync", interrupt)
        with pytest.raises(KeyboardInterrupt):
            write_text_atomic(path, "new")
        assert contents(tmp_path) == {"result.json": "old"}

    def test_a_missing_folder_is_told_by_the_users_path(self, tmp_path: Path) -> None:
        path = tmp_path / "no" / "result.json"
        with pytest.raises(FileNotFoundError) as caught:
            write_text_atomic(path, "text")
        assert caught.value.filename == str(path)

    def test_a_folder_is_not_replaced(self, tmp_path: Path) -> None:
        with pytest.raises(IsADirectoryError):
            write_text_atomic(tmp_path, "text")

    def test_a_device_is_written_to_and_stays_a_device(self) -> None:
        """`--json /dev/null` run as root must not turn /dev/null into a file."""
        write_text_atomic("/dev/null", "text")
        assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)

    def test_stdout_that_is_a_pipe_gets_it(self) -> None:
        code = "from sim.output import write_text_atomic; write_text_atomic('/dev/stdout', 'text')"
        done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
        assert done.stdout == b"text"

    def test_a_full_device_is_told_by_its_name(self) -> None:
        with pytest.raises(OSError, match="No space left") as caught:
            write_text_atomic("/dev/full", "text")
        assert caught.value.filename == "/dev/full"

    def test_a_link_is_followed(self, tmp_path: Path) -> None:
        (tmp_path / "link.json").symlink_to(tmp_path / "real.json")
        write_text_atomic(tmp_path / "link.json", "text")
        assert (tmp_path / "link.json").is_symlink()
        assert (tmp_path / "real.json").read_text() == "text"

    def test_links_in_a_circle_are_told_by_the_users_path(self, tmp_path: Path) -> None:
        (tmp_path / "loop").symlink_to(tmp_path / "loop")
        with pytest.raises(OSError, match=re.escape(f"levels of symbolic links: '{tmp_path / 'loop'}'")):
            write_text_atomic(tmp_path / "loop", "text")
        with pytest.raises(OSError, match="symbolic links"), result_directory(tmp_path / "loop" / "out"):
            pass

    def test_others_may_read_it(self, tmp_path: Path) -> None:
        """The umask decides, as for any file: not the 0600 of a temporary file."""
        (tmp_path / "plain").write_text("text")
        write_text_atomic(tmp_path / "atomic", "text")
        assert (tmp_path / "atomic").stat().st_mode == (tmp_path / "plain").stat().st_mode


class TestResultDirectory:
    def test_a_new_directory_appears_with_all_its_files(self, tmp_path: Path) -> None:
        out = tmp_path / "a" / "b"
        with result_directory(out) as folder:
            (folder / "result.json").write_text("1")
            assert not out.exists()
            (folder / "steps.parquet").write_text("2")
        assert contents(tmp_path) == {"a/b/result.json": "1", "a/b/steps.parquet": "2"}

    def test_an_earlier_run_is_replaced_and_other_files_stay(self, tmp_path: Path) -> None:
        for name in ("result.json", "timeline.json", "notes.txt"):
            (tmp_path / name).write_text("old")
        with result_directory(tmp_path, supersedes=["result.json", "timeline.json"]) as folder:
            (folder / "result.json").write_text("new")
        assert contents(tmp_path) == {"result.json": "new", "notes.txt": "old"}

    @pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, OSError(errno.ENOSPC, "No space left")])
    def test_what_fails_leaves_no_trace(self, tmp_path: Path, error: BaseException) -> None:
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "result.json").write_text("old")
        for out in (tmp_path / "out", tmp_path / "new" / "out"):
            with pytest.raises(error if isinstance(error, type) else type(error)), result_directory(out) as folder:
                (folder / "result.json").write_text("half")
                raise error
        assert contents(tmp_path) == {"out/result.json": "old"}
        assert sorted(p.name for p in tmp_path.iterdir()) == ["out"]

    def test_a_full_disk_is_told_by_the_users_path(self, tmp_path: Path) -> None:
        with pytest.raises(OSError, match="No space left") as caught, result_directory(tmp_path / "out"):
            full_disk()
        assert caught.value.filename == str(tmp_path / "out")

    def test_an_error_about_another_file_names_that_file(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError) as caught, result_directory(tmp_path / "out"):
            (tmp_path / "trace.csv").open()
        assert caught.value.filename == str(tmp_path / "trace.csv")

    def test_a_file_in_the_way_is_told_before_the_work(self, tmp_path: Path) -> None:
        (tmp_path / "out").write_text("a file")
        with pytest.raises(NotADirectoryError) as caught, result_directory(tmp_path / "out"):
            pytest.fail("the block ran")
        assert caught.value.filename == str(tmp_path / "out")

    def test_a_folder_in_the_way_of_a_file_changes_nothing(self, tmp_path: Path) -> None:
        (tmp_path / "a.json").write_text("old")
        (tmp_path / "b.json").mkdir()
        with pytest.raises(IsADirectoryError), result_directory(tmp_path) as folder:
            (folder / "a.json").write_text("new")
            (folder / "b.json").write_text("new")
        assert contents(tmp_path) == {"a.json": "old"}
