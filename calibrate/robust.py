"""Robust least squares: what an outlier weighs, and how sure the result is.

Not for any law. The one idea: a sample's pull grows with its relative error only up to a size; beyond it stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from calibrate.samples import Column


def weighted_soft_l1(weights: Column) -> Any:
    """scipy's soft_l1 with a weight per sample. Weights on the errors themselves would move what counts as outlier."""

    def loss(z: Column) -> Column:
        root = np.sqrt(1.0 + z)
        return np.stack([weights * 2.0 * (root - 1.0), weights / root, -0.5 * weights / root**3])

    return loss


def sandwich(jacobian: Column, errors: Column, weights: Column, outlier: float) -> Column:
    """Standard errors of a robust, weighted fit (Huber's sandwich) with soft_l1 at the scale `outlier`."""
    pull = weights / np.sqrt(1.0 + (errors / outlier) ** 2)
    bread = np.linalg.pinv(jacobian.T @ (pull[:, None] * jacobian))
    filling = jacobian * (pull * errors)[:, None]
    variance = np.diag(bread @ (filling.T @ filling) @ bread)
    spread: Column = np.sqrt(np.maximum(variance, 0.0))  # rounding can leave a 0 below 0
    return spread
