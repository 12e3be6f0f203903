"""The error of a workload: what in a trace, or in a generator's parameters, cannot be used.

Not for faults of our own. The one idea: one line says where it stands, what was found and what was expected.
"""

from __future__ import annotations

import os

_LONGEST_VALUE = 80
"""Characters of a value that are shown: a whole binary file in the wrong column is still one line."""


class TraceError(ValueError):
    """A trace or a workload parameter cannot be used. `str()` is one line: `FILE:LINE: FIELD: got VALUE, expected ...`.

    `file` and `line` (from 1, of the decompressed text) are None where there is no file or no line to name.
    """

    def __init__(
        self,
        message: str = "",
        *,
        file: str | os.PathLike[str] | None = None,
        line: int | None = None,
        field: str | None = None,
        value: object = None,
        expected: str | None = None,
    ) -> None:
        self.message = message
        self.file = None if file is None else os.fspath(file)
        self.line = line
        self.field = field
        self.value = value
        self.expected = expected
        super().__init__(self._render())

    def _render(self) -> str:
        place = [] if self.file is None else [self.file if self.line is None else f"{self.file}:{self.line}"]
        if self.field is not None:
            place.append(self.field)
        told = [self.message] if self.message else []
        if self.expected is not None:
            told += [f"got {_shown(self.value)}", f"expected {self.expected}"]
        return _one_line(": ".join([*place, ", ".join(told)] if told else place))


def _shown(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= _LONGEST_VALUE else f"{shown[: _LONGEST_VALUE - 3]}..."


def _one_line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
