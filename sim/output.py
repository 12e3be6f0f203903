"""Results reach the disk whole or not at all: written aside, then renamed.

Not for what is in them. The one idea: a rename within one file system is atomic, so an error, Ctrl-C or a full disk
while writing leaves the user's files as they were.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sim.interrupt import ctrl_c_waits

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator


def write_text_atomic(path: str | os.PathLike[str], text: str) -> None:
    """Write `text` (UTF-8) to `path`, as `write_bytes_atomic` does."""
    write_bytes_atomic(path, text.encode())


def write_bytes_atomic(path: str | os.PathLike[str], content: bytes) -> None:
    """Write `content` to `path`, replacing what is there, in one instant.

    A link is followed. A device or pipe (`/dev/stdout`) is written to, not replaced.
    Raises OSError naming `path`.
    """
    named = Path(path)
    if named.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    # As it is named: where stdout is a pipe, what /dev/stdout is a link to cannot be opened by its name.
    if named.exists() and not named.is_file():
        try:
            named.write_bytes(content)
        except OSError as error:
            raise _blaming(error, path) from error
        return
    target = resolved(path)
    aside = _aside(target.parent, target.name)
    try:
        with aside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())  # some file systems tell only now that the disk is full
        aside.replace(target)
    except OSError as error:
        raise _blaming(error, path) from error
    finally:
        aside.unlink(missing_ok=True)


@contextmanager
def result_directory(out: str | os.PathLike[str], *, supersedes: Collection[str] = ()) -> Iterator[Path]:
    """Yield an empty folder to write a run's files into; when the block ends well they appear in `out` together.

    Enter it before the run: a place that cannot be written to is told before the work, not after it. `out` and its
    parents are made at the end. In an `out` that exists, files of the same names are replaced; those named in
    `supersedes` that this run did not write are removed, as they would tell of another run; all else is left alone.
    If the block raises, nothing of `out` has changed. Raises OSError naming `out`.
    """
    target = resolved(out)
    # Inside an existing `out`: it may be a mount point, and its parent need not be writable.
    home = next(p for p in (target, *target.parents) if p.exists())
    if not home.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), os.fspath(out))
    aside = _aside(home, target.name)
    try:
        aside.mkdir()
        yield aside
        with ctrl_c_waits():
            _move_into(aside, target, supersedes)
    except OSError as error:
        if isinstance(error.filename, str) and not Path(error.filename).is_relative_to(aside):
            raise  # about a file of the block's own, such as the trace it reads
        raise _blaming(error, out) from error
    finally:
        with ctrl_c_waits():
            shutil.rmtree(aside, ignore_errors=True)


def _move_into(aside: Path, target: Path, supersedes: Collection[str]) -> None:
    """Move the files of `aside` into `target`, once it is sure that none of them stands against a folder."""
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        aside.rename(target)
        return
    files = sorted(aside.iterdir())
    for file in files:
        if (target / file.name).is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(target / file.name))
    for file in files:
        file.replace(target / file.name)
    for name in set(supersedes) - {file.name for file in files}:
        (target / name).unlink(missing_ok=True)


def resolved(path: str | os.PathLike[str]) -> Path:
    """Where links lead. Raises OSError naming `path` where they lead in a circle, which Python calls RuntimeError."""
    try:
        return Path(path).resolve()
    except RuntimeError as error:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fspath(path)) from error


def _aside(folder: Path, name: str) -> Path:
    """A name nobody has: hidden, beside what it will become. Random, as containers share process ids."""
    return folder / f".{name}.{secrets.token_hex(4)}.partial"


def _blaming(error: OSError, path: str | os.PathLike[str]) -> OSError:
    """The same error about the path that the user knows."""
    return OSError(error.errno, error.strerror, os.fspath(path)) if error.errno else OSError(f"{path}: {error}")
