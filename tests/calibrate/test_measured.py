"""Every kind of measured run: found out, read, replayed; and a perfect server has no errors in any of them."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from calibrate import guidellm
from calibrate.cli_validate import command
from calibrate.measured import Replay, read_runs
from calibrate.step_cycles import StepCycles
from calibrate.validate import compare, of_profile
from sim.config import EngineConfig
from sim.errors import InputError
from sim.experiment import simulate
from sim.latency import Profile
from sim.latency.shape import StepShape
from workloads import Request

# Its server hid the host; a synchronous one here waits for an estimate of it.
pytestmark = pytest.mark.filterwarnings("ignore:a synchronous step waits for the host")

PROFILE = replace(Profile.load("h100-qwen3-14b"), model="llama-3.1-8b")

NAMED = "isl,osl,model,strategy,rate,dur_s,rps,lat_mean_s,ttft_mean,ttft_p50,itl_mean,itl_p50,out_tps"
NUMBERED = "model,isl,osl,idx,req_per_s,ttft_mean,ttft_p50,itl_mean,itl_p50,e2e_mean,thr_mean"
LLAMA = "meta-llama/Llama-3.1-8B"


@pytest.fixture
def named(tmp_path: Path) -> Path:
    """A sweep with strategy names."""
    path = tmp_path / "named.csv"
    rows = [
        f"64,32,{LLAMA},synchronous,,20,1.5,0.5,20,19,7,7,50",
        f"64,32,{LLAMA},throughput,,20,40,0.6,30,29,17,17,60",
        f"64,32,{LLAMA},constant,5.5,20,5.4,0.7,21,20,8,8,70",
    ]
    path.write_text("\n".join([NAMED, *rows]) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def numbered(tmp_path: Path) -> Path:
    """A sweep with numbered rows."""
    path = tmp_path / "numbered.csv"
    rows = [f"{LLAMA},64,32,{i},{rps},20,19,7,7,0.5,50" for i, rps in ((0, 1.0), (1, 9.0), (2, 1.9), (9, 8.8))]
    path.write_text("\n".join([NUMBERED, *rows]) + "\n", encoding="utf-8")
    return path


def replays(path: Path) -> list[Replay]:
    runs = read_runs(path)
    assert all(isinstance(run, Replay) for run in runs)
    return runs  # type: ignore[return-value]


# GuideLLM


def test_points_of_a_sweep_with_names(named: Path) -> None:
    alone, full, constant = replays(named)
    names = [run.name for run in (alone, full, constant)]
    assert names == ["64/32 synchronous", "64/32 throughput", "64/32 constant 5.50/s"]
    assert (alone.max_in_flight, full.max_in_flight) == (1, 512)
    assert constant.load == pytest.approx(5.5 / 40)
    assert constant.until_s == 20
    assert alone.real == {
        "throughput": 50, "ttft_mean": 0.020, "ttft_p50": 0.019, "itl_mean": 0.007, "itl_p50": 0.007, "e2e_mean": 0.5,
    }  # fmt: skip


def test_points_of_a_sweep_with_numbers(numbered: Path) -> None:
    """Eight constant rates lie evenly between the two first rows' rates, the second included."""
    alone, full, first, last = replays(numbered)
    assert (alone.max_in_flight, full.max_in_flight) == (1, 512)
    assert first.name == "64/32 constant 2.00/s"
    assert last.name == "64/32 constant 9.00/s"
    assert last.load == 1.0


def test_a_constant_rate_starts_with_a_second_s_burst(named: Path) -> None:
    constant = replays(named)[2]
    arrivals = [request.arrival_s for request in islice(constant.requests(), 8)]
    assert arrivals == pytest.approx([0, 0, 0, 0, 0, 1 / 5.5, 2 / 5.5, 3 / 5.5])


