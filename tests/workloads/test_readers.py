"""Each dialect becomes the requests that its rows say, in seconds and tokens."""

from __future__ import annotations

import csv
import gzip
import json
import tracemalloc
from collections import Counter
from datetime import datetime
from pathlib import Path

import pytest

from workloads import TraceError, read_trace
from workloads.trace import NO_OUTPUT, NO_PROMPT

DATA = Path(__file__).with_name("data")


def mooncake_rows(name):
    return [json.loads(line) for line in (DATA / name).read_text().splitlines()]


def test_azure_2023_counts_seconds_from_its_first_row():
    requests = list(read_trace(DATA / "azure_2023.csv"))
    with (DATA / "azure_2023.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(r.prompt_tokens, r.output_tokens) for r in requests] == [
        (int(row["ContextTokens"]), int(row["GeneratedTokens"])) for row in rows
    ]
    stamps = [datetime.fromisoformat(row["TIMESTAMP"][:26]) for row in rows]
    expected = [(stamp - stamps[0]).total_seconds() for stamp in stamps]
    assert [r.arrival_s for r in requests] == pytest.approx(expected, abs=1e-6)
    assert requests[0].arrival_s == 0.0


def test_azure_2024_is_the_same_with_a_zone():
    old, new = read_trace(DATA / "azure_2023.csv", limit=12), read_trace(DATA / "azure_2024.csv")
    assert list(new) == list(old)
    assert (old.format, new.format) == ("azure", "azure")


def test_azure_keeps_every_digit_of_its_stamps(tmp_path):
    """100 ns apart is not together, and zones are moments, not texts."""
    path = tmp_path / "t.csv"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-12-31 23:59:59.9999998,1,1\n2023-12-31 23:59:59.9999999,1,1\n"
        "2024-01-01 00:00:00,1,1\n2024-01-01 02:00:00.5+02:00,1,1\n2024-01-01T00:00:01Z,1,1\n"
    )
    expected = [0.0, 1e-7, 2e-7, 0.5 + 2e-7, 1.0 + 2e-7]
    assert [r.arrival_s for r in read_trace(path)] == pytest.approx(expected, abs=1e-12)


def test_mooncake_blocks_are_content_of_512_tokens_and_a_rest():
    rows = mooncake_rows("mooncake_conversation.jsonl")
    requests = list(read_trace(DATA / "mooncake_conversation.jsonl"))
    assert len(requests) == len(rows)
    for request, row in zip(requests, rows, strict=True):
        assert (request.prompt_tokens, request.output_tokens) == (row["input_length"], row["output_length"])
        assert [content_id for content_id, _ in request.content] == row["hash_ids"]
        sizes = [n for _, n in request.content]
        assert set(sizes[:-1]) <= {512}
        assert 1 <= sizes[-1] <= 512
        assert sum(sizes) == row["input_length"]


def test_mooncake_ticks_are_spread_inside_the_tick_in_file_order():
    rows = mooncake_rows("mooncake_conversation.jsonl")
    arrivals = [r.arrival_s for r in read_trace(DATA / "mooncake_conversation.jsonl", seed=3)]
    offsets = [arrival - row["timestamp"] / 1e3 for arrival, row in zip(arrivals, rows, strict=True)]
    assert arrivals == sorted(arrivals)
    assert len(set(arrivals)) == len(arrivals)
    assert min(offsets) >= 0.0
    assert max(offsets) <= 3.0
    # Uniform on [0, 3): mean 1.5, standard error 3 / sqrt(12 n).
    assert sum(offsets) / len(offsets) == pytest.approx(1.5, abs=4 * 3 / (12 * len(offsets)) ** 0.5)


def test_mooncake_spread_is_its_seeds():
    def arrivals(seed):
        return [r.arrival_s for r in read_trace(DATA / "mooncake_conversation.jsonl", seed=seed)]

    assert arrivals(1) == arrivals(1)
    assert arrivals(1) != arrivals(2)


