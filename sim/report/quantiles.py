"""Median and quantiles of values that are all there, as numpy has them.

Not for values that are only counted (`gap_totals`). The one idea: numpy's own functions ask numpy.ma whether anything
is masked, and to load that takes as long as to simulate some hundred requests.
"""

from __future__ import annotations

from math import ceil, floor
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def median(values: NDArray[np.float64]) -> float:
    """`np.median`, to the last bit, of at least one value, none of them NaN."""
    below, above = (len(values) - 1) // 2, len(values) // 2
    return float(np.partition(values, (below, above))[below : above + 1].mean())


def quantiles(values: NDArray[np.float64], shares: Sequence[float]) -> list[float]:
    """`np.quantile` at shares in [0, 1], to the last bit, of at least one value, none of them NaN."""
    ranks = [share * (len(values) - 1) for share in shares]
    ordered = np.partition(values, sorted({*map(floor, ranks), *map(ceil, ranks)}))
    return [_between(float(ordered[floor(rank)]), float(ordered[ceil(rank)]), rank - floor(rank)) for rank in ranks]


def _between(low: float, high: float, share: float) -> float:
    """On the straight line between two values, reckoned from the nearer one."""
    return low + (high - low) * share if share < 0.5 else high - (high - low) * (1 - share)
