"""Fits the fused law to samples: relative errors, outliers damped, no coefficient negative.

Not for reading data and not for files. The one idea: a GPU runs at other clocks alone, between decodes and under
sustained load, so each such state has one ratio of clocks, and together they fix one law: kernels timed one by one its
form far beyond what was served, served steps its level.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import approx_fprime, least_squares

from calibrate.samples import KERNELS, LONE, SUSTAINED
from sim.errors import InputError
from sim.latency.model import BOUNDS, FusedLaw

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from calibrate.samples import Samples

    Column = NDArray[np.float64]

_OUTLIER = 0.05
"""Relative error from which a sample's pull stops growing."""

_START = FusedLaw(
    step_s=1e-3,
    row_s=1e-5,
    weight_read_s=1e-2,
    batch_slowdown=0.02,
    token_s=4e-5,
    sharpness=3.0,
    context_s=6e-8,
    mixed_context_s=3e-8,
    pair_s=1e-9,
    tile_waste=0.5,
)
"""Orders of magnitude of a 10B-class model on a data-centre GPU; also the fit's unit of each coefficient."""

_HOST = {"host_step_s": 0.0, "host_row_s": 0.0}
"""A step's whole time does not say how much of it the host took."""


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted law and how well it holds."""

    law: FusedLaw
    standard_errors: dict[str, float]
    """Of the free coefficients, from the curvature at the optimum; 0 at a bound."""
    clock_ratios: dict[str, float]
    """State of the GPU -> how much longer arithmetic takes under sustained serving."""
    residuals: dict[str, dict[str, float]]
    """Regime -> samples; mean, median and 90th percentile of (absolute) relative errors."""


def fit(samples: Samples, *, fixed: Mapping[str, float] | None = None) -> Fit:
    """Fit all coefficients but those `fixed`; the host's are 0 unless fixed.

    Raises InputError when there are fewer different shapes than coefficients.
    """
    given = {**_HOST, **(fixed or {})}
    ratios = [f"clock {state}" for state in (LONE, KERNELS) if (samples.state == state).any()]
    names = [f.name for f in fields(FusedLaw) if f.name not in given] + ratios
    _require_shapes(samples, len(names))
    scale = np.array([1.0 if name in ratios else getattr(_START, name) for name in names])
    low, high = np.array([BOUNDS.get(name, (0.0, np.inf)) for name in names]).T / scale

    def named(x: Column) -> dict[str, float]:
        return {**given, **{name: float(value) for name, value in zip(names, x * scale, strict=True)}}

    def errors(x: Column) -> Column:
        return _predict(samples, named(x)) / samples.seconds - 1.0

    weights = samples.balanced_weights()
    found = least_squares(
        errors, np.ones(len(names)), bounds=(low, high), loss=_weighted_soft_l1(weights), f_scale=_OUTLIER
    )
    values = named(found.x)
    clocks = {name.removeprefix("clock "): values.pop(name) for name in ratios}
    spread = _spread(errors, found.x, weights, free=found.active_mask == 0) * scale
    return Fit(
        law=FusedLaw(**{name: float(f"{value:.6g}") for name, value in values.items()}),
        standard_errors=dict(zip(names, spread.tolist(), strict=True)),
        clock_ratios=clocks,
        residuals=summarize(samples, errors(found.x)),
    )


def _require_shapes(samples: Samples, unknowns: int) -> None:
    totals = np.stack([samples.num_tokens, samples.num_seqs, samples.decode_context, samples.chunk_pairs])
    shapes = np.unique(totals, axis=1).shape[1]
    if shapes < unknowns:
        raise InputError(field="samples", value=shapes, expected=f"at least {unknowns} different step shapes")


def _predict(samples: Samples, values: Mapping[str, float]) -> Column:
    law = FusedLaw(**{name: value for name, value in values.items() if not name.startswith("clock ")})
    seconds = np.empty(len(samples))
    for state in (SUSTAINED, LONE, KERNELS):
        own = samples.state == state
        ratio = values.get(f"clock {state}", 1.0)
        clocked = replace(law, token_s=law.token_s / ratio, pair_s=law.pair_s / ratio)
        if state == KERNELS:  # no sampler, no norms, nothing between the kernels
            clocked = replace(clocked, step_s=0.0)
        seconds[own] = clocked.device_s(
            samples.padded_tokens[own],
            samples.num_seqs[own],
            samples.decode_context[own],
            samples.mixed_context[own],
            samples.chunk_pairs[own],
        )
    return seconds


def _weighted_soft_l1(weights: Column) -> Any:
    """scipy's soft_l1 with a weight per sample. Weights on the errors themselves would move what counts as outlier."""

    def loss(z: Column) -> Column:
        root = np.sqrt(1.0 + z)
        return np.stack([weights * 2.0 * (root - 1.0), weights / root, -0.5 * weights / root**3])

    return loss


def _spread(errors: Callable[[Column], Column], x: Column, weights: Column, free: NDArray[np.bool_]) -> Column:
    """Standard errors of a robust, weighted fit (the sandwich formula); 0 where a bound holds the value."""
    size = errors(x)
    jacobian = approx_fprime(x, errors, 1e-6)[:, free]
    pull = weights / np.sqrt(1.0 + (size / _OUTLIER) ** 2)
    bread = np.linalg.pinv(jacobian.T @ (pull[:, None] * jacobian))
    filling = jacobian * (pull * size)[:, None]
    spread = np.zeros(x.size)
    spread[free] = np.sqrt(np.diag(bread @ (filling.T @ filling) @ bread))
    return spread


def summarize(samples: Samples, errors: Column) -> dict[str, dict[str, float]]:
    """Relative errors (predicted / measured - 1) by regime."""
    return {str(regime): _summary(errors[samples.regime == regime]) for regime in np.unique(samples.regime)}


def _summary(errors: Column) -> dict[str, float]:
    size = np.abs(errors)
    return {
        "samples": int(errors.size),
        "mean": round(float(errors.mean()), 4),
        "median_abs": round(float(np.median(size)), 4),
        "p90_abs": round(float(np.quantile(size, 0.9)), 4),
    }
