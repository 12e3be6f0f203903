"""Arrival processes against their theory, and against what `vllm bench serve` does."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from workloads import TraceError
from workloads.arrivals import Arrivals, GapQuantiles, gaps

N = 20_000


def rng(seed=1):
    return np.random.default_rng(seed)


def gaps_of(law, n=N):
    return np.diff(law.times_s(n, rng()), prepend=0.0)


@pytest.mark.parametrize("burstiness", [0.25, 0.8353, 1.0, 4.0])
def test_gaps_are_gamma_with_shape_burstiness_and_the_rate_as_mean(burstiness):
    """vLLM: gamma(shape=burstiness, scale=1 / (rate * burstiness)). KS at 0.1 %, the seed is fixed."""
    rate = 5.0
    # Not from the times: rounded to the microsecond, many of the shortest gaps of a bursty process are equal.
    assert stats.kstest(gaps(burstiness, N, rng()), stats.gamma(burstiness, scale=1.0 / burstiness).cdf).pvalue > 1e-3
    gaps_s = gaps_of(Arrivals(rate, burstiness=burstiness))
    assert gaps_s == pytest.approx(gaps(burstiness, N, rng()) / rate, abs=2e-6)
    assert gaps_s.mean() == pytest.approx(1.0 / rate, abs=4.0 / rate / math.sqrt(burstiness * N))
    variation = gaps_s.std() / gaps_s.mean()
    # Standard error of a coefficient of variation, from the law's kurtosis: below 2 % for all shapes here.
    assert variation == pytest.approx(burstiness**-0.5, rel=0.06)


def test_poisson_counts_have_the_variance_of_their_mean():
    counts = np.bincount(Arrivals(5.0).times_s(N, rng()).astype(int))
    seconds = len(counts)
    # Var of the dispersion index is about 2 / seconds.
    assert counts.var() / counts.mean() == pytest.approx(1.0, abs=4 * math.sqrt(2 / seconds))


def test_constant_arrivals_are_evenly_spaced_and_come_after_a_gap():
    assert Arrivals(4.0, burstiness=math.inf).times_s(4, rng()).tolist() == [0.25, 0.5, 0.75, 1.0]


def test_all_come_at_once_where_no_rate_is_said():
    assert Arrivals().times_s(5, rng()).tolist() == [0.0] * 5


@pytest.mark.parametrize(
    ("strategy", "end", "rates"),
    [("linear", 3.0, [1, 1.5, 2, 2.5, 3]), ("exponential", 16.0, [1, 2, 4, 8, 16])],
)
def test_a_ramp_has_vllms_rate_at_each_request(strategy, end, rates):
    """The rates are what vLLM 0.32's _get_current_request_rate returns for five requests."""
    law = Arrivals(
        burstiness=math.inf, ramp_up_strategy=strategy, ramp_up_start_rps=1.0, ramp_up_end_rps=end, rescale=True
    )
    assert law.times_s(5, rng()) == pytest.approx(np.cumsum(1 / np.array(rates)), abs=1e-6)


def test_a_ramp_of_one_request_comes_at_its_start_rate():
    law = Arrivals(burstiness=math.inf, ramp_up_strategy="linear", ramp_up_start_rps=2.0, ramp_up_end_rps=4.0)
    assert law.times_s(1, rng()).tolist() == [0.5]


def test_a_bursty_ramp_takes_the_expected_time():
    law = Arrivals(burstiness=2.0, ramp_up_strategy="linear", ramp_up_start_rps=1.0, ramp_up_end_rps=9.0)
    rates = 1.0 + 8.0 * np.arange(N) / (N - 1)
    error = 4 * math.sqrt((1 / rates**2).sum() / 2.0)
    assert law.times_s(N, rng())[-1] == pytest.approx((1 / rates).sum(), abs=error)


def test_rescaling_ends_where_vllm_ends():
    """At n / rate exactly, with the same shape of gaps."""
    free, scaled = (Arrivals(5.0, burstiness=0.5, rescale=rescale).times_s(1000, rng()) for rescale in (False, True))
    assert scaled[-1] == pytest.approx(200.0, abs=1e-6)
    assert scaled == pytest.approx(free * 200.0 / free[-1], abs=2e-6)
    assert free[-1] != pytest.approx(200.0, abs=0.1)


def test_quantile_gaps_have_the_table_and_the_rate():
    law = GapQuantiles(q=(0.0, 0.5, 0.9, 1.0), gap_s=(0.0, 1.0, 2.0, 20.0), rate_per_s=0.4)
    gaps_s = gaps_of(law)
    # The table's own mean: 0.5 * 0.5 + 0.4 * 1.5 + 0.1 * 11 = 1.95 s, so it is stretched by 2.5 / 1.95.
    stretch = 2.5 / 1.95
    for q, gap_s in ((0.25, 0.5), (0.5, 1.0), (0.9, 2.0), (0.95, 11.0)):
        assert (gaps_s <= gap_s * stretch).mean() == pytest.approx(q, abs=4 * math.sqrt(q * (1 - q) / N))
    assert gaps_s.max() <= 20 * stretch + 1e-6
    assert gaps_s.mean() == pytest.approx(2.5, abs=4 * gaps_s.std() / math.sqrt(N))


@pytest.mark.parametrize(
    "law", [Arrivals(3.0), Arrivals(3.0, burstiness=0.1), GapQuantiles((0.0, 1.0), (0.0, 1.0), 1.0)]
)
def test_fewer_requests_are_the_first_of_more(law):
    assert law.times_s(100, rng()).tolist() == law.times_s(1000, rng()).tolist()[:100]


@pytest.mark.parametrize("law", [Arrivals(1e4), Arrivals(7.0, burstiness=0.01), Arrivals()])
def test_times_never_fall(law):
    assert np.all(np.diff(law.times_s(5000, rng())) >= 0.0)


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("request_rate", {"request_rate": 0.0}),
        ("request_rate", {"request_rate": -1.0}),
        ("request_rate", {"request_rate": math.nan}),
        ("burstiness", {"burstiness": 0.0}),
        ("burstiness", {"burstiness": math.nan}),
        ("ramp_up_strategy", {"ramp_up_strategy": "cubic", "ramp_up_start_rps": 1.0, "ramp_up_end_rps": 2.0}),
        ("ramp_up_strategy", {"ramp_up_start_rps": 1.0, "ramp_up_end_rps": 2.0}),
        ("ramp_up_start_rps", {"ramp_up_strategy": "linear", "ramp_up_end_rps": 2.0}),
        ("ramp_up_start_rps", {"ramp_up_strategy": "linear", "ramp_up_start_rps": 0.0, "ramp_up_end_rps": 2.0}),
        ("ramp_up_end_rps", {"ramp_up_strategy": "exponential", "ramp_up_start_rps": 1.0, "ramp_up_end_rps": math.inf}),
    ],
)
def test_impossible_processes_are_refused_by_name(field, options):
    with pytest.raises(TraceError, match=f"^{field}: got .*, expected "):
        Arrivals(**options)
