"""The grid's steps: within the limits, and well conditioned however early it is cut."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrate.fit import fit
from calibrate.grid import GridLimits, grid, low_discrepancy
from calibrate.samples import Samples, TimedStep
from sim.errors import InputError
from sim.latency.profile import DEFAULT_PROFILE, Profile

H200 = GridLimits(max_tokens=16384, max_seqs=512, max_context=32768, kv_tokens=800_000, max_model_len=131072)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(16, 16384), st.integers(1, 512), st.integers(16, 32768), st.integers(64, 10**6), st.integers(64, 131072)
)
def test_no_step_leaves_the_limits(tokens, seqs, context, kv_tokens, model_len):
    limits = GridLimits(tokens, seqs, context, kv_tokens, model_len)
    for step in grid(limits, 40):
        assert 1 <= step.num_tokens <= max(tokens, 17)
        assert step.num_seqs <= max(seqs, 2)
        assert all(n + c <= model_len for n, c in step.chunks)
        assert all(1 <= c < model_len for c in step.decodes)
        assert sum(n + c for n, c in step.chunks) + step.decode_context <= 1.1 * kv_tokens


def test_steps_are_all_different():
    steps = grid(H200, 500)
    assert len(set(steps)) == len(steps) == 500


def test_limits_too_small_for_any_step_are_refused():
    with pytest.raises(InputError, match="max_tokens"):
        GridLimits(4, 8, 128, 1000, 1000)


@pytest.mark.parametrize("count", [30, 60, 120, 400])
def test_a_grid_cut_anywhere_tells_the_costs_apart(count):
    """Costs per step, token, sequence, context and pair: relative columns, scaled, are far from dependent."""
    law = Profile.load(DEFAULT_PROFILE).law
    rows = []
    for step in grid(H200, count):
        mixed = step.decode_context if step.chunks else 0
        seconds = law.device_s(step.num_tokens, step.num_seqs, step.decode_context, mixed, step.chunk_pairs)
        features = np.array([1, step.num_tokens, step.num_seqs, step.decode_context, mixed, step.chunk_pairs])
        rows.append(features / seconds)
    scaled = np.array(rows) / np.linalg.norm(rows, axis=0)
    assert np.linalg.cond(scaled) < 30


def test_a_law_is_recovered_from_the_first_60_steps():
    law = Profile.load(DEFAULT_PROFILE).law
    rng = np.random.default_rng(1)
    samples = []
    for step in grid(H200, 60):
        mixed = step.decode_context if step.chunks else 0
        seconds = law.device_s(
            float(step.num_tokens), float(step.num_seqs), float(step.decode_context), float(mixed), step.chunk_pairs
        )
        samples.append(TimedStep.of(step.chunks, step.decodes, float(seconds) * rng.normal(1, 0.005), graph="none"))
    found = fit(Samples.of_steps(samples), terms=("tile_waste",)).law
    for probe in grid(H200, 400)[200:]:
        mixed = probe.decode_context if probe.chunks else 0
        counts = (probe.num_tokens, probe.num_seqs, probe.decode_context, mixed, probe.chunk_pairs)
        totals = tuple(map(float, counts))
        assert found.device_s(*totals) == pytest.approx(law.device_s(*totals), rel=0.05)


def test_every_regime_comes_early_and_the_cheap_corners_first():
    first = grid(H200, 12)
    kinds = {(bool(step.chunks), bool(step.decodes)) for step in first}
    assert kinds == {(True, False), (False, True), (True, True)}
    assert first[0].num_tokens == 1
    assert max(step.num_tokens for step in first[:4]) < 64


def test_the_whole_range_is_reached():
    steps = grid(H200, 60)
    assert min(step.num_tokens for step in steps) == 1
    assert max(step.chunk_tokens for step in steps) == 16384
    assert max(len(step.decodes) for step in steps) == 512
    assert max(max(step.decodes, default=0) for step in steps) >= 32768
    assert max(c for step in steps for _, c in step.chunks) == 32768


def test_low_discrepancy_points_are_even():
    points = np.array([point for point, _ in zip(low_discrepancy(2), range(64), strict=False)])
    counts, _, _ = np.histogram2d(points[:, 0], points[:, 1], bins=4, range=[[0, 1], [0, 1]])
    assert counts.min() >= 2
    assert counts.max() <= 6
