"""GuideLLM's reports. data/guidellm_0.8.1.json was written by GuideLLM 0.8.1 against its own mock server (24 requests,
6 per second), and cut down to what is read."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from sim.errors import InputError
from sim.report.bench.files import read_results
from sim.report.bench.laws import LITTLE, check

DATA = Path(__file__).parent / "data" / "guidellm_0.8.1.json"
REPORT = json.loads(DATA.read_text(encoding="utf-8"))


def write(path: Path, report: dict[str, Any]) -> Path:
    path.write_text(json.dumps(report), encoding="utf-8")
    return path


def test_what_guidellm_wrote_is_read() -> None:
    ((name, run),) = read_results(DATA).items()
    (benchmark,) = REPORT["benchmarks"]
    metrics = benchmark["metrics"]
    assert name == "guidellm_0.8.1"
    assert (run.source, run.model) == ("GuideLLM 0.8.1", "mock/tiny")
    assert (run.completed, run.failed, run.output_tokens) == (24, 0, 24 * 24)
    assert (run.request_rate, run.max_concurrency) == (6.0, 10_240)
    figures = run.figures()
    assert figures["mean_ttft_ms"] == pytest.approx(metrics["time_to_first_token_ms"]["successful"]["mean"])
    assert figures["mean_e2el_ms"] == pytest.approx(1000 * metrics["request_latency"]["successful"]["mean"])
    assert figures["output_throughput"] == metrics["output_tokens_per_second"]["successful"]["mean"]


def test_its_itl_of_a_request_is_vllm_s_tpot() -> None:
    """(last token - first token) / (tokens - 1); its TPOT counts the first token too."""
    (run,) = read_results(DATA).values()
    theirs = [request["inter_token_latency_ms"] for request in REPORT["benchmarks"][0]["requests"]["successful"]]
    assert 1000 * run.seconds("tpot").mean() == pytest.approx(sum(theirs) / len(theirs))
    assert run.seconds("itl") is None  # no gap by itself is told


def test_it_keeps_the_laws() -> None:
    """Its own mean of requests in flight is counted another way than throughput x latency."""
    (run,) = read_results(DATA).values()
    laws = check(run)
    assert all(law.ok for law in laws)
    (little,) = [law for law in laws if law.right_name == "mean in flight"]
    measured = REPORT["benchmarks"][0]["metrics"]["request_concurrency"]["successful"]["mean"]
    assert little.left == pytest.approx(measured, rel=0.01)


def test_seconds_taken_for_milliseconds_are_caught(tmp_path: Path) -> None:
    report = copy.deepcopy(REPORT)
    for request in report["benchmarks"][0]["requests"]["successful"]:
        request["request_latency"] *= 1000
    (run,) = read_results(write(tmp_path / "bad.json", report)).values()
    assert LITTLE in {law.law for law in check(run) if not law.ok}


def test_several_benchmarks_are_named_by_their_strategies(tmp_path: Path) -> None:
    report = copy.deepcopy(REPORT)
    (one,) = report["benchmarks"]
    for strategy in ({"type_": "synchronous"}, {"type_": "concurrent", "streams": 8}, {"type_": "throughput"},
                     {"type_": "poisson", "rate": 2.5}, {"type_": "constant", "rate": 6.0}):  # fmt: skip
        report["benchmarks"].append(copy.deepcopy(one) | {"config": one["config"] | {"strategy": strategy}})
    runs = read_results(write(tmp_path / "benchmarks.json", report))
    assert list(runs) == [
        "constant@6.00", "synchronous", "concurrent@8", "throughput", "poisson@2.50", "constant@6.00#2",
    ]  # fmt: skip
    assert [runs[name].max_concurrency for name in ("synchronous", "concurrent@8", "throughput")] == [1, 8, None]


def test_a_strategy_s_name_cannot_write_over_the_terminal(tmp_path: Path) -> None:
    report = copy.deepcopy(REPORT)
    (one,) = report["benchmarks"]
    strategy = {"type_": "sweep\n\x1b[31m"}
    report["benchmarks"].append(copy.deepcopy(one) | {"config": one["config"] | {"strategy": strategy}})
    assert list(read_results(write(tmp_path / "benchmarks.json", report))) == ["constant@6.00", "sweep [31m"]


def test_without_requests_what_is_stated_counts(tmp_path: Path) -> None:
    """--metrics sample_size=0. Its ITL percentiles are of means of requests, so only its mean is vLLM's."""
    report = copy.deepcopy(REPORT)
    report["benchmarks"][0]["requests"]["successful"] = []
    (run,) = read_results(write(tmp_path / "short.json", report)).values()
    assert run.sampled
    assert {"mean_itl_ms", "p99_ttft_ms", "p99_e2el_ms"} <= set(run.figures())
    assert not {"p99_itl_ms", "mean_tpot_ms"} & set(run.figures())
    assert "lists 0 of its 24 requests" in run.cautions[0]
    assert all(law.ok for law in check(run))


@pytest.mark.parametrize(
    ("where", "value", "told"),
    [
        (("metadata", "version"), 3, "metadata.version: got 3, expected report schema 1 or 2, as of GuideLLM 0.5"),
        (("benchmarks",), [], "no benchmark in it"),
        (("benchmarks", 0, "metrics", "request_totals", "successful"), 0, "no request was answered"),
        (("benchmarks", 0, "requests", "successful", 3, "request_latency"), None,
         "benchmarks[0].requests.successful[3].request_latency: missing"),
        (("benchmarks", 0, "metrics", "request_latency", "successful", "mean"), float("nan"),
         "benchmarks[0].metrics.request_latency.successful.mean: got nan"),
    ],
)  # fmt: skip
def test_what_will_not_do_is_named(tmp_path: Path, where: tuple[Any, ...], value: object, told: str) -> None:
    report = copy.deepcopy(REPORT)
    place = report
    for key in where[:-1]:
        place = place[key]
    place[where[-1]] = value
    with pytest.raises(InputError) as error:
        read_results(write(tmp_path / "bad.json", report))
    assert told in str(error.value)
