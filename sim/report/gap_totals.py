"""Gaps between tokens, and tokens per second, without the tokens: what is left of them is counts.

Not for gaps that are kept (`kept`). The one idea: a float's leading bits are its bin, so bins are as wide as a share of
the value, 1/4,096 of a power of two, and the same on every machine.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_BITS = 12
_SHIFT = 52 - _BITS
_SHORTEST_S, _LONGEST_S = 2.0**-20, 2.0**20
"""1 us, 12 days: beyond them is the last bin."""
_FIRST, _STOP = (int(np.float64(bound).view(np.int64)) >> _SHIFT for bound in (_SHORTEST_S, _LONGEST_S))
QUANTILE_ERROR = 2.0 ** -(_BITS + 1)
"""A quantile is off by that share of itself at most: half a bin."""


class GapTotals:
    """Number, mean, deviation and quantiles of gaps in seconds."""

    def __init__(self) -> None:
        self._bins = np.zeros(_STOP - _FIRST, dtype=np.int64)
        self._count = 0
        self._mean_s = 0.0
        self._squares_s2 = 0.0
        """Sum of squared distances from the mean."""

    def __len__(self) -> int:
        return self._count

    def add(self, gaps_s: NDArray[np.float64], times: NDArray[np.int64]) -> None:
        """More gaps, each so many times; both of shape (n,)."""
        count = int(times.sum())
        if not count:
            return
        bins = np.clip((gaps_s.view(np.int64) >> _SHIFT) - _FIRST, 0, len(self._bins) - 1)
        np.add.at(self._bins, bins, times)
        # Chan, Golub, LeVeque 1979: joins two means and two sums of squares without cancellation.
        mean_s = float(np.dot(gaps_s, times)) / count
        apart_s, total = mean_s - self._mean_s, self._count + count
        self._squares_s2 += float(np.dot((gaps_s - mean_s) ** 2, times)) + apart_s**2 * self._count * count / total
        self._mean_s += apart_s * count / total
        self._count = total

    def mean_s(self) -> float:
        """0 of nothing, as vLLM says."""
        return self._mean_s

    def std_s(self) -> float:
        """Population deviation; 0 of nothing."""
        return math.sqrt(self._squares_s2 / self._count) if self._count else 0.0

    def quantiles_s(self, shares: Sequence[float]) -> list[float]:
        """At shares in [0, 1], on a straight line between ranks, within QUANTILE_ERROR; 0 of nothing."""
        if not self._count:
            return [0.0 for _ in shares]
        filled = np.flatnonzero(self._bins)
        upto = np.cumsum(self._bins[filled])
        at = np.asarray(shares, dtype=np.float64) * (self._count - 1)
        below, above = (
            _middle_s(filled[np.searchsorted(upto, rank, side="right")]) for rank in (np.floor(at), np.ceil(at))
        )
        return [float(value) for value in below + (at - np.floor(at)) * (above - below)]


def _middle_s(bins: NDArray[np.int64]) -> NDArray[np.float64]:
    """Halfway between a bin's edges."""
    edges = (bins + _FIRST) << _SHIFT
    return 0.5 * (edges.view(np.float64) + (edges + (1 << _SHIFT)).view(np.float64))


class TokensPerSecond:
    """The most tokens in any whole second from `zero_s` on."""

    def __init__(self, zero_s: float) -> None:
        self._zero_s = zero_s
        self._most = 0
        self._second, self._tokens = 0, 0
        """The last second so far, which may go on."""

    def add(self, times_s: NDArray[np.float64], tokens: NDArray[np.int64]) -> None:
        """More moments, in order, and the tokens at each."""
        seconds, at = np.unique((times_s - self._zero_s).astype(np.int64), return_inverse=True)
        counts = np.bincount(at, tokens).astype(np.int64)
        if seconds[0] == self._second:
            counts[0] += self._tokens
        self._most = max(self.most(), int(counts.max()))
        self._second, self._tokens = int(seconds[-1]), int(counts[-1])

    def most(self) -> int:
        """In the fullest second."""
        return max(self._most, self._tokens)
