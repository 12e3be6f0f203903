"""Length laws against their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from workloads import TraceError
from workloads.lengths import ByPrompt, Fixed, LogNormal, Quantiles, UniformRange

N = 100_000
EVEN = (np.arange(N) + 0.5) / N
"""As uniform as it gets: a law's statistics on it are exact up to 1 / N."""


def test_fixed_is_fixed():
    assert set(Fixed(128).tokens(EVEN).tolist()) == {128}


@pytest.mark.parametrize(
    ("length", "ratio", "low", "high"),
    [
        (1000, 0.3, 700, 1300),
        (101, 0.5, 50, 152),
        (3, 0.9, 1, 6),
        (1000, 0.9, 99, 1900),
        (128, 0.0, 128, 128),
        (1, 0.5, 1, 2),
        (986, 0.05, 936, 1036),
    ],
)
def test_range_ratio_has_vllms_bounds_each_integer_as_likely(length, ratio, low, high):
    """Bounds as drawn by vLLM 0.32's get_sampling_params for outputs, floating-point floor of 1000 * 0.1 included."""
    law = UniformRange(length, ratio)
    drawn = law.tokens(EVEN)
    assert law.bounds == (drawn.min(), drawn.max()) == (low, high)
    share = np.bincount(drawn)[low:] / N * (high - low + 1)
    assert share == pytest.approx(np.ones(high - low + 1), abs=2 * (high - low + 1) / N)


def test_lognormal_has_its_median_its_spread_and_the_mean_that_they_imply():
    sigma = 0.8
    drawn = LogNormal(2000.0, sigma).tokens(EVEN)
    assert np.median(drawn) == pytest.approx(2000, abs=1)
    # The tail beyond the last draw is missing from the mean: far below 1 %.
    assert drawn.mean() == pytest.approx(2000 * math.exp(sigma**2 / 2), rel=0.005)
    assert np.log(drawn).std() == pytest.approx(sigma, rel=0.005)


def test_lognormal_is_kept_within_its_limits():
    drawn = LogNormal(2.0, 3.0, longest=50).tokens(EVEN)
    assert (drawn.min(), drawn.max()) == (1, 50)


def test_quantiles_are_met_where_the_table_has_them():
    law = Quantiles((0.0, 0.1, 0.5, 0.9, 1.0), (2, 100, 1000, 1100, 9000))
    drawn = law.tokens(EVEN)
    assert np.quantile(drawn, [0.1, 0.5, 0.9]) == pytest.approx([100, 1000, 1100], rel=0.01)
    assert drawn.min() >= 2
    assert drawn.max() <= 9000


def test_a_table_of_a_known_law_gives_that_law_back():
    law = stats.expon(scale=500.0)
    q = np.linspace(0.0, 0.999, 200)
    table = Quantiles((*q.tolist(), 1.0), (*law.ppf(q).tolist(), float(law.ppf(0.9999))))
    drawn = table.tokens(EVEN)
    assert drawn.mean() == pytest.approx(500, rel=0.02)
    assert stats.kstest(drawn, law.cdf).statistic < 0.01


def test_by_prompt_asks_the_law_of_the_prompts_kind():
    law = ByPrompt((10, 100), (Fixed(1), Fixed(2), Fixed(3)))
    prompts = np.array([1, 10, 11, 100, 101, 5000])
    assert law.tokens_after(prompts, np.full(6, 0.5)).tolist() == [1, 1, 2, 2, 3, 3]


@given(
    law=st.one_of(
        st.builds(Fixed, st.integers(1, 10**6)),
        st.builds(UniformRange, st.integers(1, 10**6), st.floats(0.0, 0.99)),
        st.builds(LogNormal, st.floats(1.0, 1e5), st.floats(0.0, 4.0)),
        st.lists(st.integers(1, 10**6), min_size=2, max_size=9).map(
            lambda values: Quantiles(tuple(np.linspace(0.0, 1.0, len(values)).tolist()), tuple(sorted(values)))
        ),
    ),
    u=st.lists(st.floats(2.0**-54, 1.0, exclude_max=True), min_size=2, max_size=20).map(sorted),
)
def test_every_law_rises_with_its_draw_and_stays_above_zero(law, u):
    drawn = law.tokens(np.array(u))
    assert drawn.dtype == np.int64
    assert drawn.min() >= 1
    assert np.all(np.diff(drawn) >= 0)


@pytest.mark.parametrize(
    ("field", "build"),
    [
        ("length", lambda: Fixed(0)),
        ("length", lambda: Fixed(10**9 + 1)),
        ("length", lambda: UniformRange(0, 0.5)),
        ("range_ratio", lambda: UniformRange(10, 1.0)),
        ("range_ratio", lambda: UniformRange(10, -0.1)),
        ("range_ratio", lambda: UniformRange(10, math.nan)),
        ("median", lambda: LogNormal(0.0, 1.0)),
        ("sigma", lambda: LogNormal(10.0, -1.0)),
        ("sigma", lambda: LogNormal(10.0, 1000.0)),
        ("longest", lambda: LogNormal(10.0, 1.0, longest=0)),
        ("q", lambda: Quantiles((0.0, 0.5), (1, 2))),
        ("q", lambda: Quantiles((0.1, 1.0), (1, 2))),
        ("q", lambda: Quantiles((0.0, 0.5, 0.5, 1.0), (1, 2, 3, 4))),
        ("q", lambda: Quantiles((0.0, 1.0), (1, 2, 3))),
        ("q", lambda: Quantiles((0.0, math.nan, 1.0), (1, 2, 3))),
        ("length", lambda: Quantiles((0.0, 1.0), (2, 1))),
        ("length", lambda: Quantiles((0.0, 1.0), (-2, 1))),
        ("length", lambda: Quantiles((0.0, 1.0), (0, 0))),
        ("length", lambda: Quantiles((0.0, 1.0), (1, math.inf))),
        ("upto", lambda: ByPrompt((10,), (Fixed(1),))),
        ("upto", lambda: ByPrompt((10, 10), (Fixed(1), Fixed(1), Fixed(1)))),
    ],
)
def test_impossible_laws_are_refused_by_name(field, build):
    with pytest.raises(TraceError, match=f"^{field}: got .*, expected "):
        build()
