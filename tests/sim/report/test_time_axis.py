"""The axis of time: what is idle for long is cut, and nothing else is moved."""

from __future__ import annotations

import numpy as np
import pytest

from sim.report.time_axis import TimeAxis
from sim.report.units import as_seconds


def axis_of(*steps: tuple[float, float]) -> TimeAxis:
    starts_s, ends_s = np.array(steps, dtype=float).reshape(-1, 2).T
    return TimeAxis.of_steps(starts_s, ends_s)


def test_without_long_pauses_places_are_seconds() -> None:
    axis = axis_of((0, 1), (2, 3), (3, 4))
    assert axis.cuts == ()
    assert axis.place(np.array([0, 1.5, 4])).tolist() == [0, 1.5, 4]
    assert axis.pieces() == [(0, 4)]


def test_a_stretch_that_would_take_most_of_the_picture_is_cut() -> None:
    """10 s at work, 100 s idle, 10 s at work: 20 s are left, and the cut is 4 % of them, 0.8 s, wide."""
    axis = axis_of((0, 10), (110, 120))
    assert axis.cuts == ((10, 110),)
    assert axis.place(np.array([5, 10, 60, 110, 115, 120])) == pytest.approx([5, 10, 10.4, 10.8, 15.8, 20.8])
    assert axis.time_s(axis.place(np.array([5, 60, 115]))) == pytest.approx([5, 60, 115])
    assert axis.pieces() == [(0, 10), (110, 120)]
    assert (axis.shown_s, axis.width) == (20, pytest.approx(20.8))


def test_three_quarters_are_the_bound() -> None:
    assert axis_of((0, 10), (40, 40 + 1e-9)).cuts == ()
    assert axis_of((0, 10), (41, 42)).cuts == () != axis_of((0, 10), (44, 45)).cuts


def test_time_before_the_first_step_is_idle_too() -> None:
    axis = axis_of((100, 101))
    assert axis.cuts == ((0, 100),)
    assert axis.pieces() == [(100, 101)]


def test_minutes_are_cut_when_hours_have_been() -> None:
    """8 hours, then 2: beside the seconds that are left both are long."""
    axis = axis_of((0, 1), (7200, 7201), (36000, 36002))
    assert axis.cuts == ((1, 7200), (7201, 36000))
    assert axis.shown_s == 4


def test_many_even_pauses_are_the_workload_and_stay() -> None:
    assert axis_of(*((60.0 * i, 60.0 * i + 1) for i in range(100))).cuts == ()


def test_bins_begin_anew_after_a_cut_and_a_rest_is_never_a_sliver() -> None:
    axis = axis_of((0, 10.2), (110, 113.8))
    assert axis.edges_s(2.0) == pytest.approx([0, 2, 4, 6, 8, 10.2, 110, 112, 113.8])
    assert axis_of((0, 0.5)).edges_s(2.0).tolist() == [0, 0.5]


@pytest.mark.parametrize(
    ("shown_s", "unit"), [(1, (1, "s")), (300, (60, "min")), (4 * 3600, (3600, "h")), (4 * 86400, (86400, "days"))]
)
def test_the_unit_suits_what_is_shown(shown_s, unit) -> None:
    assert axis_of((0, shown_s)).unit() == unit
    assert axis_of((1e8, 1e8 + shown_s)).unit() == unit


def test_nothing_at_all() -> None:
    axis = axis_of()
    assert (axis.width, axis.pieces(), axis.unit()) == (0, [], (1, "s"))
    assert len(axis.edges_s(1.0)) == 2


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0041, "0.0041 s"), (12, "12 s"), (200, "3.33 min"), (7200, "2 h"), (9e8, "10,417 days"), (59.9, "59.9 s")],
)
def test_lengths_are_told_in_a_unit_that_a_person_reads(seconds, text) -> None:
    assert as_seconds(seconds) == text
