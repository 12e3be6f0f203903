"""Fits the fused law to samples: relative errors, outliers damped, no coefficient negative.

Not for reading data and not for files. The one idea: a GPU runs at other clocks alone, between decodes and under
sustained load, so each such state has one ratio of clocks, and together they fix one law: kernels timed one by one its
form far beyond what was served, served steps its level.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import approx_fprime, least_squares, nnls

from calibrate.host import fit_host
from calibrate.robust import sandwich, weighted_soft_l1
from calibrate.samples import FULL_GRAPH, KERNELS, STATES, SUSTAINED, Samples
from calibrate.unknowns import CONTEXT_OF, fill, latent_sources
from sim.errors import InputError
from sim.latency.graphs import NO_GRAPHS, Graphs
from sim.latency.model import BOUNDS, UNITS, FusedLaw
from sim.plurals import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from calibrate.samples import Column

_OUTLIER = 0.05
"""Relative error from which a sample's pull stops growing."""

OPTIONAL = ("tile_waste", "elementwise_s", "eager_s", "eager_row_s")
"""Coefficients that a law can do without: worth having where they foretell steps that they were not fitted to."""

_PRIOR = {"batch_slowdown": (0.02, 0.05), "sharpness": (3.0, 3.0), "tile_waste": (0.3, 0.3)}
"""Where samples do not tell, these stay near what they are for other GPUs (value, breadth)."""
_PRIOR_WEIGHT = 1e-7

