"""Held-out errors: what is left out is whole blocks of shapes, and what they are worth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calibrate.cross_validate import choose_terms, cross_validate, fold_of_blocks, shape_blocks
from calibrate.samples import Samples, TimedStep


def test_repeats_of_a_shape_are_one_block() -> None:
    rows = [TimedStep.of([], [600] * n, 0.01) for n in (1, 4, 4, 5, 100)] + [TimedStep.of([(100, 0)], [], 0.01)]
    blocks = shape_blocks(Samples.of_steps(rows))
    assert blocks[1] == blocks[2] == blocks[3], "the same, or nearly"
    assert len(set(blocks.tolist())) == 4


def test_no_block_is_in_two_folds_and_every_fold_has_every_kind(h200_samples) -> None:
    samples = h200_samples(600)
    blocks = shape_blocks(samples)
    fold = fold_of_blocks(samples, blocks, 5)[blocks]
    for number in range(5):
        assert not set(blocks[fold == number]) & set(blocks[fold != number])
        assert set(samples.regime[fold == number]) == {"decode", "mixed", "prompt"}


def test_held_out_errors_are_the_noise_where_the_law_is_right(h200_samples) -> None:
    """2 % of noise: half of the errors within 1.35 %, hardly more for what was not seen."""
    held = cross_validate(h200_samples(), terms=("tile_waste", "eager_s"))
    assert np.isfinite(held.errors).all()
    assert np.median(np.abs(held.errors)) == pytest.approx(0.0135, abs=0.004)
    assert held.document()["samples"] == 240
    assert set(held.regimes) == {"decode", "mixed", "prompt"}


def test_memorizing_does_not_help(h200_samples) -> None:
    """Shapes whose time no law knows: random rows would make repeats look foretold, blocks do not."""
    samples = h200_samples(120, noise=0.0)
    luck = np.exp(np.random.default_rng(3).normal(0, 0.3, len(samples)))
    repeated = replace(samples, seconds=samples.seconds * luck).where(np.tile(np.arange(len(samples)), 5))
    held = cross_validate(repeated, terms=())
    assert np.median(np.abs(held.errors)) > 0.15


def test_terms_that_help_are_kept(h200_samples) -> None:
    """The samples were made with tiles and eager steps, and without a cost per token beside the GEMMs."""
    kept, scores = choose_terms(h200_samples(180, noise=0.005))
    assert set(kept) == {"eager_s", "tile_waste"}
    assert scores[" + ".join(kept)] < 0.5 * scores["none"]


def test_too_few_blocks_to_hold_any_out() -> None:
    samples = Samples.of_steps([TimedStep.of([], [1000] * 8, 0.011)] * 20)
    held = cross_validate(samples, terms=())
    assert held.document() == {}
    assert held.score == float("inf")
