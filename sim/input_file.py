"""Files that somebody hands over, before they are read: no device, nothing larger than its kind ever is.

Not for what is in them, nor for traces (`workloads.readers`). The one idea: `/dev/zero` for a profile, or a disk image
for a config.json, is told at once instead of filling the memory. A pipe is read once, from its begin to its end: what
reads otherwise takes none.
"""

from __future__ import annotations

import gzip
import os
import stat
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sim.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

SETTINGS_BYTES = 16 << 20
"""Most of a file of settings: a profile, a config.json, an experiment. Real ones take some kB."""
TABLE_BYTES = 1 << 30
"""Most of a CSV table, which is read as a whole: ten million rows."""
RESULT_BYTES = 4 << 30
"""Most of a result with its lists: beyond a million requests no memory holds it."""
_LINE_CHARACTERS = 64 << 20
"""Most of one line: a recorded case of a thousand steps takes 2 MB."""

_PIECE_CHARACTERS = 1 << 20


def input_file(file: str | os.PathLike[str], most_bytes: int | None = None, *, or_pipe: bool = False) -> Path:
    """`file`, if it may be read. Raises InputError for a device, and more than `most_bytes`; OSError for none.

    or_pipe: for who reads it once, and from begin to end; for others a pipe raises InputError as well. A folder is left
    to whoever opens it: the system's own error says what it is.
    """
    named = Path(file)
    found = named.stat()
    if or_pipe and stat.S_ISFIFO(found.st_mode):
        return named
    if not stat.S_ISDIR(found.st_mode) and (not stat.S_ISREG(found.st_mode) or _endless(named, found.st_size)):
        raise InputError("a pipe or device", file=file, expected="a regular file; save it first")
    if most_bytes is not None and found.st_size > most_bytes:
        raise InputError(f"{found.st_size:,} bytes", file=file, expected=f"at most {most_bytes:,}")
    return named


def read_text(file: str | os.PathLike[str], most_bytes: int = SETTINGS_BYTES) -> str:
    """The text of an `input_file` or pipe. Raises UnicodeDecodeError as well."""
    path = input_file(file, most_bytes, or_pipe=True)
    return _piped(path, most_bytes) if path.is_fifo() else path.read_text(encoding="utf-8")


def read_lines(file: str | os.PathLike[str], errors: str = "strict") -> Iterator[str]:
    """The lines of an `input_file` or pipe of any length, gzipped where its name ends in .gz.

    errors: as `open` has it. Raises UnicodeDecodeError and what gzip raises as well.
    """
    path = input_file(file, or_pipe=True)
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8", errors=errors) as lines:
        for number, line in enumerate(iter(partial(lines.readline, _LINE_CHARACTERS + 1), ""), 1):
            if len(line) > _LINE_CHARACTERS:
                raise InputError("too long a line", file=file, line=number, expected=f"at most {_LINE_CHARACTERS:,}")
            yield line


def _piped(pipe: Path, most_bytes: int) -> str:
    pieces: list[str] = []
    with pipe.open(encoding="utf-8") as opened:
        for piece in iter(partial(opened.read, _PIECE_CHARACTERS), ""):
            pieces.append(piece)
            if sum(map(len, pieces)) > most_bytes:
                raise InputError("a pipe of more", file=pipe, expected=f"at most {most_bytes:,} bytes")
    if not pieces:
        raise InputError("an empty pipe", file=pipe, expected="a regular file where it is read more than once")
    return "".join(pieces)


def _endless(path: Path, size: int) -> bool:
    """Whether there is something in a file without a size: one of /proc, some of which never end."""
    if size:
        return False
    try:
        with path.open("rb") as opened:
            return bool(opened.read(1))
    except OSError as error:
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error