_CLOCK = "clock "


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted law and how well it holds."""

    law: FusedLaw
    values: dict[str, float]
    """Every number that was fitted or fixed: coefficients, clock ratios, mean contexts."""
    standard_errors: dict[str, float]
    """Of the free coefficients, from the curvature at the optimum; 0 at a bound."""
    clock_ratios: dict[str, float]
    """State of the GPU -> how much longer arithmetic takes under sustained serving."""
    residuals: dict[str, dict[str, float]]
    """Regime -> samples; mean, median and 90th percentile of (absolute) relative errors."""
    confounded: tuple[tuple[str, ...], ...] = field(default=())
    """Groups of coefficients of which the samples tell a combination only."""


def fit(
    samples: Samples,
    *,
    fixed: Mapping[str, float] | None = None,
    terms: Sequence[str] = ("tile_waste",),
    graphs: Graphs = NO_GRAPHS,
    near: Mapping[str, float] | None = None,
) -> Fit:
    """Fit all coefficients but those `fixed`, of the optional ones only `terms`; see `Fit`.

    Coefficients that no sample can tell (`pair_s` without prompts) are 0. `graphs` go into the law as they are: what
    the samples computed stands in their `padded_tokens`. `near`: values of a fit to much the same samples, from which
    one search starts instead of three from afar. Raises InputError when there are fewer different shapes than
    coefficients.
    """
    host, host_spread = fit_host(samples)
    given = {**dict.fromkeys(OPTIONAL, 0.0), **host}
    given = {name: value for name, value in given.items() if name not in terms} | dict(fixed or {})
    given |= {name: 0.0 for name in untold(samples) if name not in given}
    names = [name for name in UNITS if name not in given]
    states = [state for state in STATES if (samples.state == state).any()]
    names += [_CLOCK + state for state in states if state != SUSTAINED and len(states) > 1]
    names += [CONTEXT_OF + source for source in latent_sources(samples)]
    _require_shapes(samples, len(names))
    found = _minimize(samples, names, given, near)
    values = found.named(found.x)
    errors = found.errors(found.x)
    spread = dict(zip(names, found.spread().tolist(), strict=True))
    return Fit(
        law=_law({name: float(f"{values[name]:.6g}") for name in UNITS}, graphs),
        values=values,
        standard_errors=spread | host_spread,
        clock_ratios={n.removeprefix(_CLOCK): v for n, v in values.items() if n.startswith(_CLOCK)},
        residuals=summarize(samples, errors),
        confounded=found.confounded(),
    )


def predict(samples: Samples, values: Mapping[str, float]) -> Column:
    """Seconds of the samples' steps by a fit's values, each in its own state of the GPU."""
    return _Columns.of(samples).seconds(values)


@dataclass(frozen=True, slots=True)
class _Columns:
    """What the law asks for, made once for the many prices of a search: equal steps are priced once."""

    known: tuple[Column, Column, Column, Column, Column, Column]
    """Arguments of `FusedLaw.device_s` for each different step; contexts that are not known are 0."""
    unknown: dict[str, tuple[Column, Column]]
    """Source -> its decode rows of unknown context, and those of them beside chunks; 0 in other steps."""
    states: dict[str, NDArray[np.bool_]]
    step_of: NDArray[np.intp]
    """Sample -> its step."""

    @classmethod
    def of(cls, samples: Samples) -> _Columns:
        filled = fill(samples, {})
        columns = [
            filled.padded_tokens,
            filled.num_seqs,
            filled.decode_context,
            filled.mixed_context,
            filled.chunk_pairs,
            (samples.graph != FULL_GRAPH).astype(float),
            np.searchsorted(np.sort(STATES), samples.state).astype(float),
        ]
        sources = latent_sources(samples)
        for source in sources:
            own = np.isnan(samples.decode_context) & (samples.source == source)
            rows = np.where(own, samples.num_decodes, 0.0)
            columns += [rows, np.where(samples.chunk_tokens > 0, rows, 0.0)]
        different, step_of = np.unique(np.stack(columns), axis=1, return_inverse=True)
        tokens, seqs, context, mixed, pairs, eager, state, *rest = different
        unknown = {CONTEXT_OF + source: (rest[2 * i], rest[2 * i + 1]) for i, source in enumerate(sources)}
        states = {name: state == i for i, name in enumerate(sorted(STATES)) if (state == i).any()}
        return cls((tokens, seqs, context, mixed, pairs, eager), unknown, states, step_of.ravel())

    def seconds(self, values: Mapping[str, float]) -> Column:
        law = _law(values)
        tokens, seqs, context, mixed, pairs, eager = self.known
        for name, (rows, beside_chunks) in self.unknown.items():
            context, mixed = context + values[name] * rows, mixed + values[name] * beside_chunks
        seconds = np.empty(tokens.size)
        for state, own in self.states.items():
            ratio = values.get(_CLOCK + state, 1.0)
            clocked = replace(law, token_s=law.token_s / ratio, pair_s=law.pair_s / ratio)
            if state == KERNELS:  # no sampler, no norms, nothing between the kernels
                clocked = replace(clocked, step_s=0.0, eager_s=0.0, eager_row_s=0.0)
            seconds[own] = clocked.device_s(*(column[own] for column in (tokens, seqs, context, mixed, pairs, eager)))
        return seconds[self.step_of]


def _law(values: Mapping[str, float], graphs: Graphs = NO_GRAPHS) -> FusedLaw:
    coefficients = {name: values[name] for name in UNITS}
    return FusedLaw(**coefficients, graphs=graphs)


def untold(samples: Samples) -> list[str]:
    """Coefficients that no sample says anything about."""
    filled = fill(samples, {})
    eager = filled.graph != FULL_GRAPH
    told = {
        "step_s": (samples.state != KERNELS).any(),
        "context_s": (filled.decode_context > 0).any(),
        "mixed_context_s": (filled.mixed_context > 0).any(),
        "pair_s": (filled.chunk_pairs > 0).any(),
        "tile_waste": (filled.padded_tokens > 128).any(),
        "eager_s": eager.any() and not eager.all(),
        "eager_row_s": (eager & (filled.num_decodes > 0)).any() and not eager.all(),
    }
    if not latent_sources(samples) and np.isnan(samples.decode_context).any():
        told["context_s"] = told["mixed_context_s"] = np.False_
    return [name for name, is_told in told.items() if not is_told]


def _require_shapes(samples: Samples, unknowns: int) -> None:
    filled = fill(samples, {})
    totals = np.stack([filled.num_tokens, filled.num_seqs, filled.decode_context, filled.chunk_pairs])
    shapes = np.unique(totals, axis=1).shape[1]
    if shapes < unknowns:
        raise InputError(
            field="samples", value=shapes, expected=f"at least {counted(unknowns, 'different step shape')}"
        )


# -- the search --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Search:
    """One least-squares problem: unknowns by name, each in its own unit, and where the search ended."""

    columns: _Columns
    measured: Column
    names: list[str]
    given: Mapping[str, float]
    scale: Column
    weights: Column
    x: Column
    cost: float = np.inf
    free: NDArray[np.bool_] | None = None

    def named(self, x: Column) -> dict[str, float]:
        return {**self.given, **{n: float(v) for n, v in zip(self.names, x * self.scale, strict=True)}}

    def errors(self, x: Column) -> Column:
        return self.columns.seconds(self.named(x)) / self.measured - 1.0

    def with_priors(self, x: Column) -> Column:
        """Errors, and at the end how far what samples may not tell is from where it usually is."""
        values = self.named(x)
        return np.append(self.errors(x), [(values[n] - at) / width for n, (at, width) in self.priors().items()])

    def priors(self) -> dict[str, tuple[float, float]]:
        return {name: prior for name, prior in _PRIOR.items() if name in self.names}

    def bounds(self) -> tuple[Column, Column]:
        low, high = np.array([BOUNDS.get(name, (0.0, np.inf)) for name in self.names]).T / self.scale
        return low, high

    def solved(self) -> _Search:
        low, high = self.bounds()
        weights = np.append(self.weights, np.full(len(self.priors()), _PRIOR_WEIGHT))
        loss = weighted_soft_l1(weights)
        start = np.clip(self.x, low, high)
        found = least_squares(self.with_priors, start, bounds=(low, high), loss=loss, f_scale=_OUTLIER)
        at_bound = np.where(found.active_mask < 0, low, np.where(found.active_mask > 0, high, found.x))
        return replace(self, x=at_bound, cost=float(found.cost), free=found.active_mask == 0)

    def jacobian(self) -> Column:
        low, high = self.bounds()
        inside = np.clip(self.x, low, high - 2e-6)  # the difference must not step over the edge
        derivatives: Column = approx_fprime(inside, self.errors, 1e-6)
        return derivatives

    def spread(self) -> Column:
        """Standard errors; 0 where a bound holds the value."""
        free = np.ones(self.x.size, bool) if self.free is None else self.free
        spread = np.zeros(self.x.size)
        spread[free] = sandwich(self.jacobian()[:, free], self.errors(self.x), self.weights, _OUTLIER)
        return spread * self.scale

    def confounded(self) -> tuple[tuple[str, ...], ...]:
        """Names that move together without any sample noticing: the directions of almost no curvature.

        Those at a bound are looked at too: a 0 may only say that another coefficient took it all.
        """
        pull = self.weights / np.sqrt(1.0 + (self.errors(self.x) / _OUTLIER) ** 2)
        jacobian = self.jacobian() * np.sqrt(pull)[:, None]
        norms = np.linalg.norm(jacobian, axis=0)
        seen = norms > 1e-4 * norms.max(initial=0.0)
        names = np.array(self.names)[seen]
        _, sizes, directions = np.linalg.svd(jacobian[:, seen] / norms[seen], full_matrices=False)
        flat = directions[sizes < _FLAT * sizes.max(initial=0.0)]
        groups = [names[np.abs(direction) > 0.3].tolist() for direction in flat]
        return tuple(tuple(group) for group in groups if len(group) > 1)


_FLAT = 5e-3
"""A direction with less of the steepest one's curvature (as a square root) cannot be told from noise."""