def test_mooncake_without_ticks_keeps_its_stamps():
    rows = mooncake_rows("mooncake_synthetic.jsonl")
    arrivals = [r.arrival_s for r in read_trace(DATA / "mooncake_synthetic.jsonl")]
    assert arrivals == [row["timestamp"] / 1e3 for row in rows]


@pytest.mark.parametrize(
    ("stamps", "moved"),
    [
        ([0, 0, 3000, 3000, 6001], True),
        ([0, 0, 9000, 11999], True),  # empty ticks between
        ([0, 3000, 6000, 9000], False),  # nobody shares a stamp: a regular trace, not ticks
        ([0, 0, 0], False),  # all at once: no tick to be seen
        ([0, 0, 3000, 3400], False),
        ([0, 0, 40, 3000], False),
    ],
)
def test_mooncake_ticks_are_told_from_other_stamps(tmp_path, stamps, moved):
    path = tmp_path / "t.jsonl"
    row = {"input_length": 5, "output_length": 5, "hash_ids": [1]}
    path.write_text("".join(json.dumps({"timestamp": stamp, **row}) + "\n" for stamp in stamps))
    arrivals = [r.arrival_s for r in read_trace(path)]
    assert (arrivals != [stamp / 1e3 for stamp in stamps]) is moved
    assert arrivals == sorted(arrivals)


def test_a_stamp_between_ticks_ends_the_tick_before_it(tmp_path):
    """Ticks are recognised from the trace's start; what breaks them later must still not break the order."""
    path = tmp_path / "t.jsonl"
    row = {"input_length": 5, "output_length": 5, "hash_ids": [1]}
    stamps = [stamp for tick in range(20) for stamp in (3000 * tick, 3000 * tick)] + [57001] * 8 + [57040] * 8
    path.write_text("".join(json.dumps({"timestamp": stamp, **row}) + "\n" for stamp in stamps))
    arrivals = [r.arrival_s for r in read_trace(path)]
    assert arrivals == sorted(arrivals)
    assert all(57.001 <= arrival < 57.040 for arrival in arrivals[40:48])


@pytest.mark.parametrize(
    ("name", "arrivals", "skipped", "last"),
    [
        ("burstgpt.csv", [0.0, 40.0, 113.0, 180.0], {NO_PROMPT: 1}, "burstgpt-4"),
        ("burstgpt_sessions.csv", [0.0, 12.25], {NO_OUTPUT: 1}, "burstgpt-2"),
    ],
)
def test_burstgpt_skips_failed_calls_and_counts_them(name, arrivals, skipped, last):
    trace = read_trace(DATA / name)
    requests = list(trace)
    assert trace.format == "burstgpt"
    assert [r.arrival_s for r in requests] == arrivals
    assert trace.skipped == skipped
    assert (requests[0].prompt_tokens, requests[0].output_tokens) == (472, 18)
    # Names stand for rows of the file, whatever is skipped.
    assert requests[-1].request_id == last


def test_vllm_bench_results_come_in_the_order_in_which_they_were_sent():
    trace = read_trace(DATA / "vllm_bench.json")
    got = [(r.request_id, r.arrival_s, r.prompt_tokens, r.output_tokens) for r in trace]
    assert got == [
        ("vllm-bench-0", 0.0, 100, 16),
        ("vllm-bench-3", 0.75, 90, 12),
        ("vllm-bench-2", 1.5, 120, 10),
        ("vllm-bench-4", 1.5, 120, 8),
    ]
    assert trace.format == "vllm-bench"
    assert trace.skipped == {NO_OUTPUT: 1}


def test_vllm_bench_may_be_indented(tmp_path):
    path = tmp_path / "r.json"
    path.write_text(json.dumps(json.loads((DATA / "vllm_bench.json").read_text()), indent=2))
    assert list(read_trace(path)) == list(read_trace(DATA / "vllm_bench.json"))


