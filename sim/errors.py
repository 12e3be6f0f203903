"""The exception tree: what elpase raises on purpose.

Not for bugs of our own, which are assertions. The one idea: whatever the input did wrong is told in one line that says
where it stands, what was found and what was expected.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_CLOSE = 0.8
"""Least share of letters in common, as `SequenceMatcher.ratio` has it: `max-seqs` for `max-num-seqs`."""
_LONGEST_VALUE = 80
"""Characters of a value that are shown: a whole binary file in the wrong column is still one line."""


class ElpaseError(Exception):
    """Root of all that elpase raises on purpose."""


class InputError(ElpaseError, ValueError):
    """Something the user said or handed over cannot be used. `str()` is one line.

    All parts are optional: `InputError("--a contradicts --b")`, or
    `InputError(file="t.csv", line=3, field="tokens", value="-5", expected="an integer >= 0")`, which reads
    `t.csv:3: tokens: got '-5', expected an integer >= 0`.
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
        if self.file is None and self.line is not None:
            place.append(f"line {self.line}")
        if self.field is not None:
            place.append(self.field)
        told = [self.message] if self.message else []
        if self.value is not None:
            told.append(f"got {_shown(self.value)}")
        if self.expected is not None:
            told.append(f"expected {self.expected}")
        return one_line(": ".join([*place, ", ".join(told)] if told else place))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The one in `known` that `word` is nearly, as `; did you mean 'NAME'?`; nothing where none is really close."""
    from difflib import SequenceMatcher

    def closeness(name: str) -> float:
        return SequenceMatcher(None, _plain(word), _plain(name)).ratio()

    best = max(known, key=closeness, default="")
    return f"; did you mean {best!r}?" if best and closeness(best) >= _CLOSE else ""


def _plain(name: str) -> str:
    """Without what all flags have in common: dashes would make strangers alike."""
    return name.lower().replace("-", "").replace("_", "")


def one_line(text: str) -> str:
    """`text` with every run of white space and control characters made one blank."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _shown(value: object) -> str:
    # A list is one, whether it came from a file or from a flag.
    shown = repr(list(value) if isinstance(value, tuple) else value)
    return shown if len(shown) <= _LONGEST_VALUE else f"{shown[: _LONGEST_VALUE - 3]}..."
