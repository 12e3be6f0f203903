"""Flags, defaults, refusals and KV arithmetic against the real vLLM.

Runs where ELPASE_VLLM_PYTHON names an interpreter that has vLLM 0.32 (the CPU build is enough); skipped elsewhere.
"""

from __future__ import annotations

import json
import os
import subprocess
from itertools import product
from math import floor
from pathlib import Path
from typing import Any

import pytest

from sim import compilation, speculative
from sim.cli.flags import GROUPS, REMOVED, human_int
from sim.config import VLLM_DEFAULTS, EngineConfig
from sim.errors import InputError
from sim.latency.graph_flags import settled_graphs
from sim.memory import GIB, KvCapacity, kv_blocks
from sim.specs import CATALOG, ModelSpec, ParallelSpec, gpu_spec, model_names

PYTHON = os.environ.get("ELPASE_VLLM_PYTHON")
PROBE = Path(__file__).with_name("vllm_probe.py")

pytestmark = pytest.mark.skipif(PYTHON is None, reason="ELPASE_VLLM_PYTHON names no interpreter with vLLM")

TEXTS = ["1k", "1K", "25.6k", "1.5K", "2M", "3g", " 16 ", "-1", "1e3", "", "8 k", "0.5k", "1.9999k", "12T"]

SETTLE_FLAGS = [
    {name: value for name, value in zip(names, values, strict=True) if value is not None}
    for names, values in (
        (("max_num_batched_tokens", "max_num_seqs", "enable_chunked_prefill", "performance_mode"), combination)
        for combination in product(
            (None, 1, 300, 2048, 20_000), (None, 1, 256, 3000), (None, False), (None, "throughput", "interactivity")
        )
    )
] + [
    {"max_num_active_seqs": 1024}, {"max_num_active_seqs": 1025}, {"max_num_active_seqs": 0},
    {"max_num_scheduled_tokens": 0}, {"max_num_scheduled_tokens": 128},
    {"long_prefill_token_threshold": 512}, {"long_prefill_token_threshold": 41_000},
    {"long_prefill_token_threshold": -1}, {"scheduling_policy": "lifo"},
    {"watermark": 0.99}, {"watermark": 1.0}, {"watermark": -0.1},
    {"gpu_memory_utilization": 0.0}, {"gpu_memory_utilization": 1.0}, {"gpu_memory_utilization": 1.1},
]  # fmt: skip
SETTLE = list(product(("h100", "b200", "a100-80gb", "rtx4090", "rtx-pro-6000"), (512, 8192, 40_960), SETTLE_FLAGS))

