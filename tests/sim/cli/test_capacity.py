"""`elpase capacity`: vLLM's own lines, where the memory goes, and who runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.cli.capacity import expected_running
from sim.cli.main import main
from sim.core.config import SchedulerConfig
from sim.errors import InputError

DENSE = {
    "model_type": "llama", "hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28,
    "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 18944, "vocab_size": 152064,
    "max_position_embeddings": 8192, "torch_dtype": "bfloat16",
}  # fmt: skip


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(["capacity", *args])
    out, err = capsys.readouterr()
    assert isinstance(end.value.code, int)
    return end.value.code, out, err


def facts(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    code, out, _ = run(capsys, *args, "--json")
    assert code == 0
    loaded: dict[str, Any] = json.loads(out)
    return loaded


def scheduler(**more: Any) -> SchedulerConfig:
    return SchedulerConfig(
        **{"max_num_batched_tokens": 8192, "max_num_seqs": 1024, "max_model_len": 8192, "num_gpu_blocks": 1001, **more}
    )


def test_vllms_lines_come_first(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """28 layers, 4 KV heads of 128 in BF16, 16 GiB for KV, from a config.json of the user's."""
    (tmp_path / "config.json").write_text(json.dumps(DENSE), encoding="utf-8")
    code, out, err = run(capsys, "--model", str(tmp_path), "--gpu", "h100", "--kv-cache-memory-bytes", "16G")
    assert (code, err) == (0, "")
    assert out.splitlines()[:2] == [
        "GPU KV cache size: 299,584 tokens",
        "Maximum concurrency for 8,192 tokens per request: 36.57x",
    ]


def test_json_says_where_the_memory_goes(capsys: pytest.CaptureFixture[str]) -> None:
    """Qwen3-14B on an H100 as a real vLLM 0.23 served it: 18,038 blocks; the estimate is within 0.1 %."""
    told = facts(capsys, "--model", "qwen3-14b", "--gpu", "h100", "--max_num_seqs", "256")
    shares = told["memory_bytes_per_gpu"]
    assert told["num_gpu_blocks"] == pytest.approx(18_038, rel=0.001)
    assert told["num_gpu_blocks_origin"] == "estimated"
    assert told["max_num_batched_tokens"] == 8192
    assert sum(size for name, size in shares.items() if name != "total") == shares["total"]
    assert told["kv_cache_size_tokens"] == told["num_gpu_blocks"] * 16


def test_fewer_running_than_seqs_where_the_cache_binds() -> None:
    """N = B b / L: 1000 usable blocks of 16, requests of 100 + 120 tokens hold ceil(160 / 16) = 10 each."""
    running = expected_running(scheduler(), [(100, 120)])
    assert (running.mean_blocks, running.fit, running.expected, running.binds) == (10, 100, 100, "KV cache")


@pytest.mark.parametrize(
    ("flags", "expected", "binds"),
    [({"max_num_seqs": 64}, 64, "max_num_seqs"), ({"max_num_active_seqs": 32}, 32, "max_num_active_seqs")],
)
def test_the_cap_that_binds_is_named(flags: dict[str, int], expected: int, binds: str) -> None:
    running = expected_running(scheduler(**flags), [(100, 120)])
    assert (running.expected, running.binds, running.fit) == (expected, binds, 100)


@pytest.mark.parametrize(("watermark", "expected"), [(0.5, 50), (0.9, 10), (0.999, 1)])
def test_the_watermark_keeps_its_blocks_free(watermark: float, expected: int) -> None:
    """Of 1001 blocks it keeps 500, 900 and 999 free, the null block is nobody's, and each request holds 10. One always
    runs."""
    running = expected_running(scheduler(watermark=watermark), [(100, 120)])
    assert (running.expected, running.binds, running.fit) == (expected, "watermark", 100)


def test_long_outputs_weigh_more() -> None:
    """One request holds 1 block for 2 tokens' time, another 101 for 16 x 200: the mean is near the second."""
    running = expected_running(scheduler(), [(8, 2), (16, 3200)])
    assert running.mean_blocks == pytest.approx((2 * 1 + 3200 * 101) / 3202)


@given(st.lists(st.tuples(st.integers(1, 4096), st.integers(1, 4096)), min_size=1, max_size=5))
def test_who_fits_fits(lengths: list[tuple[int, int]]) -> None:
    running = expected_running(scheduler(), lengths)
    assert running.fit * running.mean_blocks <= 1000
    assert (running.fit + 1) * running.mean_blocks > 1000


