"""vLLM bench's data sets as a Python user takes them. What flags add: tests/sim/cli/test_workload_flags.py."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from workloads import TraceError
from workloads.arrivals import Arrivals
from workloads.content import SharedPrefixes
from workloads.datasets import NUM_PROMPTS, PrefixRepetition, RandomDataset, SessionsDataset


def test_defaults_are_vllms():
    """vllm/benchmarks/datasets/datasets.py, 0.32."""
    assert NUM_PROMPTS == 1000
    assert RandomDataset() == RandomDataset(input_len=1024, output_len=128, range_ratio=0.0, prefix_len=0)
    assert PrefixRepetition() == PrefixRepetition(prefix_len=256, suffix_len=256, num_prefixes=10, output_len=128)


@pytest.mark.parametrize("dataset", [RandomDataset(prefix_len=5), PrefixRepetition(), SessionsDataset()])
def test_a_seed_is_a_workload_and_reading_again_reads_the_same(dataset):
    first, again, other = (dataset.trace(40, Arrivals(3.0), seed=seed) for seed in (1, 1, 2))
    assert list(first) == list(again) == list(first)
    assert list(other) != list(first)


def test_lengths_are_drawn_as_vllm_draws_them():
    """Uniform on the integers of the range: the mean within five standard errors."""
    requests = list(RandomDataset(input_len=1000, output_len=100, range_ratio=0.5).trace(20_000, Arrivals()))
    for lengths, middle, half in (
        ([r.prompt_tokens for r in requests], 1000, 500),
        ([r.output_tokens for r in requests], 100, 50),
    ):
        assert (min(lengths), max(lengths)) == (middle - half, middle + half)
        deviation = math.sqrt(((2 * half + 1) ** 2 - 1) / 12)
        assert np.mean(lengths) == pytest.approx(middle, abs=5 * deviation / math.sqrt(len(lengths)))


def test_even_groups_come_equally_often_in_an_order_of_their_own_per_seed():
    prefixes = SharedPrefixes((8,) * 4, evenly=True)
    orders = [tuple(prefixes.groups(np.random.default_rng(seed).random(40)).tolist()) for seed in range(50)]
    assert all(set(Counter(order).values()) == {10} for order in orders)
    assert len(set(orders)) == 50
    # Each group is as likely at each place: 50 draws of a quarter each.
    assert 2 <= sum(order[0] == 0 for order in orders) <= 25


def test_sessions_spread_their_turns():
    requests = list(SessionsDataset(num_turns=4, range_ratio=0.5).trace(300, Arrivals(1.0)))
    turns = Counter(r.request_id.rsplit(".", 1)[0] for r in requests)
    assert set(turns.values()) == {2, 3, 4, 5, 6}


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: RandomDataset(input_len=0), "random_input_len"),
        (lambda: RandomDataset(output_len=-1), "random_output_len"),
        (lambda: RandomDataset(prefix_len=-1), "random_prefix_len"),
        (lambda: RandomDataset(range_ratio=math.nan), "random_range_ratio"),
        (lambda: RandomDataset(range_ratio={"output": 0.5}), "random_range_ratio"),
        (lambda: RandomDataset(input_len=1, range_ratio=0.9), "random_input_len"),
        (lambda: PrefixRepetition(suffix_len=0), "prefix_repetition_suffix_len"),
        (lambda: PrefixRepetition(num_prefixes=10).trace(9, Arrivals()), "num_prompts"),
        (lambda: SessionsDataset(num_turns=100_000), "sessions_num_turns"),
        (lambda: SessionsDataset(think_s=math.inf), "sessions_think_s"),
        (lambda: RandomDataset().trace(0, Arrivals()), "num_prompts"),
        (lambda: SessionsDataset(num_turns=1000).trace(1_000_000, Arrivals()), "num_prompts"),
    ],
)
def test_refusals_name_vllms_flag(make, field):
    with pytest.raises(TraceError) as error:
        make()
    assert error.value.field == field
    assert error.value.expected


def test_a_prefix_makes_a_range_legal_that_may_come_to_nothing():
    """As in vLLM; a prompt has one token of its own here."""
    requests = list(RandomDataset(input_len=1, range_ratio=0.9, prefix_len=7).trace(50, Arrivals()))
    assert {r.prompt_tokens for r in requests} == {8, 9}
