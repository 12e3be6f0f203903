"""Arrow arrays of what is in memory already.

The one idea: `pyarrow.array` looks for pandas, which takes longer to load than thousands of requests to simulate; these
do not, so a run that keeps no steps never needs it.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from array import array
    from collections.abc import Sequence

    from numpy.typing import NDArray

_LONGEST_PLAIN = 2**31 - 1
"""Bytes of all texts of a column that plain strings can hold."""


def numbers(values: NDArray[Any]) -> pa.Array:
    """A column of numbers; NaN stays NaN. It shares the memory of `values`."""
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])


def texts_between(ends: array[int] | NDArray[np.int64], text: bytes | bytearray) -> pa.Array:
    """Texts that stand one after the other: each from one of `ends`, the first of which is 0, to the next."""
    kind, width = (pa.string(), np.int32) if len(text) <= _LONGEST_PLAIN else (pa.large_string(), np.int64)
    offsets = pa.py_buffer(np.asarray(ends, dtype=width))
    return pa.Array.from_buffers(kind, len(ends) - 1, [None, offsets, pa.py_buffer(text)])


def texts(values: Sequence[str]) -> pa.Array:
    """A column of texts."""
    return _joined([value.encode() for value in values])


def texts_by_code(codes: NDArray[np.uint8], values: Sequence[str]) -> pa.Array:
    """A column of texts, each of which is one of a few `values`."""
    encoded = [value.encode() for value in values]
    return _joined([encoded[code] for code in codes.tolist()])


def _joined(encoded: Sequence[bytes]) -> pa.Array:
    ends = np.fromiter(accumulate(map(len, encoded), initial=0), np.int64, len(encoded) + 1)
    return texts_between(ends, b"".join(encoded))