@pytest.mark.parametrize(
    "header",
    [
        "arrival_s,prompt_tokens,output_tokens",
        "Arrival_S, Prompt_Tokens, Output_Tokens",
        "arrived_at,num_prefill_tokens,num_decode_tokens",
        "timestamp,input_len,output_len",
        "arrival_time,input_tokens,completion_tokens",
    ],
)
def test_plain_csv_knows_the_usual_names(tmp_path, header):
    path = tmp_path / "t.csv"
    path.write_text(f"{header},note\n0.5,10,3,x\n1e1,7,2,\n")
    got = [(r.arrival_s, r.prompt_tokens, r.output_tokens) for r in read_trace(path)]
    assert got == [(0.5, 10, 3), (10.0, 7, 2)]


def test_cells_may_be_quoted(tmp_path):
    """As some tools write all text: a comma inside quotes is none, and two quotes are one."""
    path = tmp_path / "t.csv"
    path.write_text('arrival_s,prompt_tokens,output_tokens,request_id\n"0",5,"7","a,b"\n1, 6 ,8,"say ""c"""\n')
    got = [(r.request_id, r.arrival_s, r.prompt_tokens, r.output_tokens) for r in read_trace(path)]
    assert got == [("a,b", 0.0, 5, 7), ('say "c"', 1.0, 6, 8)]


def test_lines_of_one_file_may_use_different_names(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text(
        '{"arrival_s": 0, "prompt_tokens": 10, "output_tokens": 2}\n'
        '{"arrived_at": 1, "input_len": 20, "output_len": 3}\n'
        '{"prompt_tokens": 10, "output_tokens": 2, "arrival_s": 2}\n'
    )
    got = [(r.arrival_s, r.prompt_tokens, r.output_tokens) for r in read_trace(path)]
    assert got == [(0.0, 10, 2), (1.0, 20, 3), (2.0, 10, 2)]


def test_mooncake_ids_may_be_written_as_floats(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"timestamp": 0, "input_length": 1024, "output_length": 5, "hash_ids": [3.0, 7]}\n')
    (request,) = read_trace(path)
    assert request.content == ((3, 512), (7, 512))
    assert {type(number) for piece in request.content for number in piece} == {int}


def test_plain_csv_takes_names_and_priorities(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("output_tokens,priority,request_id,arrival,prompt_tokens\n1,-2,a,0,10\n1,3,b,0,10\n")
    assert [(r.request_id, r.priority) for r in read_trace(path)] == [("a", -2), ("b", 3)]


def test_plain_jsonl_takes_content(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text(
        '{"arrival_s": 0, "prompt_tokens": 10, "output_tokens": 2, "content": [[7, 4], [8, 6]], "output_content": 9}\n'
        '{"arrival_s": 0, "prompt_tokens": 10, "output_tokens": 2, "priority": 1, "request_id": 5}\n'
    )
    first, second = read_trace(path)
    assert (first.content, first.output_content, first.request_id) == (((7, 4), (8, 6)), 9, "jsonl-0")
    assert (second.content, second.priority, second.request_id) == (None, 1, "5")


EXCERPTS = sorted(path.name for path in DATA.iterdir() if path.suffix != ".md")


@pytest.mark.parametrize("name", EXCERPTS)
def test_gzip_crlf_bom_and_blank_lines_change_nothing(tmp_path, name):
    plain = (DATA / name).read_bytes()
    dressed = b"\xef\xbb\xbf" + plain.replace(b"\n", b"\r\n\r\n")
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(plain))
    (tmp_path / name).write_bytes(dressed)
    expected = list(read_trace(DATA / name))
    assert list(read_trace(tmp_path / f"{name}.gz")) == expected
    assert list(read_trace(tmp_path / name)) == expected


@pytest.mark.parametrize("name", EXCERPTS)
def test_naming_the_format_reads_the_same_as_auto(name):
    trace = read_trace(DATA / name)
    assert list(read_trace(DATA / name, format=trace.format)) == list(trace)


def test_reading_again_starts_again():
    trace = read_trace(DATA / "burstgpt.csv")
    assert list(trace) == list(trace)
    assert trace.skipped == Counter({NO_PROMPT: 1})


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("arrival_s,prompt_tokens,output_tokens", "{},5,5"),
        ("Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type", "{},m,5,5,10,l"),
        (None, '{{"timestamp": {}, "input_length": 5, "output_length": 5, "hash_ids": [1]}}'),
        (None, '{{"arrival_s": {}, "prompt_tokens": 5, "output_tokens": 5}}'),
    ],
)
def test_reading_does_not_hold_the_trace(tmp_path, header, row):
    """The peak is the same whatever the file's length: 10,000 requests alone would take a megabyte."""
    path = tmp_path / "t"
    path.write_text("\n".join([header or "", *(row.format(i) for i in range(10_000))]))
    tracemalloc.start()
    try:
        count = sum(1 for _ in read_trace(path))
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 10_000
    assert peak_bytes < 250_000


