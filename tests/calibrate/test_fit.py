"""The fit finds the coefficients that made the samples, and says what it cannot find."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calibrate.fit import OPTIONAL, Fit, fit, predict
from calibrate.make_profile import padded
from calibrate.samples import KERNELS, LONE, SUSTAINED, Column, Samples, TimedStep
from calibrate.unknowns import statements, with_mean_context
from sim.errors import InputError
from sim.latency import FusedLaw, Graphs, capture_sizes
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


def steps(law: FusedLaw, rng: np.random.Generator, *, noise: float, state: str = SUSTAINED, n: int = 400) -> Samples:
    """Decodes, prompts, and both together, as a server would meet them."""
    rows = []
    for _ in range(n):
        decodes = 0 if rng.random() < 0.2 else int(2 ** rng.uniform(0, 9))
        chunks = int(rng.integers(1, 5)) if decodes == 0 or rng.random() < 0.5 else 0
        chunk, before = int(2 ** rng.uniform(5, 12)), int(rng.choice([0, 0, 4000]))
        context = int(2 ** rng.uniform(5, 12))
        rows.append(TimedStep.of([(chunk, before)] * chunks, [context] * decodes, 1.0, state=state, regime=state))
    made = Samples.of_steps(rows)
    return replace(made, seconds=seconds(law, made) * np.exp(rng.normal(0, noise, len(made))))


def seconds(law: FusedLaw, made: Samples) -> Column:
    columns = made.padded_tokens, made.num_seqs, made.decode_context, made.mixed_context, made.chunk_pairs
    return law.device_s(*columns, (made.graph != "full").astype(float))


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
        steps(TRUE, rng, noise=0.0, n=150),
        steps(lone, rng, noise=0.0, state=LONE, n=100),
        steps(alone, rng, noise=0.0, state=KERNELS, n=100),
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


# Graphs

GRAPHED = replace(TRUE, eager_s=2e-3, eager_row_s=5e-6, elementwise_s=4e-6, graphs=Graphs(capture_sizes(8192, 512)))


def graphed(rng: np.random.Generator, *, noise: float) -> Samples:
    """Decodes as graphs, some with a little and some with a lot of padding; chunks without; a few decodes too many."""
    made = padded(steps(GRAPHED, rng, noise=0.0), GRAPHED.graphs)
    return replace(made, seconds=seconds(GRAPHED, made) * np.exp(rng.normal(0, noise, len(made))))


def test_the_staircase_and_what_a_step_without_graph_costs() -> None:
    samples = graphed(np.random.default_rng(6), noise=0.0)
    assert ((samples.padded_tokens > samples.num_tokens) & (samples.graph == "full")).sum() > 20
    found = fit(samples, terms=OPTIONAL, graphs=GRAPHED.graphs)
    for name in UNITS:
        assert getattr(found.law, name) == pytest.approx(getattr(GRAPHED, name), rel=5e-3, abs=1e-12), name
    assert found.law.graphs == GRAPHED.graphs


def test_a_fit_that_knows_no_graphs_is_worse() -> None:
    """The staircase is in the samples: a straight line through it errs."""
    samples = graphed(np.random.default_rng(7), noise=0.0)
    blind = replace(samples, padded_tokens=samples.num_tokens)
    decode = samples.chunk_tokens == 0
    error = np.abs(predict(blind, fit(blind, terms=OPTIONAL).values) / samples.seconds - 1)[decode]
    aware = np.abs(predict(samples, fit(samples, terms=OPTIONAL).values) / samples.seconds - 1)[decode]
    assert np.quantile(aware, 0.9) < 1e-3 < np.quantile(error, 0.9)


# The host


def test_the_host_is_told_apart() -> None:
    """1.5 ms per step and 20 us per sequence, with a scatter of 20 % and pauses ten times as long."""
    rng = np.random.default_rng(8)
    samples = steps(TRUE, rng, noise=0.0)
    host = (1.5e-3 + 2e-5 * samples.num_seqs) * np.exp(rng.normal(0, 0.2, len(samples)))
    host[::40] *= 10
    host[1::2] = np.nan  # half of the rows do not know
    found = fit(replace(samples, host_seconds=host))
    assert found.law.host_step_s == pytest.approx(1.5e-3, rel=0.08)
    assert found.law.host_row_s == pytest.approx(2e-5, rel=0.08)
    assert 0 < found.standard_errors["host_step_s"] < 1e-4
    assert_found(replace(found, law=replace(found.law, host_step_s=0.0, host_row_s=0.0)), rel=1e-3)


def test_a_host_seen_with_one_batch_only() -> None:
    samples = steps(TRUE, np.random.default_rng(9), noise=0.0)
    host = np.where(samples.num_seqs == samples.num_seqs[0], 2e-3, np.nan)
    law = fit(replace(samples, host_seconds=host)).law
    assert (law.host_step_s, law.host_row_s) == (pytest.approx(2e-3), 0.0)


# What samples do not tell


def logged(samples: Samples) -> Samples:
    """The same steps as an iteration log has them: totals only."""
    unknown = np.full(len(samples), np.nan)
    context = np.where(samples.num_decodes > 0, unknown, 0.0)
    pairs = np.where(samples.num_chunks > 0, unknown, 0.0)
    source = np.full(len(samples), "iteration log")
    return replace(samples, decode_context=context, chunk_pairs=pairs, source=source)


def single(rng: np.random.Generator, context: int, n: int = 300) -> Samples:
    """Steps of at most one chunk, all decodes with one context."""
    rows = []
    for _ in range(n):
        decodes, chunk = int(2 ** rng.uniform(0, 8)), int(2 ** rng.uniform(5, 12))
        rows.append(TimedStep.of([(chunk, 0)] * int(rng.integers(0, 2)), [context] * decodes, 1.0))
    made = Samples.of_steps(rows)
    return replace(made, seconds=seconds(TRUE, made))


def test_a_log_beside_samples_that_know_contexts() -> None:
    """Others fix what context costs, so the log's mean context is found: 700 tokens."""
    rng = np.random.default_rng(10)
    samples = Samples.concat([steps(TRUE, rng, noise=0.0), logged(single(rng, 700))])
    found = fit(samples)
    assert found.values["mean context, iteration log"] == pytest.approx(700, rel=1e-2)
    assert_found(found, rel=5e-3)
    assert "fitted as one number per source" in statements(samples)["contexts"]


