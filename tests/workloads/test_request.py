"""A request holds Python's own numbers, whatever they were made of, or it is not made."""

from __future__ import annotations

import copy
import math
import pickle
from dataclasses import astuple, fields, replace
from decimal import Decimal

import numpy as np
import pytest

from workloads import Request, TraceError

REQUEST = Request("a", 1.5, 100, 3, output_content=7, priority=2, think_s=0.25)
LEAST = {"prompt_tokens": 0, "output_tokens": 0, "priority": -(2**63) + 1, "output_content": 0}
MOST = {"prompt_tokens": 10**9, "output_tokens": 10**9, "priority": 2**63 - 1, "output_content": 2**63 - 1}
WHOLE = tuple(LEAST)
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
    expected = f"a whole number from {LEAST[name]} to {MOST[name]}"
    assert str(caught.value) == f"{name}: request a, got {value!r}, expected {expected}"


@pytest.mark.parametrize("name", WHOLE)
def test_whole_numbers_are_within_a_range(name: str) -> None:
    """The result's tables hold 64 bits of them; 10**9 tokens are beyond any context window."""
    for good in (LEAST[name], MOST[name]):
        assert getattr(replace(REQUEST, **{name: good}), name) == good
    for bad in (LEAST[name] - 1, MOST[name] + 1, 10**30):
        with pytest.raises(TraceError, match=f"^{name}: request a, got {bad}, expected a whole number from "):
            replace(REQUEST, **{name: bad})


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


def test_names_of_any_script() -> None:
    assert replace(REQUEST, request_id="é 訊 \U0001f600").request_id == "é 訊 \U0001f600"


@pytest.mark.parametrize("value", [7, None, b"a", "\ud800", "a\udfff"])
def test_a_name_is_a_text(value: object) -> None:
    with pytest.raises(TraceError, match=r"^request_id: got .*, expected a text$"):
        replace(REQUEST, request_id=value)


def test_content_is_as_long_as_the_prompt() -> None:
    pieces = ((7, 60), (8, 40))
    assert replace(REQUEST, content=pieces).content is pieces
    for taken in ([[7, 60], [8, 40]], np.array(pieces), [(np.int64(7), np.int32(60)), [8, 40]]):
        made = replace(REQUEST, content=taken).content
        assert made == pieces
        assert type(made) is tuple
        assert {type(number) for piece in made for number in piece} == {int}


@pytest.mark.parametrize(
    "content",
    [
        ((7, 60), (8, 41)),
        ((7, 99),),
        (),
        ((7, 101), (8, -1)),
        ((7, 0), (8, 100)),
        ((-1, 100),),
        ((2**63, 100),),
        ((7, 100.0),),
        (("7", 100),),
        ((7, 50, 50),),
        (7, 100),
        ((7, None),),
        "ab",
        100,
        {7: 100},
    ],
)
def test_other_content_is_refused(content: object) -> None:
    with pytest.raises(TraceError) as caught:
        replace(REQUEST, content=content)
    expected = "pieces (content_id, n), ids from 0 to 9223372036854775807, whose n are 1 or more and sum to 100"
    assert str(caught.value) == f"content: request a, got {content!r}, expected {expected}"


@pytest.mark.parametrize("value", [7, b"a", ("a",)])
def test_what_it_follows_is_a_name(value: object) -> None:
    with pytest.raises(TraceError) as caught:
        replace(REQUEST, after=value)
    assert (
        str(caught.value) == f"after: request a, got {value!r}, expected the request_id of an earlier request, a text"
    )


def test_each_value_goes_to_its_field() -> None:
    """By position, in the order of the fields, or by name; most may be left out."""
    values = ("a", 1.5, 100, 3, ((7, 60), (8, 40)), 7, 2, "b", 0.25)
    names = [field.name for field in fields(Request)]
    made = Request(*values)
    assert astuple(made) == values
    assert made == Request(**dict(zip(names, values, strict=True))) == replace(made)
    assert astuple(Request(*values[:4])) == (*values[:4], None, None, 0, None, 0.0)


def test_it_is_a_value() -> None:
    assert pickle.loads(pickle.dumps(REQUEST)) == copy.copy(REQUEST) == REQUEST
    assert len({REQUEST, replace(REQUEST), replace(REQUEST, priority=3)}) == 2


def test_all_fields_are_looked_at() -> None:
    told = {"request_id", "content", "after"}
    assert {field.name for field in fields(Request)} == {*WHOLE, *SECONDS, *told}
