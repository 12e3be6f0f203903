"""Numbers that compare like none: refused in one line wherever a range is asked for."""

from __future__ import annotations

import click
import pytest

from sim.cli.numbers import FiniteRange


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e999"])
def test_what_is_not_finite_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        FiniteRange(min=0).convert(text, None, None)


def test_what_is_finite_is_taken() -> None:
    assert FiniteRange(min=0).convert("1e6", None, None) == 1e6


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--host-memory", "nan"), "'nan' is not a finite number"),
        (("--pcie-bandwidth", "0,8"), "pcie_bandwidth: got 0.0, expected GB/s, more than 0"),
        (("--pcie-bandwidth", "nan"), "pcie_bandwidth: got nan, expected GB/s, more than 0"),
    ],
)
def test_a_comparison_of_modes_starts_with_links_and_memory_that_are(elpase, flags, told) -> None:
    assert told in elpase("preemption", "random", "--num-prompts", 2, "--max-model-len", "2k", *flags).error
