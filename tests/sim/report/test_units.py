"""Numbers as a person reads them: one spelling, wherever they stand."""

from __future__ import annotations

import pytest

from sim.report.units import percent, percent_tenths, signed_percent


@pytest.mark.parametrize(
    ("share", "told"),
    [(0.0, "0 %"), (1e-7, "< 0.01 %"), (0.0072, "0.72 %"), (0.0996, "10 %"), (0.214, "21 %"), (1.0, "100 %")],
)
def test_a_share_has_two_figures(share: float, told: str) -> None:
    assert percent(share) == told


def test_a_column_and_a_change_have_tenths_and_tell_what_is_not_a_number() -> None:
    assert [percent_tenths(share) for share in (0.02, 0.0786, 1.0, float("nan"))] == ["2.0 %", "7.9 %", "100.0 %", "-"]
    assert [signed_percent(share) for share in (0.039, -0.002, float("nan"))] == ["+3.9 %", "-0.2 %", "-"]
    assert [signed_percent(share) for share in (0.0, -0.0, 4e-4, -4e-4)] == ["0.0 %"] * 4