def test_a_log_alone() -> None:
    """Context costs nothing that could be told from a sequence's cost, and the fit says so."""
    samples = logged(single(np.random.default_rng(11), 700))
    found = fit(samples)
    assert (found.law.context_s, found.law.mixed_context_s) == (0.0, 0.0)
    assert found.law.row_s == pytest.approx(TRUE.row_s + 700 * TRUE.context_s, rel=0.2)
    assert np.median(np.abs(predict(samples, found.values) / samples.seconds - 1)) < 0.02
    assert "context_s and mixed_context_s cannot be found" in statements(samples)["contexts"]
    assert "equal chunks without context were assumed" in statements(samples)["prompt attention"]
    assert "no step tells the host's time apart" in statements(samples)["host"]


def test_a_mean_context_that_somebody_knows() -> None:
    samples = with_mean_context(logged(single(np.random.default_rng(12), 700)), 700)
    found = fit(samples, fixed={"context_s": TRUE.context_s, "mixed_context_s": TRUE.mixed_context_s})
    assert found.law.row_s == pytest.approx(TRUE.row_s, rel=0.02)
    confounded = fit(samples).confounded
    assert any({"row_s", "context_s"} <= set(group) for group in confounded), confounded


def test_decodes_alone_say_nothing_of_prompts() -> None:
    made = steps(TRUE, np.random.default_rng(13), noise=0.0)
    samples = made.where(made.chunk_tokens == 0)
    law = fit(samples, terms=()).law
    assert (law.pair_s, law.mixed_context_s) == (0.0, 0.0)
    assert {"prompts", "mixed steps"} <= set(statements(samples))


def test_steps_whose_repeats_scatter_have_less_say() -> None:
    """A third of the rows is 30 % too slow and says that its repeats scatter as much."""
    samples = steps(TRUE, np.random.default_rng(14), noise=0.0)
    bad = np.arange(len(samples)) % 3 == 0
    spread, slow = np.where(bad, 0.5, 0.002), np.where(bad, 1.3, 1.0)
    found = fit(replace(samples, seconds=samples.seconds * slow, spread=spread))
    error = np.abs(predict(samples, found.values) / samples.seconds - 1)
    assert np.median(error) < 0.01


def test_many_rows_are_fitted_as_few_are() -> None:
    """Ninety repeats of each step, most of them left out of the search's first part."""
    samples = steps(TRUE, np.random.default_rng(15), noise=0.0)
    many = samples.where(np.tile(np.arange(100), 90))
    assert_found(fit(many), rel=2e-2)


def test_what_one_prompt_length_and_one_context_cannot_tell() -> None:
    """Steps of a server with equal requests: a prompt's arithmetic and attention, a row's own and its context's cost
    are one number each. The fit may put all of it on one coefficient, and says so."""
    rng = np.random.default_rng(16)
    rows = [
        TimedStep.of([(1000, 0)] * int(rng.integers(0, 3)), [1050] * int(rng.integers(1, 40)), 1.0) for _ in range(200)
    ]
    made = Samples.of_steps(rows)
    confounded = fit(replace(made, seconds=seconds(TRUE, made)), terms=()).confounded
    assert any({"token_s", "pair_s"} <= set(group) for group in confounded), confounded
    assert any({"row_s", "context_s"} <= set(group) for group in confounded), confounded
    assert fit(steps(TRUE, rng, noise=0.01)).confounded == ()