def _minimize(
    samples: Samples, names: list[str], given: Mapping[str, float], near: Mapping[str, float] | None
) -> _Search:
    """The best of three searches, from a soft, a usual and a hard roofline: one alone can end in a side valley.

    They run on a part of each regime; only the best one goes on with all samples.
    """
    start = _start(samples, names)
    scale = np.array([start[name] for name in names])

    def search(part: Samples, x: Column) -> _Search:
        return _Search(_Columns.of(part), part.seconds, names, given, scale, _weights(part), x)

    if near is not None:
        return search(samples, np.array([near.get(name, start[name]) for name in names]) / scale).solved()
    few = thinned(samples, _FEW)
    is_sharpness = np.array([name == "sharpness" for name in names])
    starts = [np.where(is_sharpness, p / scale, 1.0) for p in ((2.0, 4.0, 8.0) if is_sharpness.any() else (1.0,))]
    best = min((search(few, x).solved() for x in starts), key=lambda found: found.cost)
    return best if few is samples else search(samples, best.x).solved()


_FEW = 1000


def thinned(samples: Samples, most: int) -> Samples:
    """At most so many rows of each regime."""
    rows = thinned_rows(samples, most)
    return samples if rows.size == len(samples) else samples.where(rows)


def thinned_rows(samples: Samples, most: int) -> NDArray[np.intp]:
    """Positions of at most so many rows of each regime, drawn without favour; the same ones every time."""
    _, regime = np.unique(samples.regime, return_inverse=True)
    order = np.random.default_rng(0).permutation(len(samples))
    kept = [order[regime[order] == number][:most] for number in range(int(regime.max()) + 1)]
    return np.sort(np.concatenate(kept))


