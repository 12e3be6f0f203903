"""The row of each request, as columns that grow.

Not for when something happens to it (`log`). The one idea: 8 bytes for each number and no object, so that a million
requests are columns of 8 MB.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from numpy.typing import NDArray

    from workloads import Request

_NAN = float("nan")
_TIMES = ("arrival_s", "send_s", "queued_s", "scheduled_s", "first_token_s", "finish_s")
_COUNTS = ("priority", "prompt_tokens", "output_tokens", "cached_tokens", "preemptions", "swaps", "recomputed_tokens")
REQUEST_COLUMNS = ("request_id", *_COUNTS, *_TIMES, "status", "error")
"""Of the table of a run of this version."""
STATUS = ("finished", "rejected", "unfinished")
FINISHED, REJECTED, UNFINISHED = range(len(STATUS))
"""What stands for them in columns."""
_BLANK_ROWS = 1024
"""That are made at once."""
_NO_TIMES = array("d", [_NAN]).tobytes() * _BLANK_ROWS
_NO_COUNTS = bytes(8) * _BLANK_ROWS


class RequestRows:
    """Every request that has arrived. `times` and `counts` are by column, `status` holds codes."""

    def __init__(self) -> None:
        self.times = {name: array("d") for name in _TIMES}
        self.counts = {name: array("q") for name in _COUNTS}
        self.status = array("B")
        self._num_rows = 0
        self.errors: dict[int, str] = {}
        self._ids = bytearray()
        """Their names, one after the other."""
        self._ids_end = array("q", [0])

    def __len__(self) -> int:
        return self._num_rows

    def add(self, request: Request) -> None:
        """The next row."""
        row = self._num_rows
        if row == len(self.status):
            self._grow()
        self._num_rows = row + 1
        self._ids += request.request_id.encode()
        self._ids_end.append(len(self._ids))
        self.times["arrival_s"][row] = request.arrival_s
        self.counts["prompt_tokens"][row] = request.prompt_tokens
        if request.priority:
            self.counts["priority"][row] = request.priority

    def _grow(self) -> None:
        """Blank rows, so that each new one writes only what it knows."""
        self.status.frombytes(bytes([UNFINISHED]) * _BLANK_ROWS)
        for times in self.times.values():
            times.frombytes(_NO_TIMES)
        for counts in self.counts.values():
            counts.frombytes(_NO_COUNTS)

    def first_send_s(self) -> float:
        """When the first one that the server has not refused was sent; NaN where nobody was."""
        rows = len(self)
        sent = np.array(self.times["send_s"][:rows])[np.array(self.status[:rows]) != REJECTED]
        return float(np.fmin.reduce(sent, initial=_NAN))

    def columns(self) -> dict[str, NDArray[Any]]:
        """All that is a number, and the status, as its code. They share the rows' memory: no `add` after it."""
        columns = self.counts | self.times | {"status": self.status}
        return {name: np.frombuffer(values, values.typecode)[: len(self)] for name, values in columns.items()}

    def texts(self) -> tuple[pa.Array, pa.Array]:
        """What is text: names, and errors ("" of nobody's). The names share the rows' memory, too."""
        from sim.report.arrow import texts, texts_between

        return texts_between(self._ids_end, self._ids), texts([self.errors.get(row, "") for row in range(len(self))])

    def frame(self) -> pd.DataFrame:
        """The table `Frames.requests`. It shares the rows' memory: no `add` after it."""
        import pandas as pd

        columns: dict[str, object] = {**self.columns()}
        columns["status"] = pd.Categorical.from_codes(self.columns()["status"], categories=pd.Index(STATUS))
        names, errors = (pd.array(texts, dtype="str") for texts in self.texts())
        return pd.DataFrame({"request_id": names, **columns, "error": errors}, copy=False)


def columns_of(table: pd.DataFrame) -> dict[str, NDArray[Any]]:
    """The same as `RequestRows.columns`, of the table `Frames.requests`, as far as it has them."""
    import pandas as pd

    kinds = dict.fromkeys(_COUNTS, np.int64) | dict.fromkeys(_TIMES, np.float64)
    columns = {name: table[name].to_numpy(dtype=kind) for name, kind in kinds.items() if name in table}
    return {**columns, "status": np.asarray(pd.Categorical(table["status"], categories=pd.Index(STATUS)).codes)}
