"""Bytes on disk to lines of text: plain or gzip, UTF-8, any of the three usual line ends but a lone CR.

Not for what the lines mean. The one idea: one `Place` goes along with the reading, so that whatever is wrong, here or
with what a line says, is a `TraceError` with its line.
"""

from __future__ import annotations

import gzip
import zlib
from contextlib import suppress
from dataclasses import dataclass
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


@dataclass(slots=True)
class Place:
    """Where in a file reading stands: at a line (from 1), or None: nowhere yet, or in the file as a whole."""

    file: Path
    line: int | None = None

    def error(self, field: str, value: object, expected: str) -> TraceError:
        """What is wrong here, to be raised."""
        return TraceError(file=self.file, line=self.line, field=field, value=value, expected=expected)


def read_lines(place: Place) -> Iterator[str]:
    """Text of each line that is not blank, without its line end, while `place` stands at it."""
    for raw in _raw_lines(place, _LONGEST_LINE_BYTES + 1):
        if len(raw) > _LONGEST_LINE_BYTES:
            raise place.error("line", raw[:20], f"at most {_LONGEST_LINE_BYTES} bytes")
        text = _decoded(place, raw)
        if text:
            yield text


def read_head(place: Place) -> tuple[str, bool]:
    """Text of the first line that is not blank, and whether that is all of it (False: cut at 1 MiB).

    `place` stands at that line then.
    """
    for raw in _raw_lines(place, _HEAD_BYTES):
        whole = len(raw) < _HEAD_BYTES or raw.endswith(b"\n")
        text = _decoded(place, raw if whole else raw.rstrip(bytes(range(0x80, 0x100))))
        if text:
            return text, whole
    raise TraceError(file=place.file, field="file", value="an empty file", expected="a trace")


def count_lines(path: Path) -> int:
    """How many lines there are at most; blank ones count. In a damaged file: before the damage, which readers tell."""
    lines = 1
    with _open(path) as stream, suppress(*_DAMAGE):
        for block in iter(partial(stream.read, _BLOCK_BYTES), b""):
            lines += block.count(b"\n")
    return lines


def read_document(path: Path) -> str:
    """All of the text, for a dialect that is one JSON document."""
    place = Place(path)
    return "\n".join(_decoded(place, raw) for raw in _raw_lines(place, -1))


def _raw_lines(place: Place, longest_bytes: int) -> Iterator[bytes]:
    number = 0
    try:
        with _open(place.file) as stream:
            while raw := stream.readline(longest_bytes):
                number += 1
                place.line = number
                yield raw
    except _DAMAGE as error:
        raise Place(place.file, number + 1).error("gzip data", str(error), "a whole gzip file") from error
    except OSError as error:
        raise Place(place.file).error("file", error.strerror, "a file that can be read") from error


def _open(path: Path) -> BinaryIO:
    if path.exists() and not path.is_file() and not path.is_dir():
        # It is read more than once: to recognise it, and by every pass over the trace.
        raise TraceError(file=path, field="file", value="a pipe or device", expected="a regular file; save it first")
    with path.open("rb") as stream:
        packed = stream.read(2) == _GZIP_MAGIC
    return cast(BinaryIO, gzip.open(path, "rb")) if packed else path.open("rb")


def _decoded(place: Place, raw: bytes) -> str:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise place.error("encoding", raw[error.start : error.end], "UTF-8 text") from error
    if "\0" in text:
        raise place.error("encoding", b"\0", "UTF-8 text")
    return text.removeprefix(_BOM).strip() if place.line == 1 else text.strip()