def _weights(samples: Samples) -> Column:
    """Every regime has the same say, and within it a step whose repeats scatter has less."""
    scatter = np.nan_to_num(samples.spread)
    weights: Column = samples.balanced_weights() / (1.0 + (scatter / _OUTLIER) ** 2)
    return weights


def _start(samples: Samples, names: Sequence[str]) -> dict[str, float]:
    """Orders of magnitude, and units for the search: a plain sum of the terms, fitted as a linear problem."""
    each = _Columns.of(samples)
    tokens, seqs, context, mixed, pairs, eager = (column[each.step_of] for column in each.known)
    columns = {
        "step_s": np.ones(len(samples)), "row_s": seqs, "token_s": tokens, "context_s": context,
        "mixed_context_s": mixed, "pair_s": pairs, "eager_s": eager, "elementwise_s": tokens,
        "eager_row_s": eager * seqs,
    }  # fmt: skip
    weights = np.sqrt(_weights(samples))
    linear = ("step_s", "token_s", "context_s", "pair_s")
    matrix = np.stack([columns[name] for name in linear], axis=1) / samples.seconds[:, None]
    solution = dict(zip(linear, nnls(matrix * weights[:, None], weights)[0], strict=True))
    least = {
        name: 0.03 * float(np.median(samples.seconds[column > 0] / column[column > 0])) if (column > 0).any() else 1.0
        for name, column in columns.items()
    }
    start = {name: max(solution.get(name, 0.0), floor) for name, floor in least.items()}
    whole = start["step_s"]
    others = {"weight_read_s": 0.8 * whole, "step_s": 0.2 * whole, "batch_slowdown": 0.02, "sharpness": 3.0}
    start |= {**others, "tile_waste": 0.5}
    return {name: start.get(name, 1000.0 if name.startswith(CONTEXT_OF) else 1.0) for name in names}


def summarize(samples: Samples, errors: Column) -> dict[str, dict[str, float]]:
    """Relative errors (predicted / measured - 1) by regime."""
    return {str(regime): summary(errors[samples.regime == regime]) for regime in np.unique(samples.regime)}


def summary(errors: Column) -> dict[str, float]:
    """How many; mean, median and 90th percentile of (absolute) relative errors."""
    size = np.abs(errors)
    return {
        "samples": int(errors.size),
        "mean": round(float(errors.mean()), 4),
        "median_abs": round(float(np.median(size)), 4),
        "p90_abs": round(float(np.quantile(size, 0.9)), 4),
    }
