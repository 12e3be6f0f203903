"""`summarize` equals vLLM: the benchmark of vLLM 0.32 itself saved the golden results (see vllm_reference.py)."""

from __future__ import annotations

import json
import math
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sim.errors import InputError
from sim.report import result_file
from sim.report.frames import Frames, Itls
from sim.report.result_file import write_json
from sim.report.summary import SummaryOptions, summarize, summarize_as_arrays

HERE = Path(__file__).parent
GOLDEN = json.loads((HERE / "golden/bench_serve.json").read_text())["cases"]


def frames_of(case: dict, toy_run) -> Frames:
    """The frames of a run in which the client saw these outputs."""
    outputs = case["outputs"]
    requests = pd.DataFrame(
        {
            "request_id": str(i), "priority": 0, "arrival_s": o["arrival_s"], "send_s": o["start_time"],
            "queued_s": o["start_time"], "scheduled_s": o["start_time"] if o["ttft"] else math.nan,
            "first_token_s": o["start_time"] + o["ttft"] if o["ttft"] else math.nan,
            "finish_s": o["start_time"] + o["latency"] if o["success"] else math.nan,
            "prompt_tokens": o["prompt_len"], "output_tokens": o["output_tokens"], "cached_tokens": 0,
            "preemptions": 0, "recomputed_tokens": 0,
            "status": "finished" if o["success"] else "unfinished" if o["error"] == "unfinished" else "rejected",
            "error": "" if o["error"] == "unfinished" else o["error"],
        }
        for i, o in enumerate(outputs)
    )  # fmt: skip
    offsets = np.cumsum([0] + [len(o["itl"]) for o in outputs])
    itls = Itls(np.array([gap for o in outputs for gap in o["itl"]], dtype=float), offsets)
    steps = toy_run(requests=1).steps.head(1).assign(start_s=0.0, end_s=case["duration_s"])
    said = dict(zip(case["argv"][::2], case["argv"][1::2], strict=False))
    rate, cap = said.get("--request-rate"), said.get("--max-concurrency")
    meta = {"model": "toy", "label": said.get("--label"), "max_concurrency": cap and int(cap)}
    meta |= {"request_rate": rate and float(rate), "burstiness": float(said.get("--burstiness", 1))}
    return Frames(requests, itls, steps, meta)


def options_of(argv: list[str]) -> SummaryOptions:
    flags = {"--percentile-metrics": "percentile_metrics", "--metric-percentiles": "metric_percentiles"}
    said = {name: argv[argv.index(flag) + 1] for flag, name in flags.items() if flag in argv}
    return SummaryOptions.parse(**said, goodput=argv[argv.index("--goodput") + 1 :] if "--goodput" in argv else ())


def without_clock(result: dict) -> dict:
    return {key: value for key, value in result.items() if key not in ("date", "sim")}


@pytest.mark.parametrize("name", GOLDEN)
def test_every_key_and_figure_equals_what_vllm_saved_in_its_order(name, toy_run):
    case = GOLDEN[name]
    result = summarize(frames_of(case, toy_run), options_of(case["argv"]))
    assert list(result) == [*case["result"], "sim"]
    assert without_clock(result) == without_clock(case["result"])


