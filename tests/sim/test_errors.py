"""InputError: one line, whatever is put into it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.errors import ElpaseError, InputError, did_you_mean


def test_every_part_in_its_place() -> None:
    error = InputError(file="t.csv", line=3, field="tokens", value="-5", expected="an integer >= 0")
    assert str(error) == "t.csv:3: tokens: got '-5', expected an integer >= 0"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (InputError("--a contradicts --b"), "--a contradicts --b"),
        (InputError("is empty", file=Path("dir/t.csv")), "dir/t.csv: is empty"),
        (
            InputError(field="block_size", value=0, expected="an integer >= 1"),
            "block_size: got 0, expected an integer >= 1",
        ),
        (InputError("times go back", file="t.csv", line=9, value=1.5), "t.csv:9: times go back, got 1.5"),
        (InputError("no such column", line=1, expected="a header"), "line 1: no such column, expected a header"),
        (InputError(file="t.csv", line=2), "t.csv:2"),
        (InputError(field="rates", value=(0.8, 0.9), expected="less"), "rates: got [0.8, 0.9], expected less"),
    ],
)
def test_parts_are_optional(error: InputError, told: str) -> None:
    assert str(error) == told


def test_it_is_a_value_error_and_ours() -> None:
    """Library users catch ValueError, or all of elpase at once."""
    assert issubclass(InputError, ValueError)
    assert issubclass(InputError, ElpaseError)


def test_a_long_value_is_cut() -> None:
    assert len(str(InputError(field="f", value="x" * 10_000))) < 120


@given(st.text(), st.text(), st.text())
def test_one_printable_line_of_any_text(message: str, file: str, value: str) -> None:
    """A binary file's bytes, or a name with a newline, must not break the one line."""
    told = str(InputError(message, file=file, line=1, field="f", value=value))
    assert told.isprintable()
    assert len(told.splitlines()) == 1


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("--max-seqs", "--max-num-seqs"),
        ("--kv-cache-dtyp", "--kv-cache-dtype"),
        ("max_model_length", "--max-model-len"),
        ("--model", ""),
        ("--foo", ""),
        ("--temperature", ""),
        ("--out-dir", ""),
    ],
)
def test_only_what_is_really_close_is_offered(word: str, meant: str) -> None:
    known = [
        "--max-num-seqs",
        "--kv-cache-dtype",
        "--kv-cache-memory-bytes",
        "--max-model-len",
        "--spec-model",
        "--out",
    ]
    known += ["--format", "--watermark"]
    assert did_you_mean(word, known) == (f"; did you mean {meant!r}?" if meant else "")
    assert did_you_mean(word, []) == ""
