"""A result says how it was made: enough to make it again, byte by byte, and nothing of the machine."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import sim
from sim import EngineConfig, Profile, simulate
from workloads import builtin

AZURE = Path(__file__).parents[2] / "workloads/data/azure_2023.csv"

pytestmark = pytest.mark.usefixtures("no_pictures")


@pytest.fixture
def made(elpase, tmp_path):
    """The bytes of a run's result.json."""

    def run(*args: object) -> bytes:
        done = elpase("replay", *args, "--out", tmp_path / "out")
        assert done.code == 0, done.err
        return (tmp_path / "out/result.json").read_bytes()

    return run


def block(text: bytes) -> dict[str, Any]:
    sim: dict[str, Any] = json.loads(text)["sim"]
    return sim


def as_arguments(sim: dict[str, Any]) -> list[object]:
    """A command line of what a result says."""
    args: list[object] = [sim["trace"]]
    for name, value in sim["flags"].items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            args.append(flag if value else f"--no-{flag[2:]}")
        elif isinstance(value, list):
            args += [word for item in value for word in (flag, item)]
        else:
            args += [flag, json.dumps(value) if isinstance(value, dict) else value]
    return args


@pytest.mark.parametrize(
    "args",
    [
        ("azure-conv", "--limit", 20, "--rate-scale", 3, "--no-async-scheduling", "--seed", 5, "--request-rate", 4),
        ("random", "--num-prompts", 12, "--output-len", 3, "--max-concurrency", 4, "--goodput", "ttft:9", "tpot:5"),
        ("random", "--num-prompts", 9, "--input-len", 40, "--random-range-ratio", '{"input": 0.5, "output": 0.1}'),
        ("sessions", "--num-prompts", 3, "--burstiness", "inf", "--request-rate", 2, "--max_num_seqs", "2",
         "--max-num-batched-tokens", "1k", "--metric-percentiles", "50,99.9", "--dtype", "float32"),
        ("prefix_repetition", "--num-prompts", 20, "--watermark", 0.1, "--outside", "clip"),
    ],
)  # fmt: skip
def test_a_result_can_be_made_again_from_what_it_says(made, args) -> None:
    first = made(*args)
    assert made(*as_arguments(block(first))) == first


def test_the_flags_are_those_given_by_name_and_none_that_changes_nothing(made) -> None:
    flags = (
        "--max_num_seqs",
        7,
        "-tp",
        2,
        "--no-enable-prefix-caching",
        "--limit",
        3,
        "--goodput",
        "ttft:200",
        "tpot:20",
    )
    sim = block(made("azure-conv", "--check", "--no-leap", "--timeline", *flags))
    assert sim["flags"] == {
        "goodput": ["ttft:200", "tpot:20"],
        "limit": 3,
        "max_num_seqs": 7,
        "enable_prefix_caching": False,
        "tensor_parallel_size": 2,
    }
    assert sim["goodput_slo_ms"] == {"ttft": 200.0, "tpot": 20.0}


def test_the_server_is_named_with_what_the_profile_and_vllm_choose(made) -> None:
    server = block(made("azure-conv", "--limit", 1))["server"]
    assert server.pop("cudagraph_capture_sizes")[-3:] == [480, 496, 512]
    assert server == {
        "model": "qwen3-14b",
        "gpu": "h100",
        "tensor_parallel_size": 1,
        "dtype": "bfloat16",
        "kv_cache_dtype": "auto",
        "num_gpu_blocks_from": "measured with the profile",
        "cudagraph_mode": "FULL_AND_PIECEWISE",
        "host_time": "hidden",
        "speculation": None,
    }
    resized = block(made("azure-conv", "--limit", 1, "--tp", 2, "--kv-cache-dtype", "fp8"))["server"]
    assert (resized["tensor_parallel_size"], resized["kv_cache_dtype"]) == (2, "fp8")
    assert resized["num_gpu_blocks_from"] == "estimated"