def test_lengths_are_those_of_guidellm() -> None:
    """Mean outputs that GuideLLM 0.3 reported for the first 54, 52 and 11 requests of three synchronous runs."""
    for osl, count, mean in ((1024, 54, 973.8888888888887), (1024, 52, 975.5), (4096, 11, 4410.272727272727)):
        point = guidellm.Point(LLAMA, 1024, osl, guidellm.SYNCHRONOUS, None, None, 360.0, {})
        assert point.mean_lengths(count)[1] == pytest.approx(mean, abs=1e-9)


def test_only_what_was_answered_in_time_counts() -> None:
    """One request at a time for one second; the last one is not done by then."""
    point = guidellm.Point(LLAMA, 64, 32, guidellm.SYNCHRONOUS, None, None, 1.0, {})
    done = simulate(islice(point.requests(), 6), None, PROFILE, max_in_flight=1)
    within = done.requests[done.requests["finish_s"] <= 1.0]
    assert 0 < len(within) < 6
    figures = point.measure(done)
    assert figures["throughput"] == pytest.approx(within["output_tokens"].sum())
    gaps = within["output_tokens"] - 1
    streaming = within["finish_s"] - within["first_token_s"]
    assert figures["itl_mean"] == pytest.approx(streaming.sum() / gaps.sum()), "every gap weighs the same"
    assert figures["ttft_mean"] == pytest.approx((within["first_token_s"] - within["send_s"]).mean())


def test_a_clock_that_jumped(tmp_path: Path, named: Path) -> None:
    path = tmp_path / "jumped.csv"
    text = named.read_text(encoding="utf-8").replace(",21,20,", ",-2e8,20,").replace(",70", ",2e-3")
    path.write_text(text, encoding="utf-8")
    assert set(replays(path)[2].real) == {"ttft_p50", "itl_mean", "itl_p50", "e2e_mean"}


# The other kinds


