"""Counts of gaps against the gaps themselves."""

from __future__ import annotations

import numpy as np
import pytest

from sim.report.gap_totals import QUANTILE_ERROR, GapTotals, TokensPerSecond

SHARES = (0.0, 0.001, 0.1, 0.5, 0.9, 0.99, 0.99999, 1.0)


def totals_of(*blocks: tuple[np.ndarray, np.ndarray]) -> GapTotals:
    totals = GapTotals()
    for gaps_s, times in blocks:
        totals.add(np.asarray(gaps_s, dtype=np.float64), np.asarray(times, dtype=np.int64))
    return totals


@pytest.mark.parametrize("spread", [0.001, 1.0, 2.0])
def test_quantiles_are_within_the_bound_and_the_rest_is_exact(spread) -> None:
    """Numpy's own, of every gap as often as it came; from 10 us to a minute with the widest spread."""
    rng = np.random.default_rng(7)
    gaps_s, times = 0.02 * np.exp(spread * rng.standard_normal(20_000)), rng.integers(0, 40, 20_000)
    whole = np.repeat(gaps_s, times)
    totals = totals_of(*zip(np.array_split(gaps_s, 9), np.array_split(times, 9), strict=True))
    assert len(totals) == len(whole)
    assert totals.mean_s() == pytest.approx(whole.mean(), rel=1e-12)
    assert totals.std_s() == pytest.approx(whole.std(), rel=1e-12)
    assert totals.quantiles_s(SHARES) == pytest.approx(np.quantile(whole, SHARES), rel=QUANTILE_ERROR)


def test_equal_gaps_do_not_differ() -> None:
    totals = totals_of(([0.1, 0.1, 0.1], [3, 5, 1]), ([0.1], [10**9]))
    assert (totals.mean_s(), totals.std_s()) == (0.1, 0.0)
    assert totals.quantiles_s([0.5]) == pytest.approx([0.1], rel=QUANTILE_ERROR)


def test_nothing_is_zero() -> None:
    totals = totals_of(([0.1, 0.2], [0, 0]), ([], []))
    assert [len(totals), totals.mean_s(), totals.std_s(), *totals.quantiles_s([0.5, 1.0])] == [0, 0.0, 0.0, 0.0, 0.0]


def test_what_no_bin_is_for_is_in_the_nearest() -> None:
    """A gap of a nanosecond, and one of a year."""
    low, high = totals_of(([1e-9, 3e7], [1, 1])).quantiles_s([0.0, 1.0])
    assert low == pytest.approx(2.0**-20, rel=2 * QUANTILE_ERROR)
    assert high == pytest.approx(2.0**20, rel=2 * QUANTILE_ERROR)


def test_the_fullest_second_may_lie_across_blocks() -> None:
    """From 10.5 s on, seconds hold 3, 2 + 4, 5 tokens."""
    tokens = TokensPerSecond(10.5)
    assert tokens.most() == 0
    tokens.add(np.array([10.6, 11.5]), np.array([3, 2]))
    tokens.add(np.array([12.4, 12.5]), np.array([4, 5]))
    assert tokens.most() == 6
    tokens.add(np.array([12.6]), np.array([2]))
    assert tokens.most() == 7