@pytest.mark.skipif("ELPASE_VLLM_PYTHON" not in os.environ, reason="ELPASE_VLLM_PYTHON names no interpreter with vLLM")
def test_vllm_itself_saves_and_prints_the_same_of_whole_runs(toy_run):
    """Golden cases again, and toy runs with times that are not on any grid, through vLLM's own benchmark()."""
    argv = ["--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "50,90,99,99.9"]
    runs = {
        "open": (toy_run(requests=200, rate=12.0), [*argv, "--goodput", "ttft:70", "tpot:15", "e2el:1000"]),
        "capped": (toy_run(requests=150, rate=30.0, cap=16), [*argv, "--max-concurrency", "16"]),
        "cut": (toy_run(requests=150, rate=30.0, stop_s=4.0, max_model_len=1500), argv),
    }
    cases = {name: as_case(frames, argv) for name, (frames, argv) in runs.items()}
    answers = vllm_says(cases | GOLDEN)
    for name, (frames, argv) in runs.items():
        result = summarize(frames, options_of(argv))
        assert without_clock(result) == without_clock(answers[name]["result"])
    for name, case in GOLDEN.items():
        assert without_clock(answers[name]["result"]) == without_clock(case["result"])
        assert answers[name]["table"] == case["table"]


def as_case(frames: Frames, argv: list[str]) -> dict:
    def output(i: int, r: dict) -> dict:
        sent, ok = r["send_s"] == r["send_s"], r["status"] == "finished"
        return {
            "arrival_s": r["arrival_s"], "start_time": r["send_s"] if sent else r["arrival_s"], "success": ok,
            "ttft": r["first_token_s"] - r["send_s"] if r["first_token_s"] == r["first_token_s"] else 0.0,
            "latency": r["finish_s"] - r["send_s"] if ok else 0.0, "itl": frames.itls.row(i).tolist(),
            "output_tokens": r["output_tokens"], "prompt_len": r["prompt_tokens"],
            "error": "" if ok else r["error"] or r["status"],
        }  # fmt: skip

    outputs = [output(i, r) for i, r in enumerate(frames.requests.to_dict("records"))]
    return {"argv": ["--model", "toy", *argv], "duration_s": summarize(frames)["duration"], "outputs": outputs}


def vllm_says(cases: dict) -> dict:
    told = json.dumps({"cases": cases})
    command = [os.environ["ELPASE_VLLM_PYTHON"], str(HERE / "vllm_reference.py")]
    done = subprocess.run(command, input=told, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["cases"]


def test_a_run_without_requests_is_all_zeros_and_strict_json(toy_run, tmp_path):
    result = summarize(toy_run(requests=0))
    write_json(result, tmp_path / "result.json")
    assert json.loads((tmp_path / "result.json").read_text()) == result
    assert result["request_throughput"] == result["p99_ttft_ms"] == result["duration"] == 0.0


def test_the_same_run_gives_the_same_bytes(toy_run, tmp_path):
    for name in ("a", "b"):
        write_json(summarize(toy_run()), tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("piece", [7, 4096])
def test_the_file_is_what_json_writes(toy_run, tmp_path, monkeypatch, piece):
    """However little of it is text at one time."""
    monkeypatch.setattr(result_file, "_PIECE", piece)
    monkeypatch.setattr(result_file, "_MOST_TEXTS", piece)
    result = summarize(toy_run())
    write_json(result, tmp_path / "result.json")
    assert any(result["itls"])
    assert (tmp_path / "result.json").read_text() == json.dumps(result) + "\n"
    write_json(summarize_as_arrays(toy_run(), SummaryOptions()), tmp_path / "arrays.json")
    assert (tmp_path / "arrays.json").read_text() == json.dumps(result) + "\n"
    with pytest.raises(ValueError, match="nan"):
        write_json({"itls": [[math.nan]]}, tmp_path / "result.json")


def test_an_infinite_rate_is_written_as_vllm_writes_it(toy_run):
    frames = toy_run(requests=2)
    assert summarize(replace(frames, meta={**frames.meta, "request_rate": math.inf}))["request_rate"] == "inf"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"percentile_metrics": "ttft,tpt"}, "--percentile-metrics: got 'tpt'"),
        ({"metric_percentiles": "50,101"}, "--metric-percentiles: got '101', expected numbers from 0 to 100"),
        ({"metric_percentiles": "p99"}, "--metric-percentiles: got 'p99'"),
        (
            {"goodput": ["itl:20"]},
            "--goodput: got 'itl:20', expected NAME:MILLISECONDS with a name of ttft, tpot, e2el",
        ),
        ({"goodput": ["ttft"]}, "--goodput: got ''"),
        ({"goodput": ["ttft:-1"]}, "--goodput: got '-1', expected a number of milliseconds from 0 "),
        ({"goodput": ["ttft:inf"]}, "--goodput: got 'inf', expected a number of milliseconds from 0 to 1e"),
        ({"goodput": ["ttft:1e400"]}, "--goodput: got '1e400'"),
        ({"goodput": ["ttft:nan"]}, "--goodput: got 'nan'"),
    ],
)
def test_a_wrong_selection_is_told_in_one_line(said, told):
    with pytest.raises(InputError, match="^" + told):
        SummaryOptions.parse(**said)
