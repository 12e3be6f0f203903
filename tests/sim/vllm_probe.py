"""Runs under an interpreter that has the real vLLM (0.32, CPU build is enough): answers questions of test_vllm_drift.

Reads one JSON object from standard input, writes one to standard output. Imports nothing of elpase.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

os.environ.update(VLLM_LOGGING_LEVEL="ERROR", HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1")

import torch
from vllm import platforms
from vllm.config import (
    CacheConfig,
    CompilationConfig,
    ModelConfig,
    ParallelConfig,
    SchedulerConfig,
    SpeculativeConfig,
    VllmConfig,
)
from vllm.engine import arg_utils
from vllm.engine.arg_utils import EngineArgs
from vllm.usage.usage_lib import UsageContext
from vllm.utils.argparse_utils import FlexibleArgumentParser, human_readable_int
from vllm.v1.core import kv_cache_utils
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.spec_decode.utils import unconditional_to_conditional_rates
from vllm.v1.worker.gpu import cudagraph_utils


def parser():
    return EngineArgs.add_cli_args(FlexibleArgumentParser())


def options():
    """Every option string of `vllm serve`'s engine flags -> [destination, default]."""
    plain = (int, float, str, bool, type(None))
    return {
        option: [action.dest, action.default if isinstance(action.default, plain) else None]
        for action in parser()._actions
        for option in action.option_strings
    }


def parse(argvs):
    """Each command line -> the namespace's values that differ from the defaults, or None where it is refused."""
    p = parser()
    p.error = mock.Mock(side_effect=ValueError)
    defaults = vars(p.parse_args([]))
    return [_differing(p, argv, defaults) for argv in argvs]


def _differing(p, argv, defaults):
    try:
        return {k: v for k, v in vars(p.parse_args(argv)).items() if v != defaults[k]}
    except (ValueError, SystemExit):
        return None


def human_ints(texts):
    return [_or_none(human_readable_int, text) for text in texts]


def _or_none(function, *args):
    try:
        return function(*args)
    except Exception:
        return None


class Platform:
    """What `get_batch_defaults` asks the device; a CUDA GPU of this memory and name."""

    def __init__(self, memory_bytes, device_name):
        self.get_device_total_memory = lambda: memory_bytes
        self.get_device_name = lambda: device_name
        self.is_tpu = self.is_cpu = lambda: False


def settle(cases):
    """Each case -> vLLM's [max_num_batched_tokens, max_num_seqs], or None where it refuses."""
    return [_settled(**case) for case in cases]


def _settled(memory_bytes, device_name, max_model_len, flags):
    args = EngineArgs(model=tempfile.gettempdir())  # any folder: only a name that is none is looked up on the hub
    args.enable_chunked_prefill = True  # what vLLM has settled before, unless the user said otherwise
    for name, value in flags.items():
        setattr(args, name, value)
    model = SimpleNamespace(max_model_len=max_model_len, is_multimodal_model=False, is_mm_prefix_lm=False)
    parallel = SimpleNamespace(use_batched_dp_moe=False)
    with mock.patch.object(arg_utils, "current_platform", Platform(memory_bytes, device_name)):
        args._set_default_max_num_seqs_and_batched_tokens_args(UsageContext.OPENAI_API_SERVER, model, parallel)
    try:
        config = SchedulerConfig(
            max_model_len=max_model_len,
            is_encoder_decoder=False,
            max_num_batched_tokens=args.max_num_batched_tokens,
            max_num_seqs=args.max_num_seqs,
            max_num_active_seqs=args.max_num_active_seqs,
            max_num_scheduled_tokens=args.max_num_scheduled_tokens,
            enable_chunked_prefill=args.enable_chunked_prefill,
            long_prefill_token_threshold=args.long_prefill_token_threshold,
            watermark=args.watermark,
            policy=args.scheduling_policy,
        )
        CacheConfig(gpu_memory_utilization=args.gpu_memory_utilization)
    except ValueError:
        return None
    return [config.max_num_batched_tokens, config.max_num_seqs]


def kv(cases):
    """Each case -> vLLM's [blocks, tokens, "C.CC"] for that much KV memory, or None where it refuses to start."""
    return [_or_none(_kv, case) for case in cases]


