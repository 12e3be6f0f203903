"""The host's part of a step, fitted to host seconds: a share per step and one per sequence.

Not for what the GPU does: a step's whole time does not say how much of it the host took, so only rows that know are
used, and where none does the host's coefficients are 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import least_squares, nnls

from calibrate.robust import sandwich, weighted_soft_l1

if TYPE_CHECKING:
    from calibrate.samples import Column, Samples

HOST = ("host_step_s", "host_row_s")
_OUTLIER = 0.2
"""Hosts scatter more than GPUs."""


def fit_host(samples: Samples) -> tuple[dict[str, float], dict[str, float]]:
    """`host_step_s` and `host_row_s` with their standard errors; both 0, and no errors, where no row knows the host.

    With one batch size only, all of the host's time is the step's.
    """
    known = samples.where(np.isfinite(samples.host_seconds) & (samples.host_seconds > 0))
    if not len(known):
        return dict.fromkeys(HOST, 0.0), {}
    names = HOST if np.ptp(known.num_seqs) else HOST[:1]
    features = np.stack([np.ones(len(known)), known.num_seqs], axis=1)[:, : len(names)] / known.host_seconds[:, None]
    weights = known.balanced_weights()
    root = np.sqrt(weights)
    start = nnls(features * root[:, None], root)[0]
    scale = np.maximum(start, 1e-3 * np.median(known.host_seconds) / known.num_seqs.max())

    def errors(x: Column) -> Column:
        return np.asarray(features @ (x * scale) - 1.0)

    found = least_squares(errors, start / scale, bounds=(0.0, np.inf), loss=weighted_soft_l1(weights), f_scale=_OUTLIER)
    spread = sandwich(features * scale, errors(found.x), weights, _OUTLIER) * scale
    values = dict(zip(names, (found.x * scale).tolist(), strict=True))
    return {**dict.fromkeys(HOST, 0.0), **values}, dict(zip(names, spread.tolist(), strict=True))


def host_errors(samples: Samples, values: dict[str, float]) -> Column:
    """Relative errors of the host's part, of the rows that know it."""
    known = samples.where(np.isfinite(samples.host_seconds) & (samples.host_seconds > 0))
    predicted: Column = values["host_step_s"] + values["host_row_s"] * known.num_seqs
    return predicted / known.host_seconds - 1.0
