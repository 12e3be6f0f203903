"""Comma-separated text with a header line, as the CSV dialects share it.

Not for their columns' meaning. The one idea: a row is a mapping from the header's names, in lower case, to text.
"""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

from workloads.readers.row import Place
from workloads.readers.source import read_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_OTHER_SEPARATORS = ";\t|"


def read_table(path: Path, required: Sequence[str]) -> Iterator[tuple[Place, dict[str, str]]]:
    """Each row under the header, by name in lower case. `required` names must be in the header, others may.

    Raises `TraceError` for a header that lacks or repeats a name, a row of another width, and a table without rows.
    """
    lines = read_lines(path)
    # There is a first line: `read_head` has seen it.
    number, text = next(lines)
    place = Place(path, number)
    names = header_names(place, text)
    missing = [name for name in required if name.lower() not in names]
    if missing:
        raise place.error("header", text, f"a column {missing[0]!r}")
    for number, text in lines:
        place = Place(path, number)
        cells = _cells(place, text)
        if len(cells) != len(names):
            raise place.error("columns", text, f"{len(names)} values separated by commas, as in the header")
        yield place, dict(zip(names, cells, strict=True))
    if place.line == 1:
        raise place.error("rows", "only a header", "at least one row")


def header_names(place: Place, text: str) -> list[str]:
    """The header's names, in lower case.

    Raises `TraceError` for a row of numbers in its place, another separator, and a name that comes twice.
    """
    names = [name.lower() for name in _cells(place, text)]
    if text[0].isdigit():
        raise place.error("header", text, "a line of column names above the rows")
    for separator in _OTHER_SEPARATORS:
        if len(names) == 1 and separator in text:
            raise place.error("separator", separator, "columns separated by ','")
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise place.error("header", twice[0], "each column once")
    return names


def _cells(place: Place, text: str) -> list[str]:
    # Line by line, so that a stray quote spoils one line and not the rest of the file.
    try:
        return [cell.strip() for cell in next(csv.reader([text], strict=True), [])]
    except csv.Error as error:
        raise place.error("line", text, f"comma-separated values ({error})") from error
