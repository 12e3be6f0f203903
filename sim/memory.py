"""Where a GPU's memory goes: weights, activations, graphs, and the KV blocks that fit in the rest.

Not for what a model weighs (`sim.specs`). The one idea: vLLM measures activations and graphs when it starts, elpase
estimates them; everything after that (blocks, the lines that vLLM logs) is arithmetic and exact.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from sim.errors import InputError
from sim.hf_config import DTYPE_BYTES

if TYPE_CHECKING:
    from sim.specs import GpuSpec, ModelSpec, ParallelSpec

GIB = 1 << 30

SAMPLER_BYTES_PER_LOGIT = 24
"""Peak of the dummy sampling that vLLM profiles: BF16 and FP32 logits, and what top-k and top-p sampling copies."""

RUNTIME_BYTES = int(0.36 * GIB)
"""What CUDA, cuBLAS and compiled code keep beside tensors. Fitted, with the above, to `ESTIMATE_CHECKED_ON`."""

COMMUNICATION_BYTES = {1: 0, 2: 358_612_992}
"""NCCL and all-reduce buffers by number of GPUs (NVIDIA AIConfigurator, system.yaml of H100 SXM, Apache-2.0)."""
_COMMUNICATION_BYTES_MANY = 411_041_792

GRAPH_BYTES = 102 << 20
"""CUDA graphs: 51 batch sizes up to 512, captured in 2 modes, at the 1 MiB that vLLM's profiler counts at least."""

ESTIMATE_CHECKED_ON = (
    "18,038 blocks on an H100 with Qwen3-14B, 2,588 on an RTX 4090 with Llama-3.1-8B, 31,356 on 4 x H100 with "
    "Llama-2-70B, 26,602 on 2 x H100 with CodeLlama-34B"
)
"""Block counts of real servers (vLLM 0.15 to 0.23) that the estimate meets within 1.5 %; tests/sim/test_memory.py."""


class MemoryPlan(NamedTuple):
    """Bytes of one GPU. `total = kv + weights + activations + graphs + runtime + unused`."""

    total_bytes: int
    weights_bytes: int
    activations_bytes: int
    graphs_bytes: int
    runtime_bytes: int
    kv_bytes: int
    """Negative where the rest alone is too much."""

    @property
    def unused_bytes(self) -> int:
        """What `gpu_memory_utilization` leaves alone."""
        used = self.weights_bytes + self.activations_bytes + self.graphs_bytes + self.runtime_bytes + self.kv_bytes
        return self.total_bytes - used


def plan_memory(
    gpu: GpuSpec,
    model: ModelSpec,
    parallel: ParallelSpec,
    *,
    gpu_memory_utilization: float,
    max_num_batched_tokens: int,
    max_num_seqs: int,
) -> MemoryPlan:
    """Estimate what vLLM's profiling run would find on one of the GPUs.

    activations = max(tokens x (hidden + 3 x MLP width / GPUs) x element bytes, sequences x vocabulary x 24): the widest
    point of the forward pass (gate, up and their product beside the residual) or of the sampling, whichever is more.
    """
    tp = parallel.tensor_parallel_size
    forward = max_num_batched_tokens * (model.hidden_size + 3 * ceil(model.mlp_width / tp)) * DTYPE_BYTES[model.dtype]
    sampling = min(max_num_seqs, max_num_batched_tokens) * model.vocab_size * SAMPLER_BYTES_PER_LOGIT
    weights = ceil(model.weight_bytes / tp)
    activations = max(forward, sampling)
    runtime = RUNTIME_BYTES + COMMUNICATION_BYTES.get(tp, _COMMUNICATION_BYTES_MANY)
    requested = ceil(gpu.cuda_memory_bytes * gpu_memory_utilization)
    return MemoryPlan(
        total_bytes=gpu.cuda_memory_bytes,
        weights_bytes=weights,
        activations_bytes=activations,
        graphs_bytes=GRAPH_BYTES,
        runtime_bytes=runtime,
        kv_bytes=requested - weights - activations - GRAPH_BYTES - runtime,
    )


class KvCapacity(NamedTuple):
    """What a KV cache of `num_blocks` holds, counted as vLLM 0.32 counts (v1/core/kv_cache_utils.py).

    vLLM counts the null block, which no request ever gets, in both figures that it logs; so does this.
    """

    num_blocks: int
    block_size: int
    max_model_len: int

    @property
    def max_concurrency(self) -> float:
        """Requests of `max_model_len` tokens, each in whole blocks, that fit together."""
        return self.num_blocks / ceil(self.max_model_len / self.block_size)

    @property
    def tokens(self) -> int:
        """vLLM's "GPU KV cache size": less than blocks x block size where `max_model_len` leaves a block part empty."""
        return int(self.max_concurrency * self.max_model_len)

    def lines(self) -> tuple[str, str]:
        """The two figures as vLLM logs them (0.32 joins them by a comma in one line, earlier versions log two)."""
        return (
            f"GPU KV cache size: {self.tokens:,} tokens",
            f"Maximum concurrency for {self.max_model_len:,} tokens per request: {self.max_concurrency:.2f}x",
        )


def kv_blocks(kv_bytes: int, bytes_per_token: int, block_size: int, *, with_drafter: bool = False) -> int:
    """Whole blocks in that much memory. Raises InputError where not even the null block and one more fit."""
    blocks = kv_bytes // (bytes_per_token * block_size)
    if blocks < 2:
        taken = f"weights, {'a drafter, ' if with_drafter else ''}activations and graphs"
        raise InputError(
            f"no memory is left for the KV cache ({kv_bytes / GIB:.2f} GiB after {taken}): "
            "raise gpu_memory_utilization, lower max_num_seqs or max_num_batched_tokens, or use more GPUs"
        )
    return blocks


def longest_request(num_blocks: int, block_size: int) -> int:
    """Tokens of the longest request that fits when it is alone: all blocks but the null block."""
    return (num_blocks - 1) * block_size