KV_SHAPES = [(28, 4, 128, 16 * GIB), (33, 8, 128, floor(51.63 * GIB)), (40, 8, 128, 44 * GIB), (3, 1, 64, GIB // 7)]
KV_LENGTHS = (1000, 8192, 20_000, 999_999)
KV = [
    {"layers": layers, "kv_heads": heads, "head_size": size, "dtype": "bfloat16", "kv_bytes": kv_bytes,
     "block_size": block_size, "max_model_len": length}
    for (layers, heads, size, kv_bytes), block_size, length in product(KV_SHAPES, (16, 32), KV_LENGTHS)
] + [
    {"layers": 2, "kv_heads": 8, "head_size": 128, "dtype": "float16", "kv_bytes": GIB, "block_size": 16,
     "max_model_len": length, "num_gpu_blocks_override": blocks}
    for blocks, length in ((1952, 20_000), (127_626, 2048), (100, 1584), (100, 1585))
]  # fmt: skip

PARSE = [
    ["--max-model-len", "32k"], ["--max-model-len", "auto"], ["--max-num-batched-tokens", "8K"],
    ["--kv-cache-memory-bytes", "25.6g"], ["--no-enable-prefix-caching"], ["--enable_chunked_prefill"],
    ["--max_num_seqs", "64"], ["-tp", "4"], ["--device-memory-utilization", "0.5"], ["--scheduling-policy", "priority"],
    ["--no-scheduler-reserve-full-isl"], ["--max-num-seqs", "1k"], ["--max-num-batched-tokens", "1.5K"],
    ["--cudagraph-capture-sizes", "1", "2"], ["--max-cudagraph-capture-size", "64"], ["--enforce-eager"],
    ["--optimization-level", "1"], ["--spec-method", "ngram", "--spec-tokens", "3"],
    ["--scheduling-policy", "lifo"], ["--kv-cache-dtype", "fp8_e4m3"], ["--long-prefill-token-threshold-adaptive"],
]  # fmt: skip


GRAPHS = [
    {"max_num_batched_tokens": tokens, "max_num_seqs": seqs, "query_len": query_len, "performance_mode": mode,
     "blackwell": blackwell, "compilation": compilation}
    for tokens, seqs, query_len in (
        (8192, 1024, 1), (8192, 100, 1), (8192, 37, 1), (300, 200, 1), (100, 60, 1), (8192, 1, 1), (2048, 700, 1),
        (8192, 64, 4), (8192, 256, 3), (8192, 10, 3), (512, 300, 2), (40, 20, 8), (16384, 1024, 6),
    )
    for mode, blackwell in (("balanced", False), ("interactivity", False), ("balanced", True))
    for compilation in (
        {"cudagraph_mode": "FULL_AND_PIECEWISE"}, {"cudagraph_mode": "FULL"}, {"cudagraph_mode": "PIECEWISE"},
        {"cudagraph_mode": "FULL_DECODE_ONLY", "max_cudagraph_capture_size": 50},
        {"cudagraph_mode": "FULL_AND_PIECEWISE", "cudagraph_capture_sizes": [1, 2, 4, *range(8, 201, 8)]},
        {"cudagraph_mode": "FULL_AND_PIECEWISE", "cudagraph_capture_sizes": [3, 3, 97, 500],
         "max_cudagraph_capture_size": 97},
    )
]  # fmt: skip
SYNTHETIC = [
    (3, [0.8, 0.6, 0.15], None), (2, [0.0, 0.0], None), (2, [0.5, 0.6], None), (2, [0.5], None), (1, [1.5], None),
    (4, None, 2.7), (4, None, 1.0), (4, None, 5.0), (4, None, 5.1), (4, None, 0.9), (4, None, None), (1, [0.5], 1.5),
]  # fmt: skip


def _steps(seqs: int, query_len: int) -> list[tuple[int, int, int | None]]:
    """(requests, tokens, tokens of each where all decode alike) of steps of all kinds."""
    alike = [(n, n * query_len, query_len) for n in sorted({1, 2, 5, 10, 60, 97, seqs}) if n <= seqs]
    odd = [(min(seqs, 3), tokens, None) for tokens in (3, 5, 97, 104, 130, 511, 513, 1030)]
    return [*alike, *odd, *([(min(seqs, 7), min(seqs, 7), 1)] if query_len > 1 else [])]


def _configs() -> list[dict[str, Any]]:
    """The catalogue's files as a whole config.json, and a few whose fields are missing or scaled."""
    classes = {"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "mixtral": "MixtralForCausalLM"}
    classes |= {"qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM", "qwen3_moe": "Qwen3MoeForCausalLM"}
    classes["gpt_oss"] = "GptOssForCausalLM"
    configs = []
    for name in model_names():
        config = json.loads((CATALOG / "models" / f"{name}.json").read_text(encoding="utf-8"))
        if "rope_scaling" in config:
            config["rope_scaling"] |= {
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8192,
            }
        configs.append(config | {"architectures": [classes[config["model_type"]]]})
    plain = next(config for config in configs if config["model_type"] == "llama")
    configs.append({name: value for name, value in plain.items() if name not in ("num_key_value_heads", "head_dim")})
    configs.append(plain | {"rope_scaling": {"rope_type": "linear", "factor": 4.0}})
    configs.append(plain | {"torch_dtype": "float32", "head_dim": 64})
    return configs


@pytest.fixture(scope="module")
def vllm() -> dict[str, Any]:
    asked = {
        "options": None,
        "human_ints": TEXTS,
        "settle": [
            {
                "memory_bytes": gpu_spec(gpu).memory_bytes,
                "device_name": gpu_spec(gpu).device_name,
                "max_model_len": length,
                "flags": flags,
            }
            for gpu, length, flags in SETTLE
        ],
        "kv": KV,
        "parse": PARSE,
        "models": _configs(),
        "graphs": [{**case, "steps": _steps(case["max_num_seqs"], case["query_len"])} for case in GRAPHS],
        "synthetic": SYNTHETIC,
        "keys": None,
    }
    assert PYTHON is not None
    done = subprocess.run([PYTHON, str(PROBE)], input=json.dumps(asked), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    answers = next(line for line in done.stdout.splitlines() if line.startswith("ANSWERS "))
    loaded: dict[str, Any] = json.loads(answers.removeprefix("ANSWERS "))
    return loaded


def test_every_flag_is_vllms_with_its_default(vllm: dict[str, Any]) -> None:
    options = vllm["options"]
    for flag in (flag for flags in GROUPS.values() for flag in flags):
        dashed = f"--{flag.name.replace('_', '-')}"
        assert options[dashed][0] == flag.name
        assert (f"--no-{dashed[2:]}" in options) == (flag.kind is bool), dashed
        for alias in flag.aliases:
            assert alias == "--tp" or options[alias][0] == flag.name
        # vLLM settles these four later: the block size to 16, the others to yes.
        if flag.name not in ("enable_prefix_caching", "enable_chunked_prefill", "async_scheduling", "block_size"):
            late = ("prefill_schedule_interval", "stream_interval", "pipeline_parallel_size", "data_parallel_size")
            expected = 1 if flag.name in late else VLLM_DEFAULTS.get(flag.name)
            if flag.name not in ("disable_chunked_mm_input", "prefix_caching_hash_algo"):
                assert options[dashed][1] == expected, dashed


def test_removed_flags_are_gone(vllm: dict[str, Any]) -> None:
    assert [name for name in REMOVED if f"--{name.replace('_', '-')}" in vllm["options"]] == []


def test_numbers_are_read_alike(vllm: dict[str, Any]) -> None:
    ours = []
    for text in TEXTS:
        try:
            ours.append(human_int(text))
        except ValueError:
            ours.append(None)
    assert ours == vllm["human_ints"]


def test_command_lines_are_read_alike(vllm: dict[str, Any]) -> None:
    import click

    from sim.cli.flags import EngineCommand, engine_config, engine_options

    @click.command(cls=EngineCommand, context_settings={"token_normalize_func": lambda name: name.replace("_", "-")})
    @engine_options
    def verb(**flags: Any) -> EngineConfig:
        return engine_config(flags)

    for argv, theirs in zip(PARSE, vllm["parse"], strict=True):
        try:
            ours = verb.main(list(argv), standalone_mode=False)
        except click.UsageError:
            ours = None
        if theirs is not None:
            if "optimization_level" in theirs:  # vLLM's parser leaves it a word
                theirs["optimization_level"] = int(theirs["optimization_level"])
            theirs = EngineConfig(**{name: tuple(v) if isinstance(v, list) else v for name, v in theirs.items()})
        assert ours == theirs, argv


def test_budgets_and_refusals(vllm: dict[str, Any]) -> None:
    different = []
    for (gpu, length, flags), theirs in zip(SETTLE, vllm["settle"], strict=True):
        try:
            config = EngineConfig(max_model_len=length, num_gpu_blocks_override=10_000, **flags).resolve(
                gpu=gpu_spec(gpu), model=ModelSpec.from_hf_config(CATALOG / "models" / "qwen3-14b.json")
            )
            ours = [config.max_num_batched_tokens, config.max_num_seqs]
        except InputError:
            ours = None
        if ours != theirs:
            different.append((gpu, length, flags, ours, theirs))
    assert different == []


def test_kv_blocks_tokens_and_concurrency(vllm: dict[str, Any]) -> None:
    for case, theirs in zip(KV, vllm["kv"], strict=True):
        bytes_per_token = 2 * case["layers"] * case["kv_heads"] * case["head_size"] * 2
        blocks = case.get("num_gpu_blocks_override") or kv_blocks(case["kv_bytes"], bytes_per_token, case["block_size"])
        try:
            EngineConfig(
                max_model_len=case["max_model_len"],
                block_size=case["block_size"],
                num_gpu_blocks_override=blocks,
                max_num_batched_tokens=2048,
                max_num_seqs=8,
            ).resolve()
        except InputError:
            assert theirs is None, case
            continue
        capacity = KvCapacity(blocks, case["block_size"], case["max_model_len"])
        assert [blocks, capacity.tokens, f"{capacity.max_concurrency:.2f}"] == theirs, case


def test_config_files_are_read_alike(vllm: dict[str, Any]) -> None:
    for config, theirs in zip(_configs(), vllm["models"], strict=True):
        spec = ModelSpec.from_hf_config(config)
        assert {
            "layers": spec.num_layers,
            "head_size": spec.head_size,
            "kv_heads": spec.num_kv_heads,
            "kv_heads_tp4": spec.kv_heads_per_gpu(ParallelSpec(4)),
            "max_model_len": spec.max_model_len,
            "dtype": spec.dtype,
        } == theirs, config


def test_cuda_graphs_and_how_steps_find_theirs(vllm: dict[str, Any]) -> None:
    different = []
    for case, theirs in zip(GRAPHS, vllm["graphs"], strict=True):
        seqs, query_len = case["max_num_seqs"], case["query_len"]
        drafts = {"spec_method": "ngram", "spec_tokens": query_len - 1, "draft_acceptance": 0.5}
        flags = EngineConfig(
            max_model_len=4096,
            num_gpu_blocks_override=10_000,
            max_num_batched_tokens=case["max_num_batched_tokens"],
            max_num_seqs=seqs,
            performance_mode=case["performance_mode"],
            compilation_config=case["compilation"],
            **(drafts if query_len > 1 else {}),
        )
        try:
            # FULL is kept on a Hopper only, which is never of Blackwell's family: see test_graph_flags.
            graphs = settled_graphs(flags.settle(), (10, 0) if case["blackwell"] else (9, 0))
        except InputError:
            ours = None
        else:
            runs = [graphs.run(tokens, n, 0 if uniform else tokens) for n, tokens, uniform in _steps(seqs, query_len)]
            ours = [list(graphs.sizes), [[run.num_tokens, run.mode.value] for run in runs]]
        if ours != theirs and not (case["blackwell"] and case["compilation"]["cudagraph_mode"] == "FULL"):
            different.append((case, ours, theirs))
    assert different == []


def test_keys_of_compilation(vllm: dict[str, Any]) -> None:
    theirs = vllm["keys"]["compilation_config"]
    assert sorted((*compilation.SIMULATED, *compilation.KEYS_WITHOUT_EFFECT)) == sorted(theirs)


def test_keys_of_speculation(vllm: dict[str, Any]) -> None:
    """All but those that the server fills in by itself, and `tensor_parallel_size`, which only an error is made of."""
    theirs = set(vllm["keys"]["speculative_config"])
    ours = {*speculative.SIMULATED, *speculative.UNSET_ONLY, *speculative.KEYS_WITHOUT_EFFECT}
    assert theirs - ours == {"tensor_parallel_size", "target_model_config", "target_parallel_config",
                             "draft_model_config", "draft_parallel_config"}  # fmt: skip
    assert ours <= theirs


def test_synthetic_acceptance(vllm: dict[str, Any]) -> None:
    for (count, rates, length), theirs in zip(SYNTHETIC, vllm["synthetic"], strict=True):
        said = {"method": "ngram", "num_speculative_tokens": count, "rejection_sample_method": "synthetic"}
        said |= {} if rates is None else {"synthetic_acceptance_rates": rates}
        said |= {} if length is None else {"synthetic_acceptance_length": length}
        try:
            found = EngineConfig(speculative_config=said).speculation()
        except InputError:
            assert theirs is None, said
            continue
        assert found is not None
        assert list(found.chances) == pytest.approx(theirs), said
