"""Whatever is wrong with a trace is one `TraceError` of one line, with file, line, field, value, expectation."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads import FORMATS, TraceError, open_workload, read_trace

DATA = Path(__file__).with_name("data")

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
PLAIN = "arrival_s,prompt_tokens,output_tokens\n"
BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
DAY = "2023-11-16 18:15:46.6805900"
MOON = '{"timestamp": 0, "input_length": 5, "output_length": 5, "hash_ids": [1]}\n'
LINE = '{"arrival_s": 0, "prompt_tokens": 5, "output_tokens": 5}\n'


def moon(**changed):
    return json.dumps({**json.loads(MOON), **changed}) + "\n"


def line(**changed):
    return json.dumps({**json.loads(LINE), **changed}) + "\n"


def bench(**changed):
    record = {**json.loads((DATA / "vllm_bench.json").read_text()), **changed}
    return json.dumps({key: value for key, value in record.items() if value != "gone"})


INDENTED = json.dumps(json.loads(bench()), indent=1)[:300]

BAD = {
    # name: (content, line, field, part of the message)
    "empty": ("", None, "file", "an empty file"),
    "blank lines": ("\n \n\r\n", None, "file", "an empty file"),
    "binary": (bytes(range(256)) * 40, 1, "encoding", "UTF-8"),
    "binary that is ASCII": (b"PK\x03\x04\x00\x00", 1, "encoding", "UTF-8"),
    "binary in the middle": (f"{PLAIN}0,5,5\n1,5,".encode() + b"\x00\x01\n", 3, "encoding", "UTF-8"),
    "latin-1 in the middle": (f"{PLAIN}0,5,5\n1,5,".encode() + b"\xe9\n", 3, "encoding", "b'\\xe9'"),
    "UTF-16": (f"{PLAIN}0,5,5\n".encode("utf-16"), 1, "encoding", "UTF-8"),
    "endless line": (PLAIN.encode() + b"7" * (17 << 20), 2, "line", "bytes"),
    "truncated gzip": (gzip.compress(PLAIN.encode() + b"0,5,5\n" * 9000)[:-40], None, "gzip data", "whole gzip"),
    "broken gzip": (gzip.compress(PLAIN.encode())[:12] + b"\xff" * 40, 1, "gzip data", "whole gzip"),
    "prose": ("Dear diary\n", 1, "format", "mooncake"),
    "no header": ("0,5,5\n1,5,5\n", 1, "header", "column names"),
    "unknown columns": ("when,in,out\n0,5,5\n", 1, "format", "arrival_s,prompt_tokens,output_tokens"),
    "columns of two formats": (f"{AZURE.strip()},prompt_tokens,output_tokens\n", 1, "format", "azure and csv"),
    "unknown keys": ('{"a": 1}\n', 1, "format", "mooncake"),
    "keys of two formats": (moon(prompt_tokens=5, output_tokens=5), 1, "format", "mooncake and jsonl"),
    "a JSON list": ("[1, 2]\n", 1, "JSON", "a JSON object"),
    "deep JSON": ("[" * 100_000 + "\n", 1, "JSON", "one JSON object"),
    "semicolons": (PLAIN.replace(",", ";") + "0;5;5\n", 1, "separator", "';'"),
    "tabs": (AZURE.replace(",", "\t"), 1, "separator", "'\\t'"),
    "semicolons in a row": (f"{PLAIN}0,5,5\n1;5;5\n", 3, "columns", "'1;5;5'"),
    "duplicate header": ("arrival_s,prompt_tokens,output_tokens,Prompt_Tokens\n", 1, "header", "prompt_tokens"),
    "duplicate key": ('{"arrival_s": 0, "arrival_s": 1}\n', 1, "key", "arrival_s"),
    "header only": (AZURE, 1, "rows", "at least one row"),
    "header only, between blank lines": (f"\n{AZURE}\n\n", 2, "rows", "at least one row"),
    "an end of line inside a line": (f"{PLAIN}0,5,5\r1,5,5\n", 2, "line", "comma-separated"),
    "a cell of 200,000 characters": (f"{PLAIN}0,5,{'5' * 200_000}\n", 2, "line", "field larger"),
    "joined files": (f"{LINE}\ufeff{LINE}", 2, "JSON", "BOM"),
    "a line of no keys": (f"{LINE}{{}}\n", 2, "arrival_s", "exactly one of"),
    "other keys later": (LINE + line().replace("arrival_s", "when"), 2, "arrival_s", "exactly one of"),
    "a large id of text": (moon(input_length=600, hash_ids=[1, 2**63]), 1, "hash_ids", "9223372036854775808"),
    "truncated CSV": (f"{AZURE}{DAY},10,5\n{DAY},1", 3, "columns", "3 values"),
    "one value too many": (f"{AZURE}{DAY},10,5,7\n", 2, "columns", "3 values"),
    "stray quote": (f'{PLAIN}0,5,5\n1,"5,5\n2,5,5\n', 3, "line", "comma-separated"),
    "JSON in CSV": (f"{PLAIN}0,5,5\n{LINE}", 3, "arrival_s", "seconds"),
    "CSV in JSON": (f"{LINE}0,5,5\n", 2, "JSON", "'"),
    "Azure row in BurstGPT": (f"{BURST}5,m,1,1,2,l\n{DAY},10,5\n", 3, "columns", "6 values"),
    "second header": (f"{PLAIN}0,5,5\n{PLAIN}", 3, "arrival_s", "'arrival_s'"),
    "Mooncake in plain": (f"{LINE}{MOON}", 2, "prompt_tokens", "input_length"),
    "plain in Mooncake": (f"{MOON}{LINE}", 2, "timestamp", "a key 'timestamp'"),
    "truncated JSON line": (f"{MOON}{MOON}"[:-20], 2, "JSON", "one whole JSON object"),
    "truncated JSON document": (bench()[:-20], 1, "JSON", "one whole JSON object"),
    "truncated indented JSON": (INDENTED, INDENTED.count("\n") + 1, "JSON", "one whole JSON object"),
    "two JSON documents": (f"{bench()}\n{bench()}\n", 2, "JSON", "Extra data"),
    "unsorted": (f"{PLAIN}5,5,5\n4.5,5,5\n", 3, "arrival_s", "'4.5'"),
    "unsorted Azure": (f"{AZURE}{DAY},1,1\n{DAY.replace('900', '899')},1,1\n", 3, "TIMESTAMP", "not before the row"),
    "unsorted Mooncake": (f"{moon(timestamp=9)}{MOON}", 2, "timestamp", "got 0"),
    "unsorted BurstGPT": (f"{BURST}5,m,1,1,2,l\n4,m,1,1,2,l\n", 3, "Timestamp", "'4'"),
    "an Azure stamp of text": (f"{AZURE}yesterday,1,1\n", 2, "TIMESTAMP", "'yesterday'"),
    "an Azure stamp on no calendar": (f"{AZURE}2023-02-30 00:00:00,1,1\n", 2, "TIMESTAMP", "2023-02-30"),
    "an Azure stamp whose zone is not its end": (
        f"{AZURE}2023-11-16 18:15:46+00:00.5,1,1\n",
        2,
        "TIMESTAMP",
        "46+00:00.5",
    ),
    "an Azure stamp of two zones": (f"{AZURE}{DAY}+00:00+00:00,1,1\n", 2, "TIMESTAMP", "with or without"),
    "an Azure stamp of ten digits": (f"{AZURE}{DAY}000,1,1\n", 2, "TIMESTAMP", "with or without"),
    "an Azure stamp of other digits": (f"{AZURE}2023-11-16 18:15:46.٣,1,1\n", 2, "TIMESTAMP", "46.٣"),
    "an Azure stamp of 25 hours": (f"{AZURE}2023-11-16 25:15:46.5+00:00,1,1\n", 2, "TIMESTAMP", "(hour must be"),
    "an Azure stamp in seconds": (f"{AZURE}5.0,1,1\n", 2, "TIMESTAMP", "2023-11-16"),
    "a date in milliseconds": (f"{PLAIN}1700158546000,5,5\n", 2, "arrival_s", "is it in a smaller unit"),
    "a date in microseconds in Mooncake": (moon(timestamp=1700158546000000), 1, "timestamp", "in a smaller unit"),
    "a date in BurstGPT's milliseconds": (f"{BURST}1700158546000,m,1,1,2,l\n", 2, "Timestamp", "in a smaller unit"),
    "a date after a second": (f"{PLAIN}1,5,5\n1700158546,5,5\n", 3, "arrival_s", "at most 1000000000 seconds after"),
    "a century after a date": (f"{PLAIN}1700158546,5,5\n4855832146,5,5\n", 3, "arrival_s", "after the first row"),
    "a date in plain CSV": (f"{PLAIN}{DAY},5,5\n", 2, "arrival_s", "seconds"),
    "BurstGPT tokens": (f"{BURST}5,m,x,1,2,l\n", 2, "Request tokens", "'x'"),
    "too few ids": (moon(input_length=600), 1, "hash_ids", "2 ids"),
    "too many ids": (moon(hash_ids=[1, 2]), 1, "hash_ids", "1 ids"),
    "ids of text": (moon(hash_ids=["a"]), 1, "hash_ids", "'a'"),
    "a negative id": (moon(hash_ids=[-1]), 1, "hash_ids", "-1"),
    "ids that are no list": (moon(hash_ids=7), 1, "hash_ids", "got 7"),
    "content that does not sum": (line(content=[[1, 4]]), 1, "content", "5 tokens"),
    "content of text": (line(content="Hello"), 1, "content", "'Hello'"),
    "negative content id": (line(content=[[-1, 5]]), 1, "content", "-1"),
    "duplicate id": (line(request_id="a") * 2, 2, "request_id", "'a'"),
    "id that is a list": (line(request_id=[1]), 1, "request_id", "[1]"),
    "id of half a character": (line(request_id="\ud800"), 1, "request_id", "'\\ud800'"),
    "priority of text": (line(priority="high"), 1, "priority", "'high'"),
    "two names for one": (line(arrival=0), 1, "arrival_s", "exactly one of"),
    "bench without detail": (bench(start_times="gone"), None, "start_times", "--save-detailed"),
    "bench lists of two lengths": (bench(output_lens=[1]), None, "output_lens", "as many as"),
    "bench without requests": (bench(start_times=[], input_lens=[], output_lens=[]), None, "start_times", "0 values"),
    "bench text": (bench(input_lens=[1, 1, 1, "x", 1]), None, "input_lens[3]", "'x'"),
    "bench float": (bench(output_lens=[1, 1, 1.5, 1, 1]), None, "output_lens[2]", "1.5"),
    "bench NaN": (bench(start_times=[1, 2, float("nan"), 1, 1]), None, "start_times[2]", "nan"),
    "bench negative": (bench(start_times=[1, 2, -3, 1, 1]), None, "start_times[2]", "-3"),
    "only unusable rows": (f"{PLAIN}0,0,5\n1,5,0\n", None, "requests", "1 skipped: prompt of 0 tokens"),
}
NUMBERS = [
    "-5",
    "nan",
    "NaN",
    "inf",
    "-inf",
    "1.5",
    "five",
    "",
    "1_000",
    "٣",
    "0x10",
    "1e999",
    "9" * 5000,
]
for value in NUMBERS:
    for column, name in enumerate(PLAIN.strip().split(",")):
        if column == 0 and value == "1.5":
            continue  # seconds may be fractions
        cells = ["0", "5", "5"]
        cells[column] = value
        BAD[f"{name} = {value[:9]!r} in CSV"] = (f"{PLAIN}0,5,5\n{','.join(cells)}\n", 3, name, "expected")
for value in ["-5", "NaN", "Infinity", "1.5", '"five"', "null", "true", "[]", "1e999", "9" * 400, "-" + "9" * 400]:
    for key in ("arrival_s", "prompt_tokens", "output_tokens"):
        if key == "arrival_s" and value == "1.5":
            continue
        text = LINE.replace(f'"{key}": {5 if key != "arrival_s" else 0}', f'"{key}": {value}')
        BAD[f"{key} = {value[:9]} in JSON"] = (f"{LINE}{text}", 2, key, "expected")
BAD["a JSON number of 5000 digits"] = (LINE + LINE.replace("5", "9" * 5000, 1), 2, "JSON", "one JSON object")
BAD["a billion and one tokens"] = (f"{PLAIN}0,1000000001,5\n", 2, "prompt_tokens", "1000000001")


def check(error, path):
    assert error.file == str(path)
    assert error.field
    assert error.expected
    told = str(error)
    assert told.isprintable()
    place = f"{path}:{error.line}" if error.line else str(path)
    assert told.startswith(f"{place}: {error.field}: got ")
    assert f", expected {error.expected}"[:60] in told


@pytest.mark.parametrize("name", BAD)
def test_every_kind_of_bad_input_is_one_clear_line(tmp_path, name):
    content, number, field, part = BAD[name]
    path = tmp_path / "trace"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(TraceError) as caught:
        list(read_trace(path))
    error = caught.value
    check(error, path)
    assert error.field == field
    assert part in str(error)
    if name != "truncated gzip":  # how far it can be unpacked is the library's business
        assert error.line == number


def test_what_cannot_be_opened_is_said(tmp_path):
    for path in (tmp_path / "nothing", tmp_path, tmp_path / ("x" * 5000)):
        for read in (read_trace, open_workload):
            with pytest.raises(TraceError) as caught:
                read(path)
            check(caught.value, path)
    with pytest.raises(TraceError, match="azure-conv"):
        open_workload("azure-konv")


@pytest.mark.parametrize("read", [read_trace, open_workload])
@pytest.mark.parametrize("name", ["", "a\0b"])
def test_an_empty_name_is_not_the_current_folder_and_no_name_has_a_nul(read, name):
    with pytest.raises(TraceError) as caught:
        read(name)
    assert str(caught.value) == f"path: got {name!r}, expected the name of a file"


def test_an_unknown_format_names_the_known_ones():
    with pytest.raises(TraceError, match="azure, burstgpt, mooncake, vllm-bench, csv, jsonl"):
        read_trace(DATA / "azure_2023.csv", format="azur")


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", ["azure_2023.csv", "burstgpt.csv", "mooncake_synthetic.jsonl", "vllm_bench.json"])
def test_a_format_that_contradicts_the_file_is_an_error(name, form):
    path = DATA / name
    if form == read_trace(path).format:
        return
    with pytest.raises(TraceError) as caught:
        list(read_trace(path, format=form))
    check(caught.value, path)


def test_strict_makes_unusable_rows_errors():
    path = DATA / "burstgpt.csv"
    with pytest.raises(TraceError) as caught:
        list(read_trace(path, strict=True))
    check(caught.value, path)
    assert (caught.value.line, caught.value.field, caught.value.value) == (5, "Request tokens", 0)
    with pytest.raises(TraceError, match=r"burstgpt.csv:3: Request tokens \+ Response tokens: got 1317, .* 1000"):
        list(read_trace(path, strict=True, max_model_len=1000))
    with pytest.raises(TraceError, match=r"output_lens\[1\]: got 0"):
        list(read_trace(DATA / "vllm_bench.json", strict=True))


WHOLE = {path.name: path.read_bytes() for path in DATA.iterdir() if path.suffix != ".md"}


@given(
    name=st.sampled_from(sorted(WHOLE)),
    cut=st.floats(0.0, 1.0),
    junk=st.binary(max_size=12) | st.sampled_from([b",", b"\n", b"-", b"}", b'"', b"nan", b"1e9", b"\x00"]),
    drop=st.integers(0, 12),
    packed=st.booleans(),
    truncated=st.booleans(),
)
def test_damage_anywhere_is_a_trace_error_or_still_a_trace(tmp_path_factory, name, cut, junk, drop, packed, truncated):
    """No other exception leaves the readers, whatever the bytes."""
    whole = WHOLE[name]
    at = int(cut * len(whole))
    content = whole[:at] + junk + (b"" if truncated else whole[at + drop :])
    path = tmp_path_factory.getbasetemp() / "damaged"
    path.write_bytes(gzip.compress(content)[: -drop or None] if packed else content)
    try:
        requests = list(read_trace(path))
    except TraceError as error:
        check(error, path)
    else:
        assert all(r.prompt_tokens > 0 and r.output_tokens > 0 and r.arrival_s >= 0.0 for r in requests)
        assert [r.arrival_s for r in requests] == sorted(r.arrival_s for r in requests)
