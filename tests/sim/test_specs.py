"""Sizes of models and GPUs against what their makers publish."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from sim.errors import InputError
from sim.specs import CATALOG, ModelSpec, ParallelSpec, gpu_names, gpu_spec, model_names, model_spec

# Totals that the models' cards and safetensors headers state.
PUBLISHED_PARAMETERS = {
    "codellama-34b": 33_743_970_304,
    "gpt-oss-120b": 116_829_156_672,
    "gpt-oss-20b": 20_914_757_184,
    "llama-2-70b": 68_976_648_192,
    "llama-2-7b": 6_738_415_616,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "mistral-7b-v0.3": 7_248_023_552,
    "mixtral-8x7b": 46_702_792_704,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "qwen2.5-7b": 7_615_616_512,
    "qwen3-14b": 14_768_307_200,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-32b": 32_762_123_264,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
}

PUBLISHED_BYTES = {"gpt-oss-120b": 65_248_815_744, "gpt-oss-20b": 13_761_264_768}
"""`total_size` of the checkpoints with experts in MXFP4 and all else in BF16; others have 2 bytes per parameter."""


@pytest.mark.parametrize("name", model_names())
def test_parameters_are_the_published_ones(name: str) -> None:
    spec = model_spec(name)
    assert spec.num_parameters == PUBLISHED_PARAMETERS[name]
    assert spec.weight_bytes == PUBLISHED_BYTES.get(name, 2 * spec.num_parameters)


@pytest.mark.parametrize(
    ("name", "tp", "expected"),
    [
        ("qwen3-14b", 1, 2 * 40 * 8 * 128 * 2),
        ("llama-3.1-8b", 1, 131_072),
        ("llama-2-70b", 1, 327_680),
        ("llama-2-70b", 4, 81_920),
        ("llama-2-70b", 16, 40_960),  # more GPUs than the 8 KV heads: each still holds one
        ("llama-2-7b", 1, 524_288),
    ],
)
def test_kv_bytes_per_token(name: str, tp: int, expected: int) -> None:
    assert model_spec(name).kv_bytes_per_token("auto", ParallelSpec(tp)) == expected


def test_experts_and_windows() -> None:
    """One token needs its own 4 of 32 experts, 1,000 tokens need all of them; every second layer has a window."""
    spec = model_spec("gpt-oss-20b")
    assert spec.experts is not None
    assert (spec.experts.read(1), spec.experts.read(1000)) == (pytest.approx(4), pytest.approx(32))
    assert spec.experts.read(2) == pytest.approx(32 * (1 - (7 / 8) ** 2))
    assert (spec.window, spec.num_window_layers, spec.num_layers) == (128, 12, 24)
    # As with --disable-hybrid-kv-cache-manager: the K and V of all layers.
    assert spec.kv_bytes_per_token() == 2 * 24 * 8 * 64 * 2


def test_kv_cache_dtype_sets_the_element() -> None:
    spec = model_spec("qwen3-14b")
    assert spec.kv_bytes_per_token("fp8") * 2 == spec.kv_bytes_per_token("bfloat16") == spec.kv_bytes_per_token()
    assert replace(spec, dtype="float32").kv_bytes_per_token() == 2 * spec.kv_bytes_per_token()
    with pytest.raises(InputError, match="kv_cache_dtype: got 'nvfp4', expected one of auto, float16"):
        spec.kv_bytes_per_token("nvfp4")


@pytest.mark.parametrize("tp", [3, 6, 20])
def test_gpus_must_divide_the_heads(tp: int) -> None:
    """40 heads and 8 KV heads: 3 and 6 do not divide the heads, and 20 GPUs do not share 8 KV heads evenly."""
    with pytest.raises(InputError, match=f"tensor_parallel_size: got {tp}"):
        model_spec("qwen3-14b").kv_heads_per_gpu(ParallelSpec(tp))


def test_dtype_flag_overrules_the_file() -> None:
    assert model_spec("llama-2-7b", dtype="float").weight_bytes == 4 * PUBLISHED_PARAMETERS["llama-2-7b"]
    assert model_spec("llama-2-7b", dtype="half").dtype == "float16"


@pytest.mark.parametrize(
    "name", ["qwen3-14b", "Qwen/Qwen3-14B", "Qwen3-14B-Base", "meta-llama/Llama-2-70b-chat-hf", "llama-2-70b-hf"]
)
def test_a_hub_name_finds_the_catalogue(name: str) -> None:
    assert model_spec(name).name in ("qwen3-14b", "llama-2-70b")


def test_unknown_names_are_told_with_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"--model: got 'qwen3-15b', expected the path of a config\.json, or one of "):
        model_spec("qwen3-15b")
    with pytest.raises(InputError, match="--gpu: got 'h1000', expected one of h100, "):
        gpu_spec("h1000")


@pytest.mark.parametrize("name", gpu_names())
def test_gpus_are_plausible(name: str) -> None:
    gpu = gpu_spec(name)
    assert 0.2 * 2**30 < gpu.memory_bytes - gpu.cuda_memory_bytes < 1.6 * 2**30
    assert 100 < gpu.dense_bf16_flop_per_s / gpu.bandwidth_bytes_per_s * 4 < 2000  # FLOP per 4 bytes: H20 to 4090
    assert gpu.capability >= (8, 0)
    assert gpu.source


def test_the_tables_have_no_names_that_do_not_load() -> None:
    assert {path.stem for path in (CATALOG / "models").iterdir()} == set(model_names()) == set(PUBLISHED_PARAMETERS)
    for path in (CATALOG / "models").iterdir():
        assert ModelSpec.from_hf_config(json.loads(path.read_text(encoding="utf-8"))).num_parameters > 0
