"""A request holds Python's own numbers, whatever they were made of, or it is not made."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from decimal import Decimal

import numpy as np
import pytest

from workloads import Request, TraceError

REQUEST = Request("a", 1.5, 100, 3, output_content=7, priority=2, think_s=0.25)
WHOLE = ("prompt_tokens", "output_tokens", "priority", "output_content")
SECONDS = ("arrival_s", "think_s")


@pytest.mark.parametrize("kind", [np.uint8, np.int32, np.int64])
def test_whole_numbers_of_numpy_are_those_numbers(kind) -> None:
    """And do not overflow in the sums that a scheduler makes of them."""
    made = Request("a", 1.5, kind(100), kind(3), output_content=kind(7), priority=kind(2), think_s=0.25)
    assert made == REQUEST
    assert all(type(getattr(made, name)) is int for name in WHOLE)


@pytest.mark.parametrize("second", [1, np.int64(1), np.float32(1), np.float64(1)])
@pytest.mark.parametrize("name", SECONDS)
def test_seconds_are_floats(name: str, second: object) -> None:
    made = replace(REQUEST, **{name: second})
    assert getattr(made, name) == 1.0
    assert type(getattr(made, name)) is float


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("value", [100.5, 100.0, np.float64(100), "7", [7], math.nan])
def test_what_is_no_whole_number_is_refused(name: str, value: object) -> None:
    with pytest.raises(TraceError) as caught:
        replace(REQUEST, **{name: value})
    assert str(caught.value) == f"{name}: request a, got {value!r}, expected a whole number"


@pytest.mark.parametrize("name", SECONDS)
@pytest.mark.parametrize("value", [-0.1, math.nan, math.inf, np.float64("nan"), "7", None, Decimal(1), 1j])
def test_what_is_no_time_is_refused(name: str, value: object) -> None:
    with pytest.raises(TraceError) as caught:
        replace(REQUEST, **{name: value})
    assert str(caught.value) == f"{name}: request a, got {value!r}, expected a finite number of seconds >= 0"


@pytest.mark.parametrize("name", ["prompt_tokens", "output_tokens", "priority"])
def test_a_number_is_needed(name: str) -> None:
    with pytest.raises(TraceError, match=f"{name}: request a, got None, expected a whole number"):
        replace(REQUEST, **{name: None})


@pytest.mark.parametrize("value", [7, None, b"a"])
def test_a_name_is_a_text(value: object) -> None:
    with pytest.raises(TraceError, match=r"^request_id: got .*, expected a text$"):
        replace(REQUEST, request_id=value)


def test_all_fields_are_looked_at_but_text_and_names() -> None:
    rest = {"request_id", "content", "after"}
    assert {field.name for field in fields(Request)} == {*WHOLE, *SECONDS, *rest}
