"""Windows, rates, limits and skipping: in the documented order, on any trace."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads import Request, Selection, Trace, TraceError
from workloads.trace import FOLLOWS_SKIPPED, TOO_LONG, Row


def trace(requests, **options):
    return Trace("t", "csv", lambda: (Row(request, 1) for request in requests), Selection(**options))


def request(i, arrival_s, prompt=10, output=5, **more):
    return Request(f"r{i}", arrival_s, prompt, output, **more)


TEN = [request(i, float(i)) for i in range(10)]


def names(requests):
    return [r.request_id for r in requests]


def test_without_options_requests_pass_as_they_are():
    assert list(trace(TEN)) == TEN


def test_a_window_holds_its_start_but_not_its_end_and_starts_at_zero():
    got = list(trace(TEN, start_s=3.0, end_s=6.0))
    assert got == [replace(TEN[i], arrival_s=i - 3.0) for i in (3, 4, 5)]


def test_rate_scale_two_is_twice_the_rate():
    assert [r.arrival_s for r in trace(TEN, rate_scale=2.0)] == [i / 2.0 for i in range(10)]


def test_the_window_is_in_the_traces_own_seconds_whatever_the_rate():
    got = list(trace(TEN, start_s=2.0, end_s=8.0, rate_scale=4.0))
    assert names(got) == ["r2", "r3", "r4", "r5", "r6", "r7"]
    assert [r.arrival_s for r in got] == [0.0, 0.25, 0.5, 0.75, 1.0, 1.25]


def test_the_limit_counts_requests_that_can_be_used():
    rows = [request(0, 0.0, prompt=0), request(1, 0.0), request(2, 0.0, output=0), request(3, 0.0), request(4, 0.0)]
    chosen = trace(rows, limit=2)
    assert names(chosen) == ["r1", "r3"]
    assert chosen.skipped == {"prompt of 0 tokens": 1, "output of 0 tokens": 1}


def test_what_lies_outside_the_window_is_not_counted_as_skipped():
    rows = [request(0, 0.0, prompt=0), request(1, 1.0), request(2, 2.0, prompt=0)]
    chosen = trace(rows, start_s=1.0, end_s=2.0)
    assert names(chosen) == ["r1"]
    assert not chosen.skipped


def test_max_model_len_is_for_prompt_and_output_together():
    rows = [request(0, 0.0, prompt=90, output=10), request(1, 0.0, prompt=90, output=11)]
    chosen = trace(rows, max_model_len=100)
    assert names(chosen) == ["r0"]
    assert chosen.skipped == {TOO_LONG: 1}


def test_turns_after_a_skipped_one_are_skipped_too():
    """They wait for an answer that will never come."""
    rows = [
        request(0, 0.0, output_content=1),
        request(1, 0.0, prompt=200, output_content=2, after="r0"),
        request(2, 0.0, output_content=3, after="r1"),
        request(3, 0.0, output_content=4, after="r2"),
        request(4, 0.0),
    ]
    chosen = trace(rows, max_model_len=100)
    assert names(chosen) == ["r0", "r4"]
    assert chosen.skipped == {TOO_LONG: 1, FOLLOWS_SKIPPED: 2}
    with pytest.raises(TraceError, match="max_model_len"):
        list(trace(rows, max_model_len=100, strict=True))


def test_turns_after_one_before_the_window_are_skipped_too():
    rows = [request(0, 0.0, output_content=1), request(1, 5.0, output_content=2, after="r0"), request(2, 5.0)]
    chosen = trace(rows, start_s=1.0)
    assert names(chosen) == ["r2"]
    assert chosen.skipped == {FOLLOWS_SKIPPED: 1}


def test_a_window_without_requests_is_an_error():
    with pytest.raises(TraceError, match="requests: got 'none in the window, the last one read is at 9 s'"):
        list(trace(TEN, start_s=100.0))


def test_whether_priorities_were_seen():
    plain, mixed = trace(TEN), trace([TEN[0], request(1, 1.0, priority=-1)])
    for one in (plain, mixed):
        list(one)
    assert (plain.prioritized, mixed.prioritized) == (False, True)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("rate_scale", 0.0),
        ("rate_scale", -1.0),
        ("rate_scale", math.nan),
        ("rate_scale", math.inf),
        ("limit", 0),
        ("limit", -3),
        ("max_model_len", 0),
        ("max_model_len", 1),
        ("start_s", -1.0),
        ("start_s", math.nan),
        ("start_s", math.inf),
        ("end_s", 0.0),
        ("end_s", -1.0),
        ("end_s", math.nan),
    ],
)
def test_an_option_out_of_range_is_named_with_its_value_and_range(option, value):
    with pytest.raises(TraceError, match=f"^{option}: got {value}, expected "):
        Selection(**{option: value})


def test_a_window_that_ends_before_it_starts_is_an_error():
    with pytest.raises(TraceError, match="end_s"):
        Selection(start_s=5.0, end_s=5.0)


@given(
    arrivals=st.lists(st.floats(0.0, 100.0), min_size=1, max_size=30).map(sorted),
    start_s=st.floats(0.0, 50.0),
    width_s=st.floats(1.0, 100.0),
    rate_scale=st.floats(0.1, 10.0),
    limit=st.integers(1, 40),
)
def test_any_choice_is_a_run_of_the_trace_in_order(arrivals, start_s, width_s, rate_scale, limit):
    rows = [request(i, arrival_s) for i, arrival_s in enumerate(arrivals)]
    inside = [r for r in rows if start_s <= r.arrival_s < start_s + width_s]
    chosen = trace(rows, start_s=start_s, end_s=start_s + width_s, rate_scale=rate_scale, limit=limit)
    if not inside:
        with pytest.raises(TraceError):
            list(chosen)
        return
    got = list(chosen)
    assert names(got) == names(inside)[:limit]
    assert all(0.0 <= r.arrival_s <= width_s / rate_scale * (1 + 1e-9) for r in got)
    assert [r.arrival_s for r in got] == sorted(r.arrival_s for r in got)
