"""Bytes on disk to lines of text: plain or gzip, UTF-8, any of the three usual line ends but a lone CR.

Not for what the lines mean. The one idea: whatever is wrong with the bytes is a `TraceError` with its line.
"""

from __future__ import annotations

import gzip
import zlib
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, BinaryIO, cast

from workloads.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_GZIP_MAGIC = b"\x1f\x8b"
_BOM = "\ufeff"
_LONGEST_LINE_BYTES = 16 << 20
"""No request takes that much: a longer line is no text file, and must not fill the memory."""
_HEAD_BYTES = 1 << 20
_BLOCK_BYTES = 1 << 16
_DAMAGE = (EOFError, zlib.error, gzip.BadGzipFile)
"""What reading a damaged gzip file raises."""


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Line number (from 1) and text of each line that is not blank, without its line end."""
    for number, raw in _raw_lines(path, _LONGEST_LINE_BYTES + 1):
        if len(raw) > _LONGEST_LINE_BYTES:
            raise TraceError(
                file=path, line=number, field="line", value=raw[:20], expected=f"at most {_LONGEST_LINE_BYTES} bytes"
            )
        text = _decoded(path, number, raw)
        if text:
            yield number, text


def read_head(path: Path) -> tuple[int, str, bool]:
    """The first line that is not blank: its number, its text, and whether that is all of it (False: cut at 1 MiB)."""
    for number, raw in _raw_lines(path, _HEAD_BYTES):
        whole = len(raw) < _HEAD_BYTES or raw.endswith(b"\n")
        text = _decoded(path, number, raw if whole else raw.rstrip(bytes(range(0x80, 0x100))))
        if text:
            return number, text, whole
    raise TraceError(file=path, field="file", value="an empty file", expected="a trace")


def count_lines(path: Path) -> int:
    """How many lines there are at most; blank ones count. In a damaged file: before the damage, which readers tell."""
    lines = 1
    with _open(path) as stream, suppress(*_DAMAGE):
        for block in iter(partial(stream.read, _BLOCK_BYTES), b""):
            lines += block.count(b"\n")
    return lines


def read_document(path: Path) -> str:
    """All of the text, for a dialect that is one JSON document."""
    return "\n".join(_decoded(path, number, raw) for number, raw in _raw_lines(path, -1))


def _raw_lines(path: Path, longest_bytes: int) -> Iterator[tuple[int, bytes]]:
    number = 0
    try:
        with _open(path) as stream:
            while raw := stream.readline(longest_bytes):
                number += 1
                yield number, raw
    except _DAMAGE as error:
        raise TraceError(
            file=path, line=number + 1, field="gzip data", value=str(error), expected="a whole gzip file"
        ) from error
    except OSError as error:
        raise TraceError(file=path, field="file", value=error.strerror, expected="a file that can be read") from error


def _open(path: Path) -> BinaryIO:
    if path.exists() and not path.is_file() and not path.is_dir():
        # It is read more than once: to recognise it, and by every pass over the trace.
        raise TraceError(file=path, field="file", value="a pipe or device", expected="a regular file; save it first")
    with path.open("rb") as stream:
        packed = stream.read(2) == _GZIP_MAGIC
    return cast(BinaryIO, gzip.open(path, "rb")) if packed else path.open("rb")


def _decoded(path: Path, number: int, raw: bytes) -> str:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        bad = raw[error.start : error.end]
        raise TraceError(file=path, line=number, field="encoding", value=bad, expected="UTF-8 text") from error
    if "\0" in text:
        raise TraceError(file=path, line=number, field="encoding", value=b"\0", expected="UTF-8 text")
    return text.removeprefix(_BOM).strip() if number == 1 else text.strip()