def test_no_lengths_is_an_error() -> None:
    with pytest.raises(InputError, match="lengths: got 0"):
        expected_running(scheduler(), [])


def test_a_traces_lengths(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,300,100\n2023-11-16 18:15:50.9951690,500,100\n2023-11-16 18:15:51.0,50000,9\n",
        encoding="utf-8",
    )
    arguments = ["--model", "qwen3-14b", "--num-gpu-blocks-override", "3000", "--max-num-seqs", "256"]
    code, out, err = run(capsys, *arguments, "--gpu", "h100", "--trace", str(trace), "--json")
    running = json.loads(out)["running"]
    assert code == 0
    assert (running["mean_prompt_tokens"], running["mean_output_tokens"]) == (400, 100)
    assert running["mean_blocks"] == (22 + 35) / 2
    assert err == f"elpase: {trace}: 1 request skipped: longer than max_model_len\n"


def test_windows_that_are_kept_whole_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    """36 layers with 8 KV heads of 64 in BF16: 1 GiB holds 14,563 tokens, 910 blocks of 16."""
    args = ["--model", "gpt-oss-120b", "--gpu", "h100", "--kv-cache-memory-bytes", "1G", "--max-model-len", "8000"]
    code, out, err = run(capsys, *args)
    assert code == 0
    assert "910  of 16 tokens" in out
    told = "elpase: 18 of 36 layers of gpt-oss-120b look back on 128 tokens only; here they keep the KV of all, as with"
    assert err.startswith(told)
    assert err.count("\n") == 1
    _, _, err = run(capsys, *args, "--disable-hybrid-kv-cache-manager")
    assert "look back" not in err


def test_flags_without_effect_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "--model", "qwen3-14b", "--gpu", "h100", "--prefill-schedule-interval", "4")
    assert (code, err[:56]) == (0, "elpase: --prefill-schedule-interval has no effect: it ac")


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ([], "Missing option '--model'."),
        (["--model", "qwen"], "--model: got 'qwen', expected the path of a config.json, or one of codellama-34b, "),
        (["--model", "qwen3-14b"], "--gpu: expected one of h100, "),
        (
            ["--model", "qwen3-14b", "--num-gpu-blocks-override", "3000"],
            "--gpu: expected one of h100, ",
        ),
        (["--model", "qwen3-14b", "--gpu-memory-utilization", "0.9"], "--gpu-memory-utilization is a share of a GPU"),
        (["--model", "qwen3-14b", "--gpu", "h100", "--limit", "3"], "--limit goes with --trace"),
        (["--model", ""], "--model: got '', expected the path of a config.json"),
        (["--model", "qwen3-14b", "--gpu", "h100", "--trace", ""], "--trace: got '', expected a file, or one of azure"),
        (["--model", "qwen3-14b", "--gpu", "h100", "--trace", "random"], "--trace: got 'random', expected a file"),
        (["--model", "qwen3-14b", "--gpu", "h1"], "--gpu: got 'h1', expected one of h100, "),
        (["--model", "qwen3-14b", "--gpu", "rtx4090"], "no memory is left for the KV cache (-"),
        (["--model", "qwen3-14b", "--gpu", "h100", "--tp", "3"], "tensor_parallel_size: got 3, expected a size"),
        (["--model", "qwen3-14b", "--gpu", "h100", "--input-len", "9"], "--input-len and --output-len go together"),
        (["--model", "qwen3-14b", "--gpu", "h100", "--input-len", "0"], "Invalid value for '--input-len'"),
        (
            ["--model", "qwen3-14b", "--gpu", "h100", "--input-len", "40000", "--output-len", "961"],
            "--input-len + --output-len: got 40961, expected at most max_model_len (40960)",
        ),
        (
            ["--model", "qwen3-14b", "--gpu", "h100", "--input-len", "9", "--trace", "azure-conv"],
            "--trace contradicts --input-len",
        ),
        (["--model", "qwen3-14b", "--gpu", "h100", "--swap-space", "4"], "--swap-space: gone since vLLM 0.18: "),
        (["--model", "qwen3-14b", "--gpu", "h100", "--stream-interval", "4"], "--stream-interval: not built yet: "),
    ],
)
def test_bad_input_is_one_line(capsys: pytest.CaptureFixture[str], args: list[str], told: str) -> None:
    code, out, err = run(capsys, *args)
    assert (code, out) == (2, "")
    assert err.startswith(f"elpase: error: {told}")
    assert err.count("\n") == 1
