"""Two results side by side: errors by hand, and what must be said before they are read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sim.report.bench.compare import compare
from sim.report.bench.files import read_results


def both(left: Path, right: Path):
    (real,), (simulated,) = read_results(left).values(), read_results(right).values()
    return compare(real, simulated)


def test_equal_results_differ_in_nothing(bench_file) -> None:
    told = both(bench_file("a.json"), bench_file("b.json"))
    assert {figure.error for figure in told.figures} == {0.0}
    assert {error for q in told.quantiles for error in q.errors} == {0.0}
    assert [q.metric for q in told.quantiles] == ["ttft", "tpot", "itl", "e2el"]
    assert (told.differences, told.notes, told.sound) == ((), (), True)


def test_each_figure_by_itself(bench_file) -> None:
    """The same draws, every gap 10 % longer, first tokens 20 % earlier: each error is its own, at every quantile."""
    told = both(bench_file("a.json"), bench_file("b.json", gap_s=0.022, ttft_s=0.08))
    errors = {figure.key: figure.error for figure in told.figures}
    for word in ("mean", "median", "p90", "p99"):
        assert errors[f"{word}_ttft_ms"] == pytest.approx(-0.2)
        assert errors[f"{word}_tpot_ms"] == pytest.approx(0.1)
        assert errors[f"{word}_itl_ms"] == pytest.approx(0.1)
    by_metric = {q.metric: list(q.errors) for q in told.quantiles}
    assert by_metric["ttft"] == pytest.approx([-0.2] * 8)
    assert by_metric["itl"] == pytest.approx([0.1] * 9)


def test_errors_that_cancel_are_told(bench_file) -> None:
    """Mean E2EL = TTFT + 49 gaps: 0.5 + 0.98 s. 20 % less and about 10 % more of these is nearly nothing."""
    told = both(bench_file("a.json", ttft_s=0.5), bench_file("b.json", ttft_s=0.4, gap_s=0.022))
    (note,) = told.notes
    assert note.startswith("errors cancel: mean TTFT -20.0 % and TPOT +10.0 %")


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"requests": 100}, "other request counts: 200, 100"),
        ({"model_id": "meta-llama/Llama-3.1-8B"}, "another model: Qwen/Qwen3-14B, meta-llama/Llama-3.1-8B"),
        ({"output": 60}, "other output lengths: "),
        ({"total_input_tokens": 40_000}, "other input lengths: 100.0, 200.0 tokens on average"),
        ({"rate": 5.0}, "other request rates: 4 requests/s, 5 requests/s"),
        ({"request_rate": "inf"}, "other request rates: 4 requests/s, all at once"),
        ({"max_concurrency": 64}, "another cap on requests in flight: none, 64"),
        ({"failed": 3}, "failed requests, which are left out: 0, 3"),
    ],
)
def test_another_workload_is_told(bench_file, more: dict[str, object], told: str) -> None:
    differences = both(bench_file("a.json"), bench_file("b.json", **more)).differences
    assert any(line.startswith(told) for line in differences), differences


def test_owner_and_variant_are_no_other_model(bench_file) -> None:
    assert both(bench_file("a.json"), bench_file("b.json", model_id="qwen3-14b")).differences == ()


def test_arrivals_of_traces_are_compared_by_what_came_about(bench_file) -> None:
    """A trace's rate is nobody's setting: vLLM says inf."""
    slow, fast = bench_file("a.json", request_rate="inf"), bench_file("b.json", rate=8.0, request_rate="inf")
    (difference,) = both(slow, fast).differences
    assert difference.startswith("other arrivals: ")


def test_one_request_is_no_plural(bench_file) -> None:
    told = both(bench_file("a.json"), bench_file("b.json", sim={"partial": True, "unfinished": 1}))
    assert [note.partition(": ")[2] for note in told.notes] == ["cut short: 1 request unfinished"]


def test_what_a_simulation_says_against_itself_is_told(bench_file) -> None:
    sim = {"elpase_version": "0.1.0", "vllm_semantics": "0.32", "partial": True, "unfinished": 7,
           "extrapolated_share": 0.25, "load": {"ordering_only": True}}  # fmt: skip
    told = both(bench_file("a.json"), bench_file("b.json", sim=sim))
    assert [note.partition(": ")[2] for note in told.notes] == [
        "cut short: 7 requests unfinished",
        "at its capacity: its waiting times are good for ordering settings, not as numbers",
        "25 % of its steps lie outside what the profile was fitted on",
    ]
    assert {note.partition(": ")[0] for note in told.notes} == {"simulated"}
    assert told.simulated.facts["vLLM"] == "0.32"


def test_only_what_both_have_is_compared(bench_file) -> None:
    """Without --save-detailed: stated figures, no quantiles."""
    bare = bench_file("b.json")
    document = json.loads(bare.read_text(encoding="utf-8"))
    kept = {key: value for key, value in document.items() if not isinstance(value, list) and "p99_itl" not in key}
    bare.write_text(json.dumps(kept), encoding="utf-8")
    told = both(bench_file("a.json"), bare)
    keys = [figure.key for figure in told.figures]
    assert "p99_tpot_ms" in keys
    assert not {"p99_itl_ms", "p90_ttft_ms", "mean_e2el_ms"} & set(keys)
    assert told.quantiles == ()
