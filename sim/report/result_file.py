"""A result as one line of strict JSON (no NaN), as `vllm bench serve` writes it.

Not for what is in it (`summary`). The one idea: lists of one entry per request, and of one per token, go to the file a
piece at a time, so that writing takes little memory beside the arrays that they are in.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import numpy as np

from sim.report.frames import Itls

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

_PIECE = 4096
"""Requests whose entries are text at one time."""
_MOST_TEXTS = 1 << 16


def write_json(result: Mapping[str, object], path: Path) -> None:
    """Write a result of `summarize` or `summarize_as_arrays`."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for at, (name, value) in enumerate(result.items()):
            file.write(f"{', ' if at else '{'}{json.dumps(name)}: ")
            file.writelines(_json(name, value))
        file.write("}\n")


def _json(name: str, value: object) -> Iterator[str]:
    if isinstance(value, np.ndarray):
        pieces = (value[at : at + _PIECE].tolist() for at in range(0, len(value), _PIECE))
        return _listed(json.dumps(piece, allow_nan=False)[1:-1] for piece in pieces)
    if isinstance(value, Itls):
        return _ragged(value.row(at).tolist() for at in range(len(value)))
    if name == "itls" and isinstance(value, list):
        return _ragged(value)
    return iter([json.dumps(value, allow_nan=False)])


def _ragged(rows: Iterable[list[float]]) -> Iterator[str]:
    texts = _Texts()
    return _listed(f"[{', '.join(map(texts.__getitem__, row))}]" for row in rows)


def _listed(entries: Iterable[str]) -> Iterator[str]:
    """What stands between a list's brackets, with them and the commas."""
    yield "["
    for at, entry in enumerate(entries):
        yield f", {entry}" if at else entry
    yield "]"


class _Texts(dict[float, str]):
    """JSON of numbers, each made once: requests that run side by side get their tokens at the same moments."""

    def __missing__(self, number: float) -> str:
        if not math.isfinite(number):
            raise ValueError(f"not a number of JSON: {number}")
        if len(self) == _MOST_TEXTS:
            self.clear()
        text = self[number] = repr(number)
        return text