def served_folder(folder: Path, requests: list[Request], profile: Profile) -> Path:
    """What a server that is as the profile says would have recorded; its clocks start anywhere."""
    settings = {"max_num_seqs": 4, "max_num_batched_tokens": 512, "async_scheduling": False}
    config = EngineConfig(**settings, num_gpu_blocks_override=400, max_model_len=4096)  # type: ignore[arg-type]
    done = simulate(requests, config, profile).requests
    rows = [
        {
            "request_id": row.request_id, "input_toks": row.prompt_tokens, "output_toks": row.output_tokens,
            "arrival_time": 1e9 + row.arrival_s, "queued_ts": 500 + row.queued_s, "scheduled_ts": 500 + row.scheduled_s,
            "first_token_ts": 500 + row.first_token_s, "last_token_ts": 500 + row.finish_s,
        }
        for row in done.itertuples()
    ]  # fmt: skip
    (folder / "requests.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    meta = {
        "model": LLAMA, "engine_kwargs": {"max_num_seqs": 4, "max_model_len": 4096},
        "kv_cache": {"num_gpu_blocks": 400}, "resolved_config": {"scheduler_config": settings},
    }  # fmt: skip
    (folder / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
    (folder / "timeseries.csv").write_text("t,running,waiting\n0.5,4,2\n1.0,3,0\n", encoding="utf-8")
    return folder


BUSY = [Request(str(i), 0.02 * i, 200 + i, 30) for i in range(20)]
IN_ENGINE = replace(PROFILE, client=replace(PROFILE.client, request_s=0.0, request_token_s=0.0))


def test_a_perfect_server_s_folder(tmp_path: Path) -> None:
    """Its flags and blocks are taken from meta.json: 4 sequences at a time make most requests wait."""
    (run,) = replays(served_folder(tmp_path, BUSY, IN_ENGINE))
    assert run.settings["num_gpu_blocks_override"] == 400
    assert run.settings["max_num_seqs"] == 4
    assert run.timeseries is not None
    comparison = compare(run, IN_ENGINE)
    assert set(comparison.errors) > {"makespan", "ttft_mean", "tpot_mean"}
    assert comparison.errors == {name: pytest.approx(0.0, abs=1e-6) for name in comparison.errors}
    assert comparison.real["ttft_mean"] > 0.5


def test_flags_stand_above_the_folder_s(tmp_path: Path) -> None:
    (run,) = replays(served_folder(tmp_path, BUSY, IN_ENGINE))
    assert compare(run, IN_ENGINE, EngineConfig(max_num_seqs=20)).errors["ttft_mean"] < -0.5


def bench(path: Path, requests: list[Request], cap: int | None, **more: object) -> Path:
    """What `vllm bench serve --save-detailed` would have written of the profile's server."""
    summary = simulate(requests, None, PROFILE, max_in_flight=cap).summary()
    path.write_text(json.dumps({**summary, "max_concurrency": cap, **more}), encoding="utf-8")
    return path


def test_a_perfect_server_s_bench_result(tmp_path: Path) -> None:
    (run,) = replays(bench(tmp_path / "bench.json", BUSY, None))
    assert run.max_in_flight is None
    assert compare(run, PROFILE).errors == {name: pytest.approx(0.0, abs=1e-6) for name in run.real}


def test_behind_a_cap_all_requests_arrive_at_once(tmp_path: Path) -> None:
    """When each was sent is the real server's doing."""
    requests = [replace(request, arrival_s=0.0) for request in BUSY]
    (run,) = replays(bench(tmp_path / "bench.json", requests, 4, request_rate="inf"))
    assert {request.arrival_s for request in run.requests()} == {0.0}
    assert run.max_in_flight == 4
    assert compare(run, PROFILE).errors == {name: pytest.approx(0.0, abs=1e-6) for name in run.real}


CYCLES = (
    "experiment_id,model,tp,batch_num_prefill_reqs,batch_prefill_tokens,batch_num_decode_reqs,kv_used_tokens,cycle_us"
)


@pytest.fixture
def cycles(tmp_path: Path) -> Path:
    """Cycles of the profile's own steps, one after the other, of two models."""
    law = PROFILE.law
    decode = law.price(StepShape(20, 20, 20_000, 0, 0.0, 20)).device_s * 1e6
    mixed = law.price(StepShape(419, 21, 20_000, 399, 399 * (601 + 199.5), 21)).device_s * 1e6
    rows = [
        f"a,llama-3.1-8b,1,0,0,20,20000,{decode}",
        f"a,llama-3.1-8b,1,1,1,19,20000,{decode}",
        f"a,llama-3.1-8b,1,1,399,20,21000,{mixed}",
        f"b,llama-3.1-70b,4,0,0,20,20000,{decode}",
    ]
    path = tmp_path / "cycles.csv"
    path.write_text("\n".join([CYCLES, *rows]) + "\n", encoding="utf-8")
    return path


def test_step_cycles_are_priced_one_by_one(cycles: Path) -> None:
    """A prompt with one token left is computed as a decode row is; without compositions all contexts are alike."""
    runs, others = of_profile(read_runs(cycles), PROFILE)
    assert others == ["b"]
    (run,) = runs
    assert isinstance(run, StepCycles)
    assert (run.shapes[1].num_tokens, run.shapes[1].chunk_tokens) == (20, 0)
    comparison = compare(run, PROFILE)
    assert comparison.errors["step_median_abs"] == pytest.approx(0.0, abs=1e-9)
    assert comparison.errors["step_p90_abs"] == pytest.approx(0.0, abs=1e-4)
    assert comparison.errors["cycle_mean"] == pytest.approx(0.0, abs=1e-4)


def test_a_cycle_hides_the_host_under_async_scheduling(cycles: Path) -> None:
    run = read_runs(cycles)[0]
    slow_host = replace(PROFILE, law=replace(PROFILE.law, host_step_s=0.004))
    hidden = run.priced(slow_host, async_scheduling=True)
    told = run.priced(slow_host, async_scheduling=False)
    np.testing.assert_allclose(told - hidden, 0.004)


def test_another_model_s_run(cycles: Path, named: Path) -> None:
    with pytest.raises(InputError, match=r"got 'llama-3.1-70b on 4 GPUs, llama-3.1-8b on 1 GPU', expected qwen3-14b"):
        of_profile(read_runs(cycles), Profile.load("h100-qwen3-14b"))
    with pytest.raises(InputError, match=r"got 'meta-llama/Llama-3.1-8B', expected qwen3-14b"):
        of_profile(read_runs(named), Profile.load("h100-qwen3-14b"))
    assert len(of_profile(read_runs(named), PROFILE)[0]) == 3, "owner and case do not matter"


# Bad files


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("itl_mean,", "itl,", "named.csv:1: itl_mean: missing column"),
        ("strategy", "kind", "named.csv:1: strategy: missing column"),
        (",8,8,70", ",0,8,70", "named.csv:4: itl_mean: got '0', expected a number > 0"),
    ],
)
def test_bad_sweeps(named: Path, old: str, new: str, told: str) -> None:
    named.write_text(named.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    with pytest.raises(InputError) as error:
        read_runs(named)
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("kv_used_tokens", "kv", "cycles.csv:1: kv_used_tokens: missing column"),
        ("b,llama-3.1-70b,4,0,0,20,20000", "b,llama-3.1-70b,0,0,0,20,20000", "cycles.csv:5: tp: got '0', expected"),
    ],
)
def test_bad_cycles(cycles: Path, old: str, new: str, told: str) -> None:
    cycles.write_text(cycles.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    with pytest.raises(InputError) as error:
        read_runs(cycles)
    assert told in str(error.value)


ROW = {"arrival_time": 1, "queued_ts": 1, "first_token_ts": 4, "last_token_ts": 6, "input_toks": 1, "output_toks": 2}


@pytest.mark.parametrize(
    ("file", "content", "told"),
    [
        ("requests.jsonl", "", "requests.jsonl: no rows"),
        ("requests.jsonl", "{", "requests.jsonl:1: not JSON"),
        ("requests.jsonl", "[1]", "requests.jsonl:1: arrival_time: expected a number >= 0"),
        ("requests.jsonl", json.dumps({**ROW, "queued_ts": 5}), "requests.jsonl:1: times out of order"),
        (
            "requests.jsonl",
            json.dumps({**ROW, "input_toks": 0}),
            "requests.jsonl:1: input_toks: got 0, expected a number",
        ),
        ("meta.json", "{}", "meta.json: model: missing"),
        ("meta.json", '{"model": "x", "kv_cache": {}}', "meta.json: kv_cache.num_gpu_blocks: missing"),
        ("timeseries.csv", "t,running\n1,2\n", "timeseries.csv:1: waiting: missing column"),
    ],
)
def test_bad_folders(tmp_path: Path, file: str, content: str, told: str) -> None:
    served_folder(tmp_path, BUSY[:2], IN_ENGINE)
    (tmp_path / file).write_text(content, encoding="utf-8")
    with pytest.raises(InputError) as error:
        read_runs(tmp_path)
    assert told in str(error.value)


def test_a_folder_of_something_else_is_told_what_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has no meta\.json, expected a run recorded inside the server"):
        read_runs(tmp_path)


LISTS = {"input_lens": [1], "output_lens": [2], "ttfts": [0.1], "itls": [[0.1]], "start_times": [0]}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("[]", "expected a result of vllm bench serve"),
        ("{", "not JSON"),
        ('{"input_lens": [1]}', "output_lens: expected a list: was it written with --save-detailed?"),
        (json.dumps({**LISTS, "start_times": []}), "different lengths"),
        (json.dumps({**LISTS, "ttfts": [-1]}), "ttfts[0]: got -1"),
        (json.dumps({**LISTS, "ttfts": [0.0]}), "no request was answered"),
    ],
)
def test_bad_bench_results(tmp_path: Path, content: str, told: str) -> None:
    path = tmp_path / "bench.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InputError) as error:
        read_runs(path)
    assert told in str(error.value)


def test_a_cap_in_flight_means_nothing_for_single_steps(cycles: Path) -> None:
    done = CliRunner().invoke(
        command, ["--measured", str(cycles), "--profile", "h100-llama-3.1-8b", "--max-in-flight", "2"]
    )
    assert isinstance(done.exception, InputError)
    assert "--max-in-flight: single steps were measured here" in str(done.exception)
