"""Reads typed fields out of a JSON document. The one idea: whatever is wrong is told with the file and the full path
of the field.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from sim.errors import InputError

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping


class Fields:
    """One JSON object of a file, asked field by field. Every question raises InputError when the answer will not do."""

    def __init__(self, file: str | os.PathLike[str], table: Mapping[str, Any], at: str = "") -> None:
        self.file = file
        self.table = table
        self.at = at

    @classmethod
    def read(cls, file: str | os.PathLike[str]) -> Fields:
        """The object in a JSON file. Raises OSError where it cannot be read."""
        try:
            document = json.loads(Path(file).read_text(encoding="utf-8"))
        except json.JSONDecodeError as error:
            raise InputError(f"not JSON: {error.msg}", file=file, line=error.lineno) from error
        except UnicodeDecodeError as error:
            raise InputError("not JSON: not text", file=file) from error
        except RecursionError as error:
            raise InputError("not JSON that can be read: nested too deep", file=file) from error
        if not isinstance(document, dict):
            raise InputError(file=file, value=document, expected="a JSON object")
        return cls(file, document)

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

    def integer(self, name: str, *, least: int = 0) -> int:
        """An integer >= `least`."""
        value = self.table.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise self.wrong(name, f"an integer >= {least}")
        return value

    def number(self, name: str, least: float = 0.0, most: float = math.inf) -> float:
        """A finite number from `least` to `most`."""
        value = self.table.get(name)
        if not _is_number(value) or not least <= value <= most or value == math.inf:
            raise self.wrong(name, f"a finite number from {least:g} to {most:g}")
        return float(value)

    def range(self, name: str) -> tuple[float, float]:
        """A pair [low, high]."""
        value = self.table.get(name)
        if not isinstance(value, list) or len(value) != 2 or not all(map(_is_number, value)) or value[0] > value[1]:
            raise self.wrong(name, "a pair [low, high] of numbers")
        return float(value[0]), float(value[1])

    def object(self, name: str) -> Fields:
        """A nested object."""
        value = self.table.get(name)
        if not isinstance(value, dict):
            raise self.wrong(name, "an object")
        return Fields(self.file, value, f"{self.at}{name}.")


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
