"""The fit finds the coefficients that made the samples, and says what it cannot find."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calibrate.fit import Fit, fit
from calibrate.samples import KERNELS, LONE, SUSTAINED, Column, Samples, TimedStep
from sim.errors import InputError
from sim.latency import FusedLaw
from sim.latency.model import UNITS

TRUE = FusedLaw(
    step_s=8e-4,
    row_s=2e-5,
    weight_read_s=9e-3,
    batch_slowdown=0.03,
    token_s=3.5e-5,
    sharpness=4.0,
    context_s=7e-8,
    mixed_context_s=6e-8,
    pair_s=1.3e-9,
    tile_waste=0.4,
)


def steps(law: FusedLaw, rng: np.random.Generator, *, noise: float, state: str = SUSTAINED) -> Samples:
    """Decodes, prompts, and both together, as a server would meet them."""
    rows = []
    for _ in range(400):
        decodes = 0 if rng.random() < 0.2 else int(2 ** rng.uniform(0, 9))
        chunks = int(rng.integers(1, 5)) if decodes == 0 or rng.random() < 0.5 else 0
        chunk, before = int(2 ** rng.uniform(5, 12)), int(rng.choice([0, 0, 4000]))
        context = int(2 ** rng.uniform(5, 12))
        rows.append(TimedStep.of([(chunk, before)] * chunks, [context] * decodes, 1.0, state=state, regime=state))
    made = Samples.of_steps(rows)
    return replace(made, seconds=seconds(law, made) * np.exp(rng.normal(0, noise, len(made))))


def seconds(law: FusedLaw, made: Samples) -> Column:
    columns = made.padded_tokens, made.num_seqs, made.decode_context, made.mixed_context, made.chunk_pairs
    return law.device_s(*columns)


def assert_found(found: Fit, rel: float) -> None:
    for name in UNITS:
        assert getattr(found.law, name) == pytest.approx(getattr(TRUE, name), rel=rel, abs=1e-12), name


def test_exact_samples_give_the_coefficients_back() -> None:
    found = fit(steps(TRUE, np.random.default_rng(1), noise=0.0))
    assert_found(found, rel=1e-3)
    assert found.residuals["sustained"]["p90_abs"] < 1e-4
    assert found.clock_ratios == {}


def test_noise_and_outliers() -> None:
    """2 % of noise and every fiftieth sample ten times too slow (a client that stalled) move no prediction much."""
    samples = steps(TRUE, np.random.default_rng(2), noise=0.02)
    slow = np.where(np.arange(len(samples)) % 50 == 0, 10.0, 1.0)
    found = fit(replace(samples, seconds=samples.seconds * slow))
    clean = steps(found.law, np.random.default_rng(3), noise=0.0).seconds
    true = steps(TRUE, np.random.default_rng(3), noise=0.0).seconds
    assert np.abs(clean / true - 1).max() < 0.03


def test_standard_errors_cover_the_truth() -> None:
    """Over repeated noise the estimates scatter as the standard errors say (within a factor of two)."""
    fits = [fit(steps(TRUE, np.random.default_rng(seed), noise=0.02)) for seed in range(10, 18)]
    for name in ("token_s", "weight_read_s", "context_s"):
        scatter = float(np.std([getattr(found.law, name) for found in fits], ddof=1))
        claimed = float(np.mean([found.standard_errors[name] for found in fits]))
        assert 0.4 < claimed / scatter < 2.5, name


def test_clocks_of_other_states_are_told_apart() -> None:
    """Lone prompts compute 6 % faster; kernels alone 15 % faster and without a step's overhead: the law is unmoved."""
    rng = np.random.default_rng(4)
    lone = replace(TRUE, token_s=TRUE.token_s / 1.06, pair_s=TRUE.pair_s / 1.06)
    alone = replace(TRUE, token_s=TRUE.token_s / 1.15, pair_s=TRUE.pair_s / 1.15, step_s=0.0)
    parts = [
        steps(TRUE, rng, noise=0.0),
        steps(lone, rng, noise=0.0, state=LONE),
        steps(alone, rng, noise=0.0, state=KERNELS),
    ]
    found = fit(Samples.concat(parts))
    assert_found(found, rel=2e-3)
    assert found.clock_ratios == {LONE: pytest.approx(1.06, rel=1e-3), KERNELS: pytest.approx(1.15, rel=1e-3)}


def test_a_fixed_coefficient_stays() -> None:
    found = fit(steps(TRUE, np.random.default_rng(5), noise=0.01), fixed={"tile_waste": 0.0, "host_step_s": 1e-3})
    assert found.law.tile_waste == 0.0
    assert found.law.host_step_s == 1e-3


def test_too_few_shapes() -> None:
    """One shape timed a thousand times says nothing about seven coefficients."""
    samples = Samples.of_steps(TimedStep.of([], [1000] * 8, 0.011 + 1e-6 * i) for i in range(1000))
    with pytest.raises(InputError, match="samples: got 1, expected at least 7 different step shapes"):
        fit(samples)


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_impossible_times(seconds: float) -> None:
    with pytest.raises(InputError, match=r"seconds in row 1: got .*, expected a positive time"):
        Samples.of_steps([TimedStep.of([], [1000], seconds)])


def test_every_regime_weighs_the_same() -> None:
    few = Samples.of_steps([TimedStep.of([], [1000] * 8, 0.01)] * 2)
    many = Samples.of_steps([TimedStep.of([(900, 0)], [], 0.04)] * 98)
    weights = Samples.concat([few, many]).balanced_weights()
    assert weights[:2].sum() == pytest.approx(weights[2:].sum()) == pytest.approx(1.0)
