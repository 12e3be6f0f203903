"""Numpy's figures, without what numpy loads for them."""

from __future__ import annotations

import numpy as np
import pytest

from sim.report.quantiles import median, quantiles

SHARES = (0.0, 0.001, 0.25, 0.5, 0.9, 0.99, 1.0)


@pytest.mark.parametrize("number", [1, 2, 3, 10, 101, 20_000])
def test_to_the_last_bit_as_numpy_has_them(number) -> None:
    values = np.exp(np.random.default_rng(number).standard_normal(number))
    before = values.copy()
    assert median(values) == np.median(values)
    assert quantiles(values, SHARES) == np.quantile(values, SHARES).tolist()
    assert (values == before).all()


def test_equal_values_stay_what_they_are() -> None:
    values = np.full(8, 0.1)
    assert (median(values), quantiles(values, [0.3, 0.7])) == (0.1, [0.1, 0.1])
