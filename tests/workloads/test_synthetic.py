"""Synthetic workloads: shared prefixes, sessions, and streams of random numbers that leave each other alone."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads import Selection, TraceError, synthetic
from workloads.arrivals import Arrivals
from workloads.content import SharedPrefixes
from workloads.lengths import Fixed, LogNormal, UniformRange
from workloads.sessions import Sessions

PROMPT, OUTPUT = UniformRange(100, 0.5), UniformRange(20, 0.5)
EVENLY = Arrivals(1.0, burstiness=math.inf)


def column(requests, name):
    return [getattr(request, name) for request in requests]


def texts(request):
    """The prompt, token by token, as (content id, position)."""
    return [(content_id, i) for content_id, n in request.content for i in range(n)]


def test_a_plain_workload_shares_nothing():
    requests = list(synthetic(50, Arrivals(5.0), PROMPT, OUTPUT))
    assert len(set(column(requests, "request_id"))) == 50
    assert set(column(requests, "content")) == {None}
    assert set(column(requests, "after")) == {None}
    assert all(50 <= r.prompt_tokens <= 150 and 10 <= r.output_tokens <= 30 for r in requests)


def test_changing_one_part_leaves_the_draws_of_the_others():
    base = list(synthetic(200, Arrivals(5.0), PROMPT, OUTPUT, seed=4))
    longer = list(synthetic(200, Arrivals(5.0), PROMPT, LogNormal(300.0, 1.0), seed=4))
    faster = list(synthetic(200, Arrivals(10.0), PROMPT, OUTPUT, seed=4))
    prefixed = list(synthetic(200, Arrivals(5.0), PROMPT, OUTPUT, prefixes=SharedPrefixes((64, 64)), seed=4))
    assert column(longer, "arrival_s") == column(base, "arrival_s")
    assert column(longer, "prompt_tokens") == column(base, "prompt_tokens")
    assert column(longer, "output_tokens") != column(base, "output_tokens")
    assert column(faster, "prompt_tokens") == column(base, "prompt_tokens")
    assert column(faster, "arrival_s") == pytest.approx([r.arrival_s / 2 for r in base], abs=1e-6)
    assert column(prefixed, "arrival_s") == column(base, "arrival_s")
    assert column(prefixed, "prompt_tokens") == [r.prompt_tokens + 64 for r in base]


@pytest.mark.parametrize("sessions", [None, Sessions(UniformRange(5, 0.5), think_s=2.0)])
def test_how_many_are_drawn_at_once_does_not_show(monkeypatch, sessions):
    drawn = []
    for size in (1, 7, 4096):
        monkeypatch.setattr(sys.modules["workloads.synthetic"], "_BLOCK", size)  # the package has a function so named
        drawn.append(list(synthetic(40, Arrivals(5.0), PROMPT, LogNormal(30.0, 1.0), sessions=sessions, seed=4)))
    assert drawn[0] == drawn[1] == drawn[2]


def test_streams_of_parts_are_independent():
    """Prompts and outputs of one law must not be the same draws."""
    requests = list(synthetic(2000, Arrivals(5.0), UniformRange(1000, 0.9), UniformRange(1000, 0.9)))
    prompts, outputs = column(requests, "prompt_tokens"), column(requests, "output_tokens")
    centre = 1000
    product = sum((p - centre) * (o - centre) for p, o in zip(prompts, outputs, strict=True))
    power = math.sqrt(sum((p - centre) ** 2 for p in prompts) * sum((o - centre) ** 2 for o in outputs))
    assert abs(product / power) < 4 / math.sqrt(2000)


def test_fewer_requests_are_the_first_of_more():
    few, many = (list(synthetic(n, Arrivals(5.0), PROMPT, OUTPUT, seed=9)) for n in (10, 1000))
    assert few == many[:10]


def test_a_seed_is_its_requests_and_another_seed_others():
    first, again, other = (list(synthetic(20, Arrivals(5.0), PROMPT, OUTPUT, seed=seed)) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_one_seed_gives_the_same_requests_on_every_machine():
    """Pinned numbers: they must not move with the machine, the process, or the hash seed (numpy >= 2, PCG64)."""
    pinned = ["0.133724 338 107", "0.338791 1686 108", "0.371201 277 83"]
    code = (
        "from workloads import synthetic\n"
        "from workloads.arrivals import Arrivals\nfrom workloads.lengths import LogNormal, UniformRange\n"
        "law = Arrivals(5.0, burstiness=0.5)\n"
        "for r in synthetic(3, law, LogNormal(500.0, 1.0), UniformRange(100, 0.5), seed=7):\n"
        "    print(r.arrival_s, r.prompt_tokens, r.output_tokens)\n"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
        for hash_seed in ("0", "1")
    ]
    assert runs[0] == runs[1] == pinned


def test_prefix_groups_share_their_text_and_nothing_else():
    prefixes = SharedPrefixes((64, 32), weights=(3.0, 1.0))
    requests = list(synthetic(1000, Arrivals(5.0), PROMPT, OUTPUT, prefixes=prefixes))
    groups = Counter(r.content[0] for r in requests)
    assert set(groups) == {(0, 64), (1, 32)}
    assert groups[(0, 64)] / 1000 == pytest.approx(0.75, abs=4 * math.sqrt(0.75 * 0.25 / 1000))
    own = [r.content[1][0] for r in requests]
    assert len(set(own)) == 1000
    assert not set(own) & {0, 1}
    assert all(sum(n for _, n in r.content) == r.prompt_tokens for r in requests)


def test_a_group_without_prefix_is_text_of_its_own():
    requests = list(synthetic(200, Arrivals(5.0), Fixed(10), OUTPUT, prefixes=SharedPrefixes((0, 64))))
    assert {r.content is None for r in requests} == {True, False}
    assert {r.prompt_tokens for r in requests} == {10, 74}


def test_a_weight_of_zero_is_never_drawn():
    prefixes = SharedPrefixes((1, 2, 3), weights=(0.0, 1.0, 0.0))
    assert {r.content[0][1] for r in synthetic(500, Arrivals(5.0), PROMPT, OUTPUT, prefixes=prefixes)} == {2}


@settings(max_examples=25, deadline=None)
@given(turns=st.integers(1, 6), prefix=st.integers(0, 40), seed=st.integers(0, 100))
def test_each_turn_repeats_all_that_was_said(turns, prefix, seed):
    requests = list(
        synthetic(
            3,
            Arrivals(1.0),
            PROMPT,
            OUTPUT,
            prefixes=SharedPrefixes((prefix,)),
            sessions=Sessions(Fixed(turns), think_s=5.0),
            seed=seed,
        )
    )
    assert len(requests) == 3 * turns
    by_id = {r.request_id: r for r in requests}
    for request in requests:
        assert sum(n for _, n in request.content) == request.prompt_tokens
        if request.after is None:
            assert request.request_id.endswith(".0")
            assert request.think_s == 0.0
            continue
        before = by_id[request.after]
        said = texts(before) + [(before.output_content, i) for i in range(before.output_tokens)]
        assert texts(request)[: len(said)] == said
        assert 50 <= request.prompt_tokens - len(said) <= 150
        assert request.arrival_s == before.arrival_s
    new = [r.content[-1][0] for r in requests] + [r.output_content for r in requests]
    assert len(set(new)) == len(new)


def test_a_session_comes_whole_and_in_order():
    requests = list(synthetic(5, EVENLY, PROMPT, OUTPUT, sessions=Sessions(UniformRange(3, 0.5))))
    for before, request in pairwise(requests):
        assert request.after in (None, before.request_id)
    assert column(requests, "arrival_s") == sorted(column(requests, "arrival_s"))
    assert {r.arrival_s for r in requests} == {1.0, 2.0, 3.0, 4.0, 5.0}


def test_think_times_have_their_mean_and_spread():
    def thinks(burstiness):
        sessions = Sessions(Fixed(2), think_s=8.0, think_burstiness=burstiness)
        return [r.think_s for r in synthetic(4000, Arrivals(1.0), PROMPT, OUTPUT, sessions=sessions) if r.after]

    drawn = thinks(1.0)
    assert sum(drawn) / len(drawn) == pytest.approx(8.0, abs=4 * 8.0 / math.sqrt(len(drawn)))
    # Exponential: a share exp(-1) is above the mean.
    above = sum(think > 8.0 for think in drawn) / len(drawn)
    assert above == pytest.approx(math.exp(-1), abs=4 * math.sqrt(0.37 * 0.63 / len(drawn)))
    assert set(thinks(math.inf)) == {8.0}


def test_sessions_that_outgrow_the_model_lose_their_later_turns():
    sessions = Sessions(Fixed(4))
    selection = Selection(max_model_len=260)
    trace = synthetic(2, Arrivals(1.0), Fixed(100), Fixed(20), sessions=sessions, selection=selection)
    # Turn 0 takes 120 tokens, turn 1 240, turn 2 would take 360.
    assert column(trace, "request_id") == ["synthetic-0.0", "synthetic-0.1", "synthetic-1.0", "synthetic-1.1"]
    assert dict(trace.skipped) == {"longer than max_model_len": 4}


def test_selection_works_on_synthetic_workloads():
    plain = list(synthetic(10, EVENLY, PROMPT, OUTPUT))
    chosen = synthetic(10, EVENLY, PROMPT, OUTPUT, selection=Selection(rate_scale=2.0, limit=3, start_s=2.0))
    assert list(chosen) == [replace(r, arrival_s=(r.arrival_s - 2.0) / 2.0) for r in plain[1:4]]


@pytest.mark.parametrize(
    ("field", "build"),
    [
        ("num_requests", lambda: synthetic(0, Arrivals(1.0), PROMPT, OUTPUT)),
        ("seed", lambda: synthetic(1, Arrivals(1.0), PROMPT, OUTPUT, seed=-1)),
        ("lengths", lambda: SharedPrefixes(())),
        ("lengths", lambda: SharedPrefixes((-1,))),
        ("weights", lambda: SharedPrefixes((1, 2), weights=(1.0,))),
        ("weights", lambda: SharedPrefixes((1, 2), weights=(0.0, 0.0))),
        ("weights", lambda: SharedPrefixes((1, 2), weights=(-1.0, 2.0))),
        ("weights", lambda: SharedPrefixes((1, 2), weights=(math.nan, 2.0))),
        ("think_s", lambda: Sessions(Fixed(1), think_s=-1.0)),
        ("think_s", lambda: Sessions(Fixed(1), think_s=math.nan)),
        ("think_burstiness", lambda: Sessions(Fixed(1), think_burstiness=0.0)),
    ],
)
def test_impossible_workloads_are_refused_by_name(field, build):
    with pytest.raises(TraceError, match=f"^{field}: got .*, expected "):
        build()
