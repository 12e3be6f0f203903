"""Numbers as a person reads them."""

from __future__ import annotations

import pytest

from sim.report.words import percent


@pytest.mark.parametrize(
    ("share", "told"),
    [(0.0, "0 %"), (1e-7, "< 0.01 %"), (0.0072, "0.72 %"), (0.0996, "10 %"), (0.214, "21 %"), (1.0, "100 %")],
)
def test_a_share_has_two_figures(share: float, told: str) -> None:
    assert percent(share) == told
