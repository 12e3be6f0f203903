"""`elpase calibrate tables` from end to end, on tables that follow formulas (conftest: kernel_folder)."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from calibrate.samples_file import read_samples
from sim.cli.main import main
from sim.latency import Profile

SWEEP = """isl,osl,model,strategy,rate,dur_s,rps,lat_mean_s,ttft_mean,ttft_p50,itl_mean,itl_p50,out_tps
64,32,Qwen/Qwen3-14B,synchronous,,20,1.5,0.5,{ttft},50,{itl},40,50
1024,32,Qwen/Qwen3-14B,synchronous,,20,1.5,0.5,{ttft},50,{itl},40,50
64,32,Qwen/Qwen3-14B,throughput,,20,40,0.6,30,29,17,17,60
"""


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough for formulas without noise."""
    monkeypatch.setattr("calibrate.tables_profile.STEPS", 150)


def run(args: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stopped:
        main(["calibrate", "tables", *args])
    out, err = capsys.readouterr()
    return int(stopped.value.code or 0), out, err


def made(folder: Path, out: Path, capsys: pytest.CaptureFixture[str], *more: str) -> Profile:
    """With limits that keep the steps within the small tables."""
    flags = ["--server", "max_num_batched_tokens=2048", "--server", "max_num_seqs=64", "--server", "max_model_len=4096"]
    code, _, err = run([str(folder), "--model", "qwen3-14b", *flags, "--out", str(out), *more], capsys)
    assert code == 0, err
    return Profile.load(out)


def test_a_profile_of_four_gpus(kernel_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    samples = tmp_path / "steps.parquet"
    out = tmp_path / "h100-qwen3-14b-tp4.json"
    profile = made(kernel_folder, out, capsys, "--tp", "4", "--samples", str(samples))
    assert (profile.name, profile.model, profile.gpu) == ("h100-qwen3-14b-tp4", "qwen3-14b", "h100")
    assert (profile.tensor_parallel_size, profile.engine_version) == (4, "0.24.0")
    assert profile.kv_bytes_per_token == 2 * 40 * 2 * 128 * 2
    assert profile.server["tensor_parallel_size"] == 4
    assert "AIConfigurator" in profile.provenance["sources"]["kernels"]
    assert "no host time per step" in profile.provenance["notes"]["host"]
    assert profile.held_out["median_abs"] < 0.05
    assert profile.law.graphs.sizes[-1] == 128
    steps = read_samples(samples)
    assert len(steps) == profile.provenance["samples"]
    assert str(tmp_path) not in out.read_text(encoding="utf-8")


MIXTURE = {
    "model_type": "qwen3_moe", "hidden_size": 5120, "num_hidden_layers": 4, "num_attention_heads": 40,
    "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 8192, "vocab_size": 32_000,
    "max_position_embeddings": 4096, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    "moe_intermediate_size": 1024, "num_experts": 16, "num_experts_per_tok": 2, "sliding_window": 128,
    "layer_types": ["full_attention", "sliding_attention"] * 2,
}  # fmt: skip


def test_a_mixture_of_experts_says_which_rows_it_is_from(
    kernel_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(MIXTURE), encoding="utf-8")
    flags = ["--server", "max_num_batched_tokens=2048", "--server", "max_num_seqs=64"]
    flags += ["--server", "max_cudagraph_capture_size=96"]
    out, report = tmp_path / "mixture.json", tmp_path / "report"
    args = [str(kernel_folder), "--model", str(config), *flags, "--out", str(out), "--report", str(report)]
    code, _, err = run(args, capsys)
    assert code == 0, err
    told = (report / "report.md").read_text(encoding="utf-8")
    assert "experts: 16 experts, 2 of them per token: moe_perf.parquet, kernel_source marlin" in told
    assert "moe_dtype bfloat16, distribution power_law_1.2" in told
    assert "windows: attention of 2 of 4 layers is that of kernels timed with window_size 128" in told
    profile = Profile.load(out)
    assert profile.law.graphs.sizes[-1] == 96
    assert profile.provenance["sources"]["experts"] in told


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_synchronous_run_fixes_host_and_client(
    asynchronous: bool, kernel_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Under async scheduling nothing of the host is on the critical path: what is left are gaps of the device."""
    sweep = tmp_path / "sweep.csv"
    sweep.write_text(SWEEP.format(ttft=30_000, itl=41), encoding="utf-8")
    said = "true" if asynchronous else "false"
    alone = made(kernel_folder, tmp_path / "a.json", capsys)
    profile = made(
        kernel_folder, tmp_path / "b.json", capsys,
        "--synchronous", str(sweep), "--server", f"async_scheduling={said}", "--host-row-us", "10",
    )  # fmt: skip
    law = profile.law
    one = 0.041 - alone.law.device_s(1, 1, 64 + 16, 0, 0)
    if asynchronous:
        assert law.host_step_s == 0
        assert law.step_s - alone.law.step_s == pytest.approx(one, rel=0.01)
    else:
        assert law.step_s == alone.law.step_s
        assert law.host_step_s + law.host_row_s == pytest.approx(one, rel=0.01)
    assert law.host_row_s == pytest.approx(1e-5)
    assert profile.client.request_s > 0
    assert "synchronous run" in profile.provenance["notes"]["host"]


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--model", "llama-3.2-1b"], "head_dim: got 64, expected kernels timed for it"),
        ([], "--model: expected a model: the tables are of kernels"),
        (["--model", "qwen3-14b", "--tp", "3"], "tensor_parallel_size: got 3"),
        (["--model", "qwen3-14b", "--note", "x"], "expected ABOUT=TEXT"),
        (["--model", "qwen3-14b", "--synchronous", "nowhere.csv"], "nowhere.csv: No such file"),
    ],
)
def test_bad_input(
    more: list[str], told: str, kernel_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "p.json"
    code, _, err = run([str(kernel_folder), "--out", str(out), *more], capsys)
    assert code == 2
    assert told in err
    assert err.count("\n") == 1
    assert not out.exists()


def test_an_unknown_gpu(kernel_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = kernel_folder / "gemm_perf.parquet"
    pd.read_parquet(file).assign(device="NVIDIA X1").to_parquet(file)
    code, _, err = run([str(kernel_folder), "--model", "qwen3-14b", "--out", str(tmp_path / "p.json")], capsys)
    assert code == 2
    assert "--gpu: got 'NVIDIA X1', expected one of h100" in err
