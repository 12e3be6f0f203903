"""The values of a line of a trace, checked: JSON's, or the text of a CSV file's cells.

Not for a dialect's names and units. The one idea: a reader hands each value to a function here, which returns a number
in range or says what is wrong with it.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any

from workloads.readers.source import Place
from workloads.request import MAX_TOKENS
from workloads.trace import MAX_SECONDS

LATEST_S = 1e10
"""A stamp's own clock may count since 1970: this is the year 2286."""
IDLE_START_S = 60.0
"""A file that is silent for so long at first was not begun by its clock: its stamps are dates, or it was cut out."""

_EXACT = 2.0**53
_INTEGER = re.compile(r"[+-]?[0-9]{1,30}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_FEW_DIGITS = 9
"""They make no number above MAX_TOKENS."""


def integer(place: Place, field: str, value: object, *, low: int, high: int) -> int:
    """`value` (a JSON value, or a CSV cell's text) as an integer in [low, high]. 10.0 and 1e3 are integers."""
    number = value
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        number = int(value)
    elif isinstance(value, str) and _NUMBER.fullmatch(value):
        number = float(value)
    # As pandas writes a column of integers that has had gaps. Above 2**53 such a number has lost digits.
    if isinstance(number, float) and abs(number) <= _EXACT and number.is_integer():
        number = int(number)
    if not isinstance(number, int) or isinstance(number, bool) or not low <= number <= high:
        raise place.error(field, value, f"an integer from {low} to {high}")
    return number


def integers(place: Place, field: str, values: list[Any], *, low: int, high: int) -> list[int]:
    """Each of `values`, as `integer` reads it."""
    # In C: there are dozens of them in a line.
    if set(map(type, values)) == {int} and low <= min(values) and max(values) <= high:
        return values
    return [integer(place, field, value, low=low, high=high) for value in values]


@dataclass(slots=True)
class StampClock:
    """A file's stamps of time, checked: numbers in order, `per_s` of them a second, that start where a workload does.

    They are kept as they are, unless the first one is at `idle_start_s` or later: then they count from that one.
    """

    per_s: float = 1.0
    unit: str = "seconds"
    idle_start_s: float = IDLE_START_S
    zero_s: float = 0.0
    """The file's zero, in seconds of its own clock."""
    _zero: float = 0.0
    _before: float | None = None

    def read(self, place: Place, field: str, value: object) -> float:
        """The stamp `value`, counted from the file's zero."""
        now = number(place, field, value, high=LATEST_S * self.per_s, unit=self.unit)
        in_order(place, field, value, now, self._before)
        if self._before is None and now >= self.idle_start_s * self.per_s:
            self._zero, self.zero_s = now, now / self.per_s
        self._before = now
        since = now - self._zero
        if since > MAX_SECONDS * self.per_s:
            expected = f"at most {MAX_SECONDS:.0f} seconds after the first row"
            raise place.error(field, value, expected)
        return since


def tokens(place: Place, field: str, value: object) -> int:
    """`value` as a number of tokens. 0 is read: whether such a row can be used is decided later."""
    # Nearly all are whole numbers, plainly written.
    if isinstance(value, str) and len(value) <= _FEW_DIGITS and value.isdigit() and value.isascii():
        return int(value)
    if type(value) is int and 0 <= value <= MAX_TOKENS:
        return value
    return integer(place, field, value, low=0, high=MAX_TOKENS)


def number(place: Place, field: str, value: object, *, high: float, unit: str = "seconds") -> float:
    """`value` (a JSON number, or a CSV cell's text) as a finite number in [0, high], of a unit of time."""
    parsed = math.nan
    if isinstance(value, str):
        if _NUMBER.fullmatch(value):
            parsed = float(value)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        # JSON integers may be too large for a float.
        parsed = float(value) if abs(value) <= high else math.inf
    if not 0.0 <= parsed <= high:
        smaller = " (is it in a smaller unit, or a date of another kind?)" if parsed > high else ""
        raise place.error(field, value, f"{unit} from 0 to {high:.0f}{smaller}")
    return parsed


def in_order(place: Place, field: str, shown: object, now: float, before: float | None) -> float:
    """`now`, unless it lies before the row above: readers stream, so they cannot sort."""
    if before is not None and now < before:
        raise place.error(field, shown, "a time not before the row above (sort the trace by time)")
    return now


def json_object(place: Place, text: str) -> dict[str, Any]:
    """`text` as one JSON object, each key once."""
    try:
        if text.startswith("\ufeff"):  # between files that were joined; in json.loads's words
            raise json.JSONDecodeError("Unexpected UTF-8 BOM (decode using utf-8-sig)", text, 0)
        value = _DECODER.decode(text)
    except _TwiceError as error:
        raise place.error("key", error.args[0], "each key once") from error
    except json.JSONDecodeError as error:
        line = error.lineno if place.line is None else place.line
        found = text[error.pos : error.pos + 20] or "the end of the text"
        raise Place(place.file, line).error("JSON", found, f"one whole JSON object ({error.msg})") from error
    except (ValueError, RecursionError) as error:  # an integer of thousands of digits; thousands of brackets
        raise place.error("JSON", text[:20], f"one JSON object ({error})") from error
    if not isinstance(value, dict):
        raise place.error("JSON", text[:20], "a JSON object")
    return value


class _TwiceError(ValueError):
    """A JSON object names a key twice."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise _TwiceError(next(name for name in found if names.count(name) > 1))
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=_unique)
"""What `json.loads` would make anew for each line."""
