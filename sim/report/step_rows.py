"""What is written down of a step: one row of bytes, and the columns that rows become.

Not for when a row is written (`log`). The one idea: steps in a row that differ in their times and free blocks only are
written once, as bytes of one struct, and blocks of them are numpy records; so a step costs no object, and a block
is kept as columns or only added up.
"""

from __future__ import annotations

import struct
from array import array
from typing import TYPE_CHECKING, Any

import numpy as np

from sim.core.step import Limit
from sim.latency.graphs import GraphMode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd
    from numpy.typing import NDArray

_FLOATS = ("start_s", "end_s", "host_s", "copy_s", "chunk_pairs")
_COUNTS = (
    "num_tokens",
    "num_seqs",
    "prefill_tokens",
    "decodes",
    "sampled",
    "running",
    "waiting",
    "free_blocks",
    "admitted",
    "preempted",
    "hit_tokens",
    "chunk_row",
    "chunk_tokens",
    "chunk_context",
    "swapped",
    "blocks_out",
    "blocks_in",
    "host_queries",
    "host_blocks",
    "num_draft_tokens",
    "num_accepted_tokens",
    "num_paddings",
)
_STREAMS = ("streams", "continued")
"""Requests that got a token in the step, and those of them that got one in the step before, too. For totals only."""
STEP = struct.Struct(f"={len(_FLOATS)}d{len(_COUNTS) + len(_STREAMS)}q?BB")
STEP_DTYPE = np.dtype(
    [(name, "f8") for name in _FLOATS]
    + [(name, "i8") for name in (*_COUNTS, *_STREAMS)]
    + [("extrapolated", "?"), ("limit", "u1"), ("runtime_mode", "u1")]
)
"""One step's row, as packed and as read back."""
STEP_COLUMNS = tuple(name for name in STEP_DTYPE.names or () if name not in _STREAMS)
LIMIT_CODES = {limit: code for code, limit in enumerate((None, *Limit))}
MODE_CODES = {mode: code for code, mode in enumerate(GraphMode)}
LIMITS = ["nothing", *(limit.value for limit in Limit)]
MODES = [mode.value for mode in GraphMode]
"""What the codes in a row stand for."""
BLOCK_STEPS = 8192
"""Rows that are taken from the bytes at once."""
_TYPECODES = {"f": "d", "i": "q", "b": "B", "u": "B"}


class StepRows:
    """Steps that have been written down, until they are taken."""

    def __init__(self) -> None:
        self._alike = bytearray()
        self._lengths = array("q")
        """A row for each run of steps that are alike, and of how many steps."""
        self._free_blocks = array("q")
        """Before each run."""
        self._start_s: list[float] = []
        self._end_s: list[float] = []
        self._taken_blocks: list[int] = []
        """What differs, of every step."""

    def __len__(self) -> int:
        return len(self._end_s)

    def add_alike(self, row: bytes, num_steps: int, free_blocks: int) -> None:
        """A row for each of the next steps, and the free blocks before the first of them."""
        self._alike += row
        self._lengths.append(num_steps)
        self._free_blocks.append(free_blocks)

    def add(self, start_s: list[float], end_s: list[float], taken_blocks: list[int]) -> int:
        """When the next steps started and ended, and the blocks that each took; returns how many steps there are."""
        self._start_s += start_s
        self._end_s += end_s
        self._taken_blocks += taken_blocks
        return len(self._end_s)

    def take(self, num_steps: int) -> StepBlock:
        """The first steps."""
        lengths, left, runs = self._lengths, num_steps, 0
        while left and lengths[runs] <= left:
            left -= lengths[runs]
            runs += 1
        counts = lengths[:runs]
        if left:  # a run goes on behind them
            counts.append(left)
            lengths[runs] -= left
        rows = np.frombuffer(self._alike[: len(counts) * STEP.size], dtype=STEP_DTYPE)
        free_blocks = _less_what_was_taken(self._free_blocks[: len(counts)], counts, self._taken_blocks[:num_steps])
        if left:
            self._free_blocks[runs] = free_blocks[-1]
        del self._alike[: runs * STEP.size], lengths[:runs], self._free_blocks[:runs]
        own = {
            "start_s": _column("d", self._start_s[:num_steps]),
            "end_s": _column("d", self._end_s[:num_steps]),
            "free_blocks": free_blocks,
        }
        del self._start_s[:num_steps], self._end_s[:num_steps], self._taken_blocks[:num_steps]
        return StepBlock({name: rows[name] for name in STEP_DTYPE.names or ()}, np.array(counts), own)


def _less_what_was_taken(free_blocks: array[int], counts: array[int], taken_blocks: list[int]) -> NDArray[np.int64]:
    """Free blocks after each step: of runs, those before it and its number of steps; of steps, what each took."""
    taken = _column("q", taken_blocks)
    in_all = np.cumsum(taken)
    stops = np.cumsum(counts)
    first = stops - counts
    after: NDArray[np.int64] = np.repeat(free_blocks + in_all[first] - taken[first], counts) - in_all
    return after


def _column(code: str, values: Sequence[float]) -> NDArray[Any]:
    """A numpy column of Python's numbers; by way of bytes, as numpy takes three times as long to look at each."""
    return np.frombuffer(struct.pack(f"{len(values)}{code}", *values), dtype=code)


class StepBlock:
    """Some steps in a row, by column. What is added up of steps that are alike costs no look at each.

    alike: columns with an entry for as many steps in a row as `lengths` says, of shape (runs,); own: columns with an
    entry for each step, which count where a name is in both.
    """

    def __init__(
        self, alike: Mapping[str, NDArray[Any]], lengths: NDArray[np.int64], own: Mapping[str, NDArray[Any]]
    ) -> None:
        self._alike = alike
        self._lengths = lengths
        self._own = own

    def __contains__(self, name: str) -> bool:
        return name in self._alike

    def __getitem__(self, name: str) -> NDArray[Any]:
        """A column with an entry for each step."""
        return self._own[name] if name in self._own else np.repeat(self._alike[name], self._lengths)

    def sum(self, name: str) -> int:
        """Of a column of counts that is not own."""
        return int(np.dot(self._alike[name], self._lengths))

    def max(self, name: str) -> int:
        """Of a column of counts that is not own."""
        return int(self._alike[name].max())

    def occurrences(self, name: str, num_codes: int) -> list[int]:
        """Steps with each code, of a column of codes."""
        counts = np.bincount(self._alike[name], self._lengths, num_codes)
        return [int(count) for count in counts]


class StepColumns:
    """Every step, as columns."""

    def __init__(self) -> None:
        self._columns = {name: array(_TYPECODES[STEP_DTYPE[name].kind]) for name in STEP_COLUMNS}

    def add(self, steps: StepBlock) -> None:
        """The next steps."""
        for name, column in self._columns.items():
            column.frombytes(steps[name].tobytes())

    def ends_s(self) -> NDArray[np.float64]:
        """End of every step. It shares the column's memory: no `add` while it is used."""
        return np.frombuffer(self._columns["end_s"])

    def frame(self) -> pd.DataFrame:
        """The table `Frames.steps`. It shares the columns' memory: no `add` after it."""
        import pandas as pd

        columns = {name: np.frombuffer(column, dtype=STEP_DTYPE[name]) for name, column in self._columns.items()}
        kinds = {
            name: pd.Categorical.from_codes(columns[name], categories=pd.Index(values))
            for name, values in (("limit", LIMITS), ("runtime_mode", MODES))
        }
        return pd.DataFrame({**columns, **kinds}, copy=False)
