"""KV arithmetic, exact to what vLLM logged; the estimate of the rest, against servers whose block counts are known."""

from __future__ import annotations

from math import floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.errors import InputError
from sim.memory import GIB, KvCapacity, kv_blocks, longest_request, plan_memory
from sim.specs import ModelSpec, ParallelSpec, gpu_spec, model_spec


def attention(layers: int, kv_heads: int, head_size: int) -> ModelSpec:
    return ModelSpec.from_hf_config(
        {
            "model_type": "llama", "hidden_size": kv_heads * head_size, "num_hidden_layers": layers,
            "num_attention_heads": kv_heads, "head_dim": head_size, "vocab_size": 1, "torch_dtype": "bfloat16",
        }
    )  # fmt: skip


def test_28_layers_in_16_gib() -> None:
    """28 layers, 4 KV heads of 128, BF16, 16 GiB: 299,584 tokens, 36.57x at 8192."""
    blocks = kv_blocks(16 * GIB, attention(28, 4, 128).kv_bytes_per_token(), 16)
    assert KvCapacity(blocks, 16, 8192).lines() == (
        "GPU KV cache size: 299,584 tokens",
        "Maximum concurrency for 8,192 tokens per request: 36.57x",
    )


def test_1952_blocks() -> None:
    """1952 blocks of 16: 1.56x at 20,000."""
    assert KvCapacity(1952, 16, 20_000).lines()[1] == "Maximum concurrency for 20,000 tokens per request: 1.56x"


def test_33_layers_in_51_gib() -> None:
    """51.63 GiB over 33 layers of 8 KV heads of 128: 410,128 tokens."""
    blocks = kv_blocks(floor(51.63 * GIB), attention(33, 8, 128).kv_bytes_per_token(), 16)
    assert KvCapacity(blocks, 16, 16).tokens == 410_128


def test_127626_blocks() -> None:
    """127,626 blocks: 2,042,016 tokens, 997.08x at 2048."""
    assert KvCapacity(127_626, 16, 2048).lines() == (
        "GPU KV cache size: 2,042,016 tokens",
        "Maximum concurrency for 2,048 tokens per request: 997.08x",
    )


def test_the_founding_example() -> None:
    """70B in FP16 on 4 GPUs with 120 GB for KV: about 0.3 MB per token, 400,000 tokens, 100 requests of 4000."""
    model, four = model_spec("llama-2-70b"), ParallelSpec(4)
    per_token = model.kv_bytes_per_token("auto", four)
    capacity = KvCapacity(kv_blocks(120_000_000_000 // 4, per_token, 16), 16, 4000)
    assert 4 * per_token == pytest.approx(0.3e6, rel=0.1)
    assert capacity.tokens == pytest.approx(400_000, rel=0.1)
    assert capacity.max_concurrency == pytest.approx(100, rel=0.1)


def test_a_length_that_leaves_a_block_part_empty_counts_less() -> None:
    """vLLM 0.32 logs concurrency x length, not blocks x block size: 63 blocks of 16 per 1000 tokens."""
    assert KvCapacity(630, 16, 1000).tokens == 10_000


@given(st.integers(2, 10**6), st.sampled_from([16, 32, 64]), st.integers(1, 10**6))
def test_capacity_never_exceeds_the_blocks(blocks: int, block_size: int, length: int) -> None:
    assert KvCapacity(blocks, block_size, length).tokens <= blocks * block_size


def test_the_null_block_serves_nobody() -> None:
    assert longest_request(100, 16) == 99 * 16


@pytest.mark.parametrize("kv_bytes", [-5 * GIB, 0, 131_072 * 16 * 2 - 1])
def test_no_room_is_an_error(kv_bytes: int) -> None:
    with pytest.raises(InputError, match="no memory is left for the KV cache"):
        kv_blocks(kv_bytes, 131_072, 16)


# GPU, model, GPUs, utilization, budget, seqs, blocks that the server had, whether its version set graphs aside.
# The first is vLLM 0.23, the second 0.19, whose settings are known; of the last two only blocks and GPUs are, so the
# defaults of their time stand in. Origin: inference-sim/residency-vllm, casys-kaist/LLMServingSim (MIT),
# inference-sim/inference-sim (Apache-2.0).
SERVERS = [
    ("h100", "qwen3-14b", 1, 0.92, 8192, 256, 18_038, True),
    ("rtx4090", "llama-3.1-8b", 1, 0.90, 2048, 256, 2_588, False),
    ("h100", "llama-2-70b", 4, 0.90, 2048, 128, 31_356, False),
    ("h100", "codellama-34b", 2, 0.90, 2048, 128, 26_602, False),
]


@pytest.mark.parametrize(("gpu", "model", "tp", "share", "tokens", "seqs", "blocks", "graphs"), SERVERS)
def test_estimate_meets_known_servers(
    gpu: str, model: str, tp: int, share: float, tokens: int, seqs: int, blocks: int, graphs: bool
) -> None:
    spec, parallel = model_spec(model), ParallelSpec(tp)
    plan = plan_memory(
        gpu_spec(gpu), spec, parallel, gpu_memory_utilization=share, max_num_batched_tokens=tokens, max_num_seqs=seqs
    )
    kv_bytes = plan.kv_bytes + (0 if graphs else plan.graphs_bytes)
    assert kv_blocks(kv_bytes, spec.kv_bytes_per_token("auto", parallel), 16) == pytest.approx(blocks, rel=0.015)


def test_shares_add_up() -> None:
    gpu = gpu_spec("h100")
    plan = plan_memory(
        gpu,
        model_spec("llama-2-70b"),
        ParallelSpec(4),
        gpu_memory_utilization=0.9,
        max_num_batched_tokens=8192,
        max_num_seqs=1024,
    )
    assert plan.unused_bytes == pytest.approx(0.1 * gpu.cuda_memory_bytes, abs=1)
    assert plan.weights_bytes == 2 * 68_976_648_192 // 4
