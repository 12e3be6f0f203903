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
    from numpy.typing import NDArray

    from workloads import Request

_NAN = float("nan")
_TIMES = ("arrival_s", "send_s", "queued_s", "scheduled_s", "first_token_s", "finish_s")
_COUNTS = ("priority", "prompt_tokens", "output_tokens", "cached_tokens", "preemptions", "swaps", "recomputed_tokens")
REQUEST_COLUMNS = ("request_id", *_COUNTS, *_TIMES, "status", "error")
"""Of the table of a run of this version."""
_STATUS = ("finished", "rejected", "unfinished")
FINISHED, REJECTED, UNFINISHED = range(len(_STATUS))


class RequestRows:
    """Every request that has arrived. `times` and `counts` are by column, `status` holds codes."""

    def __init__(self) -> None:
        self.times = {name: array("d") for name in _TIMES}
        self.counts = {name: array("q") for name in _COUNTS}
        self.status = array("B")
        self.errors: dict[int, str] = {}
        self._ids = bytearray()
        """Their names, one after the other."""
        self._ids_end = array("q", [0])

    def __len__(self) -> int:
        return len(self.status)

    def add(self, request: Request) -> None:
        """The next row."""
        self._ids += request.request_id.encode()
        self._ids_end.append(len(self._ids))
        self.status.append(UNFINISHED)
        for times in self.times.values():
            times.append(_NAN)
        for counts in self.counts.values():
            counts.append(0)
        self.times["arrival_s"][-1] = request.arrival_s
        self.counts["priority"][-1] = request.priority
        self.counts["prompt_tokens"][-1] = request.prompt_tokens

    def first_send_s(self) -> float:
        """When the first one that the server has not refused was sent; NaN where nobody was."""
        sent = np.array(self.times["send_s"])[np.array(self.status) != REJECTED]
        return float(np.fmin.reduce(sent, initial=_NAN))

    def frame(self) -> pd.DataFrame:
        """The table `Frames.requests`. It shares the columns' memory: no `add` after it."""
        import pandas as pd

        columns: dict[str, NDArray[Any]] = {
            name: np.frombuffer(values, dtype=values.typecode) for name, values in (self.counts | self.times).items()
        }
        status = pd.Categorical.from_codes(np.frombuffer(self.status, dtype=np.uint8), categories=pd.Index(_STATUS))
        errors = pd.array([self.errors.get(row, "") for row in range(len(self))], dtype="str")
        return pd.DataFrame({"request_id": self._names(), **columns, "status": status, "error": errors}, copy=False)

    def _names(self) -> object:
        import pandas as pd
        import pyarrow as pa

        parts = (len(self), pa.py_buffer(self._ids_end), pa.py_buffer(self._ids))
        return pd.array(pa.LargeStringArray.from_buffers(*parts), dtype="str")
