from __future__ import annotations

from array import array

import numpy as np
import pyarrow as pa
import pytest

from sim.report import arrow

NAMES = ["", "a", "Ω-7", "", "b" * 100]


@pytest.mark.parametrize("values", [[], [1, -2], [0.5, float("nan")]])
def test_numbers_are_what_pyarrow_makes_of_them(values: list[float]) -> None:
    column = np.array(values)
    assert arrow.numbers(column).equals(pa.array(column, from_pandas=False)) or np.isnan(column).any()
    assert arrow.numbers(column).null_count == 0
    np.testing.assert_array_equal(arrow.numbers(column).to_numpy(), column)


@pytest.mark.parametrize("values", [[], NAMES])
def test_texts_are_what_pyarrow_makes_of_them(values: list[str]) -> None:
    assert arrow.texts(values).equals(pa.array(values, pa.string()))


def test_texts_stand_one_after_the_other() -> None:
    column = arrow.texts_between(array("q", [0, 2, 2, 5]), bytearray(b"abcde and more"))
    assert column.equals(pa.array(["ab", "", "cde"], pa.string()))


def test_a_code_stands_for_its_text() -> None:
    assert arrow.texts_by_code(np.array([2, 0, 2], np.uint8), ["a", "b", "cc"]).to_pylist() == ["cc", "a", "cc"]


def test_texts_too_long_for_plain_strings_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "_LONGEST_PLAIN", 3)
    assert arrow.texts(["ab", "c"]).equals(pa.array(["ab", "c"], pa.string()))
    assert arrow.texts(["ab", "cd"]).equals(pa.array(["ab", "cd"], pa.large_string()))
