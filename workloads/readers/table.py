"""Comma-separated text with a header line, as the CSV dialects share it.

Not for their columns' meaning. The one idea: names are matched in lower case, and once, at the header; a row is cells.
"""

from __future__ import annotations

import csv
from operator import itemgetter
from typing import TYPE_CHECKING

from workloads.readers.source import Place, read_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_OTHER_SEPARATORS = ";\t|"
_SHORT_LINE = 1 << 16
"""None of its cells is too long for the csv module."""


def read_columns(place: Place, columns: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Each row's cells in the two or more `columns`, which must be in the header; others may. `place` goes along.

    Raises `TraceError` for a header that lacks or repeats a name, a row of another width, and a table without rows.
    """
    names, rows = _read_table(place, columns)
    return map(itemgetter(*(names.index(name.lower()) for name in columns)), rows)


def read_records(place: Place) -> Iterator[dict[str, str]]:
    """Each row by the header's names, in lower case. `place` goes along. Raises `TraceError` as `read_columns` does."""
    names, rows = _read_table(place, ())
    return (dict(zip(names, cells, strict=True)) for cells in rows)


def _read_table(place: Place, required: Sequence[str]) -> tuple[list[str], Iterator[list[str]]]:
    lines = read_lines(place)
    # There is a first line: `read_head` has seen it.
    header = next(lines)
    names = header_names(place, header)
    missing = [name for name in required if name.lower() not in names]
    if missing:
        raise place.error("header", header, f"a column {missing[0]!r}")
    return names, _rows(place, lines, len(names))


def _rows(place: Place, lines: Iterator[str], width: int) -> Iterator[list[str]]:
    header_line, text = place.line, ""
    for text in lines:
        cells = _cells(place, text)
        if len(cells) != width:
            raise place.error("columns", text, f"{width} values separated by commas, as in the header")
        yield cells
    if not text:
        raise Place(place.file, header_line).error("rows", "only a header", "at least one row")


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
    if '"' not in text and "\r" not in text and len(text) <= _SHORT_LINE:
        return list(map(str.strip, text.split(",")))
    # Line by line, so that a stray quote spoils one line and not the rest of the file.
    try:
        return [cell.strip() for cell in next(csv.reader([text], strict=True), [])]
    except csv.Error as error:
        raise place.error("line", text, f"comma-separated values ({error})") from error
