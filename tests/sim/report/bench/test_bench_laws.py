"""Laws of a result file: true files keep them, files put together from two runs, or with other units, break them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sim.experiment import simulate
from sim.report.bench.files import read_results
from sim.report.bench.laws import LITTLE, check
from sim.report.result_file import write_json
from workloads import Request

LISTS = ("input_lens", "output_lens", "ttfts", "itls", "start_times", "generated_texts", "errors")


def broken(path: Path) -> set[str]:
    (run,) = read_results(path).values()
    return {law.law for law in check(run) if not law.ok}


def changed(path: Path, **values: Any) -> Path:
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | values), encoding="utf-8")
    return path


def test_little_s_law_by_hand(bench_file) -> None:
    """Two requests of 2 s each, the second sent when the first is done: 1 in flight, half a request per second."""
    path = bench_file("two.json", requests=2)
    lists = {"start_times": [0.0, 2.0], "ttfts": [1.0, 1.0], "itls": [[0.5, 0.5]] * 2, "output_lens": [3, 3]}
    rates = {"request_throughput": 0.5, "output_throughput": 1.5, "total_output_tokens": 6, "duration": 4.0}
    times = {f"mean_{name}_ms": 1000.0 for name in ("ttft",)} | {"mean_tpot_ms": 500.0, "mean_itl_ms": 500.0}
    changed(path, **lists, **rates, **times, max_concurrency=1)
    (run,) = read_results(path).values()
    told = {(law.left_name, law.right_name): (law.left, law.right) for law in check(run) if law.law == LITTLE}
    assert told == {
        ("throughput x mean latency", "mean in flight"): pytest.approx((1.0, 1.0)),
        ("throughput x mean latency", "max_concurrency"): pytest.approx((1.0, 1.0)),
        ("decoding / TPOT", "output tokens/s after the first"): pytest.approx((1.0, 1.0)),
    }
    assert broken(path) == set()


@pytest.mark.parametrize("requests", [20, 200])
def test_a_true_result_breaks_none(bench_file, requests: int) -> None:
    assert broken(bench_file("bench.json", requests=requests)) == set()


def test_times_in_milliseconds_are_caught(bench_file) -> None:
    path = bench_file("bench.json")
    ttfts = json.loads(path.read_text(encoding="utf-8"))["ttfts"]
    assert LITTLE in broken(changed(path, ttfts=[1000 * ttft for ttft in ttfts]))


def test_lists_of_another_run_are_caught(bench_file) -> None:
    """Figures of one run above the lists of another, with as many requests of the same lengths at another speed."""
    other = json.loads(bench_file("other.json", rate=8.0, gap_s=0.03).read_text(encoding="utf-8"))
    path = changed(bench_file("bench.json"), **{name: other[name] for name in LISTS})
    assert broken(path) >= {LITTLE, "Lists"}


def test_a_repetition_s_lists_are_caught(bench_file) -> None:
    """The same load measured again, some percent away: only the arithmetic tells them apart."""
    other = json.loads(bench_file("other.json", seed=2).read_text(encoding="utf-8"))
    path = changed(bench_file("bench.json"), ttfts=other["ttfts"])
    assert broken(path) == {"Lists"}


def test_another_duration_is_caught(bench_file) -> None:
    assert "Rates" in broken(changed(bench_file("bench.json"), duration=25.0))


def test_more_in_flight_than_the_cap_are_caught(bench_file) -> None:
    assert broken(bench_file("bench.json", gap_s=0.05, max_concurrency=4)) >= {"Cap", LITTLE}


def test_without_lists_the_cap_still_bounds(bench_file) -> None:
    """8 requests/s of 2 s each cannot have been 4 at a time."""
    path = bench_file("bench.json", rate=8.0, gap_s=0.04, max_concurrency=4, mean_e2el_ms=2060.0)
    document = json.loads(path.read_text(encoding="utf-8"))
    for name in LISTS:
        del document[name]
    path.write_text(json.dumps(document), encoding="utf-8")
    assert broken(path) == {LITTLE}
    assert broken(changed(path, max_concurrency=40)) == set()


@pytest.mark.parametrize("cap", [None, 4])
def test_elpase_s_own_results_keep_all(tmp_path: Path, cap: int | None) -> None:
    load = [Request(str(i), i / 20, 500 + i, 20 + i) for i in range(60)]
    write_json(simulate(load, max_in_flight=cap).summary(), tmp_path / "result.json")
    assert broken(tmp_path / "result.json") == set()
