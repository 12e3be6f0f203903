"""AIPerf's results. data/aiperf_0.13/ was written by AIPerf 0.13.0 against GuideLLM's mock server (20 requests, 4 at a
time), and cut down to what is read. Its client counted tokens with a tokenizer that was not the server's: 11 of 24."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sim.errors import InputError
from sim.report.bench.aiperf import RECORDS_FILE, SUMMARY_FILE
from sim.report.bench.files import read_results
from sim.report.bench.laws import check
from sim.report.bench.run import BenchRun

DATA = Path(__file__).parent / "data" / "aiperf_0.13"
SUMMARY = json.loads((DATA / SUMMARY_FILE).read_text(encoding="utf-8"))


def the_run(path: Path) -> BenchRun:
    (run,) = read_results(path).values()
    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DATA, tmp_path / "copy"))


def rewrite(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change every record."""
    records = [json.loads(line) for line in (folder / RECORDS_FILE).read_text(encoding="utf-8").splitlines()]
    for record in records:
        change(record)
    (folder / RECORDS_FILE).write_text("\n".join(map(json.dumps, records)), encoding="utf-8")


def test_what_aiperf_wrote_is_read() -> None:
    run = the_run(DATA)
    assert (run.name, run.source, run.model) == ("aiperf_0.13", "AIPerf 0.13.0", "mock/tiny")
    assert (run.completed, run.failed, run.max_concurrency) == (20, 0, 4)
    figures = run.figures()
    for ours, theirs in (("ttft", "time_to_first_token"), ("tpot", "inter_token_latency"), ("e2el", "request_latency"),
                         ("itl", "inter_chunk_latency")):  # fmt: skip
        for word, statistic in (("mean", "avg"), ("median", "p50"), ("p99", "p99")):
            assert figures[f"{word}_{ours}_ms"] == pytest.approx(SUMMARY[theirs][statistic], rel=1e-3)
    assert figures["output_throughput"] == SUMMARY["output_token_throughput"]["avg"]


def test_a_client_with_another_tokenizer_is_caught() -> None:
    """It saw 23 gaps of each answer, and counted 11 tokens."""
    (law,) = [law for law in check(the_run(DATA)) if not law.ok]
    assert (law.left_name, law.left, law.right) == ("gaps between chunks", 460.0, 200.0)


def test_with_the_server_s_count_all_laws_hold(folder: Path) -> None:
    def count(record: dict[str, Any]) -> None:
        metrics = record["metrics"]
        metrics["output_sequence_length"] = metrics["usage_completion_tokens"]
        decode_ms = metrics["request_latency"]["value"] - metrics["time_to_first_token"]["value"]
        metrics["inter_token_latency"]["value"] = decode_ms / 23

    rewrite(folder, count)
    summary = {**SUMMARY, "total_osl": {"unit": "tokens", "avg": 480.0}}
    summary["output_token_throughput"] = {"unit": "tokens/sec", "avg": 480 / SUMMARY["benchmark_duration"]["avg"]}
    del summary["inter_token_latency"]
    (folder / SUMMARY_FILE).write_text(json.dumps(summary), encoding="utf-8")
    laws = check(the_run(folder))
    assert [law for law in laws if not law.ok] == []
    assert len(laws) >= 7


def test_without_records_what_is_stated_counts(folder: Path) -> None:
    (folder / RECORDS_FILE).unlink()
    run = the_run(folder / SUMMARY_FILE)
    assert run.requests is None
    assert run.figures()["p99_ttft_ms"] == SUMMARY["time_to_first_token"]["p99"]
    (little,) = [law for law in check(run) if law.right_name == "mean in flight"]
    assert little.ok
    assert little.right == SUMMARY["effective_concurrency"]["avg"]


def test_warm_up_and_failures_do_not_count(folder: Path) -> None:
    seen = iter(range(100))

    def spoil(record: dict[str, Any]) -> None:
        number = next(seen)
        if number == 0:
            record["metadata"]["benchmark_phase"] = "warmup"
        if number == 1:
            record["metadata"]["was_cancelled"] = True
        if number == 2:
            record["error"] = {"code": 500}

    rewrite(folder, spoil)
    assert len(the_run(folder).requests) == 17


def test_what_it_says_against_itself_is_told(folder: Path) -> None:
    said = {**SUMMARY, "was_cancelled": True, "is_complete": False, "incomplete_reason": "records stalled"}
    (folder / SUMMARY_FILE).write_text(json.dumps(said), encoding="utf-8")
    assert the_run(folder).cautions == ("cancelled before its end", "not complete: records stalled")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"schema_version": "2.0"}, "schema_version: got '2.0', expected an export of schema 1.x, as of AIPerf 0.13"),
        ({"request_count": {"unit": "requests", "avg": 0}}, "no request was answered"),
        ({"request_count": None}, "request_count: missing"),
        ({"time_to_first_token": {"unit": "s", "avg": 1}}, "time_to_first_token.unit: got 's', expected ms"),
        ({"request_latency": {"unit": "ms", "avg": float("nan")}}, "request_latency.avg: got nan"),
    ],
)
def test_a_summary_that_will_not_do_is_named(folder: Path, change: dict[str, Any], told: str) -> None:
    (folder / SUMMARY_FILE).write_text(json.dumps({**SUMMARY, **change}), encoding="utf-8")
    with pytest.raises(InputError) as error:
        read_results(folder)
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "no answered request in it"),
        ("{", ":1: not JSON"),
        ("[" * 100_000, ":1: not JSON that can be read: nested too deep"),
        ("[]", ":1: got []"),
        ('{"metadata": {"benchmark_phase": "profiling", "request_start_ns": 1}, "metrics": {}}',
         "line 1: metrics.request_latency: missing"),
    ],
)  # fmt: skip
def test_a_record_that_will_not_do_is_named(folder: Path, content: str, told: str) -> None:
    (folder / RECORDS_FILE).write_text(content, encoding="utf-8")
    with pytest.raises(InputError) as error:
        read_results(folder)
    assert told in str(error.value)