def _kv(case):
    model = SimpleNamespace(max_model_len=case["max_model_len"], original_max_model_len=case["max_model_len"])
    cache = CacheConfig(block_size=case["block_size"])
    cache.kv_cache_layout = "LBNHC"
    cache.num_gpu_blocks_override = case.get("num_gpu_blocks_override")
    config = SimpleNamespace(
        model_config=model,
        cache_config=cache,
        parallel_config=ParallelConfig(),
        scheduler_config=SimpleNamespace(disable_hybrid_kv_cache_manager=False),
        attention_config=SimpleNamespace(hisparse_config=None),
        speculative_config=None,
        kv_transfer_config=None,
        num_prefill_lookahead_tokens=0,
        device_config=SimpleNamespace(device_type="cuda"),
    )
    spec = FullAttentionSpec(
        block_size=case["block_size"],
        num_kv_heads=case["kv_heads"],
        head_size=case["head_size"],
        dtype=getattr(torch, case["dtype"]),
    )
    specs = {f"layer.{i}": spec for i in range(case["layers"])}
    (worker,) = kv_cache_utils.get_kv_cache_configs(config, [specs], [case["kv_bytes"]])
    scheduler = kv_cache_utils.generate_scheduler_kv_cache_config([worker])
    tokens, concurrency = kv_cache_utils.get_kv_cache_capacity(config, scheduler)
    return [scheduler.num_blocks, tokens, f"{concurrency:.2f}"]


def models(configs):
    """Each config.json -> what vLLM reads in it."""
    return [_model(config) for config in configs]


def _model(config):
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(config))
        read = ModelConfig(model=folder, skip_tokenizer_init=True)
    return {
        "layers": read.get_total_num_hidden_layers(),
        "head_size": read.get_head_size(),
        "kv_heads": read.get_total_num_kv_heads(),
        "kv_heads_tp4": read.get_num_kv_heads(SimpleNamespace(tensor_parallel_size=4)),
        "max_model_len": read.max_model_len,
        "dtype": str(read.dtype).removeprefix("torch."),
    }


def graphs(cases):
    """Each case -> [capture sizes, [[padded tokens, mode] of each asked step]] of the real CUDA graph manager."""
    return [_or_none(_graphs, case) for case in cases]


def _graphs(case):
    seqs, query_len = case["max_num_seqs"], case["query_len"]
    compilation = CompilationConfig(**case["compilation"])
    speculation = SimpleNamespace(uses_dynamic_speculative_decoding=lambda: False)
    config = SimpleNamespace(
        model_config=SimpleNamespace(enforce_eager=False),
        compilation_config=compilation,
        uniform_decode_query_len=query_len,
        scheduler_config=SimpleNamespace(max_num_seqs=seqs, max_num_batched_tokens=case["max_num_batched_tokens"]),
        speculative_config=speculation,
        num_speculative_tokens=query_len - 1,
        performance_mode=case["performance_mode"],
        parallel_config=SimpleNamespace(tensor_parallel_size=1, data_parallel_size=1),
        cache_config=SimpleNamespace(use_kda_recoverssm=False),
    )
    gpu = SimpleNamespace(is_device_capability_family=lambda _: case["blackwell"], get_global_graph_pool=lambda: None)
    rank = SimpleNamespace(is_first_rank=True, is_last_rank=True)
    with (
        mock.patch.object(platforms, "current_platform", gpu),
        mock.patch.object(cudagraph_utils, "current_platform", gpu),
        mock.patch.object(cudagraph_utils, "get_pp_group", return_value=rank),
    ):
        VllmConfig._set_cudagraph_sizes(config)
        mode = compilation.cudagraph_mode
        manager = cudagraph_utils.CudaGraphManager(config, torch.device("cpu"), mode, query_len)
    manager._graphs_captured = True
    runs = [manager.dispatch(seqs, tokens, uniform, 0) for seqs, tokens, uniform in case["steps"]]
    return [compilation.cudagraph_capture_sizes, [[run.num_tokens, run.cg_mode.name] for run in runs]]


def synthetic(cases):
    """Each (n, rates, length) -> vLLM's chances of each draft given those before it, or None where it refuses."""
    resolve = SpeculativeConfig._resolve_synthetic_acceptance_rates
    return [_or_none(lambda case: unconditional_to_conditional_rates(resolve(*case)), case) for case in cases]


def keys(_):
    """What may be said in a flag that is a JSON object."""
    kinds = {"speculative_config": SpeculativeConfig, "compilation_config": CompilationConfig}
    return {name: [field.name for field in fields(kind) if field.init] for name, kind in kinds.items()}


ANSWERS = {"options": lambda _: options(), "parse": parse, "human_ints": human_ints, "settle": settle, "kv": kv}
ANSWERS |= {"models": models, "graphs": graphs, "synthetic": synthetic, "keys": keys}

if __name__ == "__main__":
    asked = json.load(sys.stdin)
    answers = {name: ANSWERS[name](argument) for name, argument in asked.items()}
    sys.stdout.write("\nANSWERS " + json.dumps(answers) + "\n")