def test_a_data_set_is_told_with_the_defaults_it_was_drawn_with(made) -> None:
    """vLLM's: 1024 tokens in, 128 out, all at once."""
    workload = block(made("random", "--num-prompts", 2, "--output-len", 3, "--max-concurrency", 1))["workload"]
    assert workload == {
        "num_prompts": 2,
        "request_rate": None,
        "burstiness": None,
        "ramp_up_strategy": None,
        "ramp_up_start_rps": None,
        "ramp_up_end_rps": None,
        "random_input_len": 1024,
        "random_output_len": 3,
        "random_range_ratio": 0.0,
        "random_prefix_len": 0,
        "limit": None,
        "start": None,
        "end": None,
        "rate_scale": 1.0,
        "max_concurrency": 1,
        "strict": False,
        "seed": 0,
        "format": "synthetic",
        "skipped_rows": {},
    }


def test_a_file_is_told_with_its_window_format_and_skipped_rows(made, tmp_path) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n0,5,1\n10,0,1\n11,5,1\n20,5,0\n30,5,1\n")
    sim = block(made(trace, "--start", 5, "--end", 25, "--rate-scale", 2))
    workload = sim["workload"]
    assert (workload["start"], workload["end"], workload["rate_scale"]) == (5.0, 25.0, 2.0)
    assert workload["format"] == "csv"
    assert workload["skipped_rows"] == {"prompt of 0 tokens": 1, "output of 0 tokens": 1}
    assert sim["trace"] == "t.csv"


def test_no_folder_of_the_machine_gets_into_a_result(made, elpase, tmp_path, monkeypatch) -> None:
    """The same trace and profile, by an absolute path and by another one: the same bytes, in the tables too."""
    profile = tmp_path / "mine.json"
    shutil.copy(Path(sim.__path__[0]) / "latency/profiles/h100-qwen3-14b.json", profile)
    first = made(AZURE, "--profile", profile, "--limit", 4)
    assert str(tmp_path).encode() not in first
    assert b"azure_2023.csv" in first
    monkeypatch.chdir(tmp_path)
    shutil.copy(AZURE, tmp_path)
    assert elpase("replay", AZURE.name, "--profile", "mine.json", "--limit", 4, "--out", "b").code == 0
    for path in (tmp_path / "b").iterdir():
        assert path.read_bytes() == (tmp_path / "out" / path.name).read_bytes()


def test_a_file_whose_name_is_no_utf_8_is_told_with_a_mark(elpase, tmp_path, monkeypatch) -> None:
    """Pictures and JSON cannot hold what Python makes of such bytes."""
    monkeypatch.chdir(tmp_path)
    trace, profile = os.fsdecode(b"tr\xe9.csv"), os.fsdecode(b"pr\xe9.json")
    Path(trace).write_text("arrival_s,prompt_tokens,output_tokens\n0,50,5\n", encoding="utf-8")
    Profile.load("h100-qwen3-14b").save(profile)
    assert elpase("replay", trace, "--profile", profile, "--out", "run").code == 0
    said = json.loads(Path("run/result.json").read_text(encoding="utf-8"))["sim"]
    assert (said["trace"], said["flags"]) == ("tr\ufffd.csv", {"profile": "pr\ufffd.json"})
    done = elpase("sweep", trace, "--vary", f"profile={profile}", "--jobs", 1, "--out", "swept")
    assert done.code == 0
    assert pd.read_csv("swept/sweep.csv")["profile"].to_list() == ["pr\ufffd.json"]


def test_the_library_says_of_the_server_what_it_was_told() -> None:
    result = simulate(builtin("azure-conv", num_requests=2), EngineConfig(num_gpu_blocks_override=5000))
    sim = result.summary()["sim"]
    assert isinstance(sim, dict)
    assert sim["server"]["num_gpu_blocks_from"] == "--num-gpu-blocks-override"
    assert (sim["flags"], sim["workload"]) == (None, None)
