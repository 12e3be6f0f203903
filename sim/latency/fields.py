"""Reads typed fields out of a JSON document. The one idea: whatever is wrong is told with the file and the full path
of the field.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeGuard

from sim.errors import InputError
from sim.json_file import read_json_object

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Mapping

MOST = 1e30
"""Beyond any count, rate or time, and small enough for sums and squares of such to stay finite."""


class Fields:
    """One JSON object of a file, asked field by field. Every question raises InputError when the answer will not do."""

    def __init__(self, file: str | os.PathLike[str], table: Mapping[str, Any], at: str = "") -> None:
        self.file = file
        self.table = table
        self.at = at

    @classmethod
    def read(cls, file: str | os.PathLike[str]) -> Fields:
        """The object in a JSON file. Raises OSError where it cannot be read."""
        return cls(file, read_json_object(file))

    def wrong(self, name: str, expected: str) -> InputError:
        """The error that says that a field's value will not do."""
        value = self.table.get(name)
        if name not in self.table or value is None:
            return InputError(f"missing, expected {expected}", file=self.file, field=self.at + name)
        return InputError(file=self.file, field=self.at + name, value=value, expected=expected)

    def text(self, name: str) -> str:
        """A string that is not empty."""
        value = self.table.get(name)
        if not isinstance(value, str) or not value:
            raise self.wrong(name, "a text")
        return value

    def integer(self, name: str, *, least: int = 0, most: int = 10**18) -> int:
        """An integer from `least` to `most`."""
        value = self.table.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise self.wrong(name, f"an integer >= {least}")
        if value > most:
            raise self.wrong(name, f"at most {most}")
        return value

    def truth(self, name: str) -> bool:
        """True or false."""
        value = self.table.get(name)
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def one_of(self, name: str, known: Collection[str]) -> str:
        """One of the texts in `known`."""
        value = self.text(name)
        if value not in known:
            raise self.wrong(name, f"one of {', '.join(known)}")
        return value

    def number(self, name: str, least: float = 0.0, most: float = MOST) -> float:
        """A number from `least` to `most`, both finite."""
        value = self.table.get(name)
        if not _is_number(value) or not least <= value <= most:
            raise self.wrong(name, f"a finite number from {least:g} to {most:g}")
        return float(value)

    def range(self, name: str) -> tuple[float, float]:
        """A pair [low, high], neither negative nor infinite."""
        value = self.table.get(name)
        if isinstance(value, list) and len(value) == 2 and all(map(_is_number, value)):
            low, high = value
            if 0 <= low <= high <= sys.float_info.max:
                return float(low), float(high)
        raise self.wrong(name, "a pair [low, high] of numbers >= 0")

    def object(self, name: str) -> Fields:
        """A nested object."""
        value = self.table.get(name)
        if not isinstance(value, dict):
            raise self.wrong(name, "an object")
        return Fields(self.file, value, f"{self.at}{name}.")


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