def test_the_first_requests_come_before_the_file_is_read(tmp_path):
    """What is wrong far behind them does not keep them from coming."""
    path = tmp_path / "t.csv"
    rows = [f"{i},5,5" for i in range(1000)]
    path.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *rows, "oops"]))
    assert len(list(read_trace(path, limit=10))) == 10
    with pytest.raises(TraceError):
        list(read_trace(path))


def test_whole_numbers_may_be_written_as_floats(tmp_path):
    """As pandas writes a column of integers that has had gaps."""
    (tmp_path / "t.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,1e3,5.0\n")
    (tmp_path / "t.jsonl").write_text('{"arrival_s": 0, "prompt_tokens": 1e3, "output_tokens": 5.0}\n')
    for name in ("t.csv", "t.jsonl"):
        (request,) = read_trace(tmp_path / name)
        assert (request.prompt_tokens, request.output_tokens) == (1000, 5)
        assert isinstance(request.prompt_tokens, int)


ROWS = {
    "csv": ("arrival_s,prompt_tokens,output_tokens", "{},5,5", 1),
    "jsonl": (None, '{{"arrival_s": {}, "prompt_tokens": 5, "output_tokens": 5}}', 1),
    "mooncake": (None, '{{"timestamp": {}, "input_length": 5, "output_length": 5, "hash_ids": [1]}}', 1000),
}
"""Header, row and stamps a second of the formats that say nothing of where their clock starts."""


def stamped(path, form, stamps_s):
    header, row, per_s = ROWS[form]
    path.write_text("\n".join([header or "", *(row.format(stamp_s * per_s) for stamp_s in stamps_s)]))
    return read_trace(path)


@pytest.mark.parametrize("form", ROWS)
@pytest.mark.parametrize("first_s", [60, 86_400, 1_700_000_000])
def test_a_clock_that_did_not_start_with_the_workload_counts_from_its_first_stamp(tmp_path, form, first_s):
    """Nobody waits a minute, a day or 53 years for a first request; windows count from it too."""
    trace = stamped(tmp_path / "t", form, [first_s, first_s + 0.25, first_s + 7])
    assert [r.arrival_s for r in trace] == [0.0, 0.25, 7.0]
    assert trace.zero_s == first_s
    assert [f"{first_s:,} s: arrivals count from there" in note for note in trace.notes()] == [True]
    window = read_trace(tmp_path / "t", start_s=5, end_s=8)
    assert [r.arrival_s for r in window] == [2.0]


@pytest.mark.parametrize("form", ROWS)
def test_a_first_stamp_within_a_minute_is_a_wait(tmp_path, form):
    trace = stamped(tmp_path / "t", form, [59.5, 3600, 1_000_000])
    assert [r.arrival_s for r in trace] == [59.5, 3600.0, 1_000_000.0]
    assert (trace.zero_s, trace.notes()) == (0.0, [])


def test_burstgpt_and_vllm_bench_may_count_since_1970_too(tmp_path):
    (tmp_path / "b").write_text(
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "1700000000,m,1,1,2,l\n1700000003,m,1,1,2,l\n"
    )
    bench = {"start_times": [1700000003.0, 1700000000.0], "input_lens": [1, 1], "output_lens": [1, 1]}
    (tmp_path / "v").write_text(json.dumps(bench))
    for name in ("b", "v"):
        assert [r.arrival_s for r in read_trace(tmp_path / name)] == [0.0, 3.0]
