"""How well laws foretell steps they were not fitted to, and which optional coefficients that speaks for.

Not for the fit. The one idea: rows of one shape are repeats, so leaving out random rows shows nothing; whole blocks of
shapes are left out, and each is foretold from the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from calibrate.fit import OPTIONAL, fit, predict, summarize, thinned, untold
from calibrate.samples import kind
from calibrate.unknowns import fill
from sim.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from calibrate.samples import Column, Samples

FOLDS = 5

_MOST_ROWS = 2000
"""Of a regime, in each fit: a fold's law moves by less than its error with more."""

_FEW_ROWS = 500
"""Likewise where optional coefficients are chosen, which takes many fits."""

_WORTH = 0.01
"""Share of the held-out error that an optional coefficient has to take away."""


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Relative errors of steps foretold by laws that were fitted without their block."""

    errors: Column
    """One per sample; NaN where a fold's rest was too little to fit."""
    num_blocks: int
    num_folds: int
    regimes: dict[str, dict[str, float]]
    score: float
    """Mean absolute error, every regime with the same say, errors beyond 50 % counted as 50 %; infinite without any."""

    def document(self) -> dict[str, object]:
        """What a profile says of it."""
        size = np.abs(self.errors[np.isfinite(self.errors)])
        if not size.size:
            return {}
        return {
            "how": f"{self.num_folds} folds of {self.num_blocks} blocks of shapes",
            "samples": int(size.size),
            "median_abs": round(float(np.median(size)), 4),
            "p90_abs": round(float(np.quantile(size, 0.9)), 4),
            "regimes": self.regimes,
        }


def shape_blocks(samples: Samples) -> NDArray[np.intp]:
    """Block of every sample: steps whose totals lie within the same factor of two on every axis."""
    filled = fill(samples, {})
    totals = np.stack([filled.num_tokens, filled.num_seqs, filled.decode_context, filled.chunk_pairs])
    cells = np.floor(np.log2(totals + 1.0))
    return np.asarray(np.unique(cells, axis=1, return_inverse=True)[1]).ravel()


def fold_of_blocks(samples: Samples, blocks: NDArray[np.intp], folds: int) -> NDArray[np.intp]:
    """Fold of every block: each fold gets as many blocks of decodes, of prompts and of mixtures as the others."""
    numbers, first = np.unique(blocks, return_index=True)
    chunks, decodes = samples.num_chunks[first], samples.num_decodes[first]
    kinds = np.array([kind(int(c), int(d)) for c, d in zip(chunks, decodes, strict=True)])
    luck = np.random.default_rng(0).permutation(numbers.size)
    order = np.lexsort((luck, kinds))
    fold = np.empty(numbers.size, dtype=np.intp)
    fold[order] = np.arange(numbers.size) % folds
    return fold


def cross_validate(
    samples: Samples,
    *,
    fixed: Mapping[str, float] | None = None,
    terms: Sequence[str] = ("tile_waste",),
    folds: int = FOLDS,
    on_fold: Callable[[], None] = lambda: None,
) -> HeldOut:
    """Fit as `fit` does, without one fold of blocks at a time, and foretell those."""
    blocks = shape_blocks(samples)
    num_blocks = int(blocks.max()) + 1
    folds = min(folds, num_blocks)
    fold = fold_of_blocks(samples, blocks, folds)[blocks]
    errors = np.full(len(samples), np.nan)
    near = fit(thinned(samples, _MOST_ROWS), fixed=fixed, terms=terms).values if folds > 1 else None
    for number in range(folds if folds > 1 else 0):
        own = fold == number
        try:
            law = fit(thinned(samples.where(~own), _MOST_ROWS), fixed=fixed, terms=terms, near=near)
        except InputError:  # too few shapes are left: these rows stay without a prediction
            continue
        finally:
            on_fold()
        errors[own] = predict(samples.where(own), law.values) / samples.seconds[own] - 1.0
    known = np.isfinite(errors)
    regimes = summarize(samples.where(known), errors[known])
    return HeldOut(errors, num_blocks, folds, regimes, _score(samples.where(known), errors[known]))


def _score(samples: Samples, errors: Column) -> float:
    if not errors.size:
        return float("inf")
    size = np.minimum(np.abs(errors), 0.5)
    return float(np.mean([size[samples.regime == regime].mean() for regime in np.unique(samples.regime)]))


def choose_terms(
    samples: Samples,
    *,
    fixed: Mapping[str, float] | None = None,
    on_fold: Callable[[], None] = lambda: None,
) -> tuple[tuple[str, ...], dict[str, float]]:
    """The optional coefficients that make held-out errors smaller, and each tried law's score.

    Greedy: the one that helps most is kept, then the next, until none takes away 1 %.
    """
    few = thinned(samples, _FEW_ROWS)
    kept: tuple[str, ...] = ()
    scores = {"none": cross_validate(few, fixed=fixed, terms=(), on_fold=on_fold).score}
    best = scores["none"]
    open_terms = [term for term in OPTIONAL if term not in {*(fixed or {}), *untold(few)}]
    while open_terms:
        tried = {t: cross_validate(few, fixed=fixed, terms=(*kept, t), on_fold=on_fold).score for t in open_terms}
        scores |= {" + ".join((*kept, term)): score for term, score in tried.items()}
        term = min(tried, key=lambda name: tried[name])
        if not tried[term] < best * (1.0 - _WORTH):
            break
        kept, best = (*kept, term), tried[term]
        open_terms.remove(term)
    return kept, scores
