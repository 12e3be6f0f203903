"""Spellings of vLLM's command line that are rewritten, as its FlexibleArgumentParser reads them."""

from __future__ import annotations

import json

import click
import pytest

from sim.cli.vllm_args import rewritten


def said(*args: str) -> dict[str, object]:
    """The JSON that dotted keys come to, by flag."""
    line = rewritten(list(args))
    return {flag: json.loads(text) for flag, text in zip(line[::2], line[1::2], strict=True)}


def test_keys_one_by_one_are_one_object() -> None:
    assert said("-sc.method", "ngram", "-sc.num_speculative_tokens=3") == {
        "-sc": {"method": "ngram", "num_speculative_tokens": 3}
    }
    assert said("--compilation_config.cudagraph_capture_sizes+", "1,2", "--compilation-config.a.b=1k") == {
        "--compilation-config": {"cudagraph_capture_sizes": [1, 2], "a": {"b": 1000}}
    }


def test_they_stand_above_the_flags_text() -> None:
    line = rewritten(["-cc.cudagraph_mode=NONE", "-cc", '{"mode": 3}'])
    assert line == ["-cc", '{"mode": 3}', "-cc", '{"cudagraph_mode": "NONE"}']


def test_numbers_in_a_row_and_the_level() -> None:
    assert rewritten(["trace", "--cudagraph_capture_sizes", "1", "2", "4", "-O3", "--seed", "5"]) == [
        "trace", "--cudagraph-capture-sizes", "1,2,4", "--optimization-level", "3", "--seed", "5",
    ]  # fmt: skip
    assert rewritten(["-O=1"]) == ["--optimization-level", "1"]
    assert rewritten(["-O", "2"]) == ["--optimization-level", "2"]


def test_a_negative_number_is_no_option() -> None:
    assert rewritten(["--swap_space", "-1"]) == ["--swap_space= -1"]
    assert rewritten(["--swap-space", "--seed", "1"]) == ["--swap-space", "--seed", "1"]


def test_everything_else_stays() -> None:
    line = ["a.csv", "--watermark", "0.05", "--out", "x.y", "--rate-scale=1.5", "-1.5", "--max_num_seqs", "4"]
    assert rewritten(line) == line


@pytest.mark.parametrize("keys", [("-cc.a=1", "-cc.a.b=2"), ("-cc.a=1", "-cc.a+=2"), ("-cc.a.b=1", "-cc.a+=2")])
def test_keys_that_contradict_each_other(keys: tuple[str, ...]) -> None:
    with pytest.raises(click.UsageError, match="'a' is given as a value, too"):
        rewritten(list(keys))


def test_a_key_without_a_value() -> None:
    with pytest.raises(click.UsageError, match="requires an argument"):
        rewritten(["-sc.method"])
