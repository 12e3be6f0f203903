"""From flags to host memory and the link to it."""

from __future__ import annotations

from typing import Any

import pytest

from sim.config import EngineConfig
from sim.errors import InputError
from sim.host import GIB, HostLink
from sim.specs import gpu_names, gpu_spec, model_spec

QWEN = model_spec("qwen3-14b")  # 163,840 bytes of KV per token


def settle(gpu: str = "h100", **flags: Any) -> Any:
    return EngineConfig(num_gpu_blocks_override=20_000, **flags).settle(gpu=gpu_spec(gpu), model=QWEN)


def test_unless_asked_nothing_ever_goes_to_the_host() -> None:
    settled = settle()
    assert (settled.scheduler.kv_preemption, settled.scheduler.num_host_blocks) == ("recompute", 0)
    assert settled.host.link is None
    asked = settle(kv_preemption="recompute")
    assert (asked.scheduler, asked.host) == (settled.scheduler, settled.host)


@pytest.mark.parametrize(
    ("flags", "blocks"),
    [
        ({}, 4 * GIB // (16 * 163_840)),  # vLLM's old default of 4 GiB
        ({"swap_space": 10.0}, 10 * GIB // (16 * 163_840)),
        ({"swap_space": 10}, 10 * GIB // (16 * 163_840)),
        ({"swap_space": 10.0, "block_size": 32}, 10 * GIB // (32 * 163_840)),
        ({"swap_space": 10.0, "kv_cache_dtype": "fp8"}, 10 * GIB // (16 * 81_920)),
        # Swap space is per GPU, and each of two holds half of the heads.
        ({"swap_space": 10.0, "tensor_parallel_size": 2}, 10 * GIB // (16 * 81_920)),
        ({"swap_space": 0.0}, 0),
    ],
)
def test_swap_space_in_blocks(flags: dict[str, Any], blocks: int) -> None:
    settled = settle(kv_preemption="swap", **flags)
    assert (settled.scheduler.kv_preemption, settled.scheduler.num_host_blocks) == ("swap", blocks)


@pytest.mark.parametrize(
    ("flags", "blocks"),
    [
        ({}, 10 * GIB // (16 * 163_840)),
        ({"kv_preemption": "offload"}, 10 * GIB // (16 * 163_840)),
        # The size is that of all GPUs together.
        ({"tensor_parallel_size": 2}, 10 * GIB // (16 * 163_840)),
        ({"tensor_parallel_size": 8}, 10 * GIB // (16 * 163_840)),
    ],
)
def test_offloading_starts_where_a_size_is_given(flags: dict[str, Any], blocks: int) -> None:
    """As in vLLM, where the flag alone switches it on."""
    settled = settle(kv_offloading_size=10, **flags).scheduler
    assert (settled.kv_preemption, settled.num_host_blocks) == ("offload", blocks)
    assert settled.offload_prompt_only
    assert not settle(kv_offloading_size=10, offload_prompt_only=False).scheduler.offload_prompt_only


def test_the_link_is_the_gpus_unless_said() -> None:
    assert settle(kv_preemption="swap").host.link == HostLink(16 * 163_840, 50e9, 83e9, 10e-6)
    assert settle("a100-80gb", kv_preemption="swap").host.link == HostLink(16 * 163_840, 25e9, 41.5e9, 10e-6)
    said = settle(kv_preemption="swap", pcie_bandwidth=100, pcie_latency=2.5).host.link
    assert said == HostLink(16 * 163_840, 100e9, 166e9, 2.5 * 1e-6)
    assert HostLink.of_gpu(None, 1).bytes_per_s == 50e9


@pytest.mark.parametrize("name", gpu_names())
def test_every_gpu_has_a_link(name: str) -> None:
    link = HostLink.of_gpu(gpu_spec(name), 1)
    assert link.bytes_per_s < link.both_bytes_per_s < 2 * link.bytes_per_s


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"kv_preemption": "swop"}, "kv_preemption: got 'swop', expected one of recompute, swap, offload"),
        ({"swap_space": 4.0}, "--swap-space: gone since vLLM 0.18"),
        ({"swap_space": 4.0, "kv_preemption": "recompute"}, "--swap-space: gone since vLLM 0.18"),
        ({"kv_preemption": "swap", "swap_space": -1.0}, "swap_space: got -1.0, expected a number of GiB, 0 or more"),
        ({"kv_preemption": "swap", "swap_space": float("nan")}, "swap_space: got nan"),
        ({"kv_preemption": "swap", "swap_space": float("inf")}, "swap_space: got inf"),
        ({"kv_preemption": "swap", "pcie_bandwidth": 0.0}, "pcie_bandwidth: got 0.0, expected GB/s, more than 0"),
        ({"kv_preemption": "offload"}, "kv_offloading_size: expected GiB of host memory"),
        ({"kv_preemption": "swap", "kv_offloading_size": 4.0}, "--kv-offloading-size contradicts --kv-preemption swap"),
        ({"kv_offloading_size": -1.0}, "kv_offloading_size: got -1.0, expected a number of GiB, 0 or more"),
        ({"kv_offloading_size": 4.0, "swap_space": 4.0}, "--swap-space: gone since"),
        ({"offload_prompt_only": False}, "--offload-prompt-only goes with --kv-offloading-size"),
        ({"pcie_bandwidth": -5.0}, "pcie_bandwidth: got -5.0"),
        ({"pcie_latency": -1.0}, "pcie_latency: got -1.0, expected microseconds, 0 or more"),
    ],
)
def test_refusals(flags: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        settle(**flags)


def test_without_a_model_nobody_knows_how_large_a_block_is() -> None:
    with pytest.raises(InputError, match="kv_preemption: got 'swap', expected a model"):
        EngineConfig(kv_preemption="swap", num_gpu_blocks_override=2000, max_model_len=1000).resolve(
            gpu=gpu_spec("h100")
        )
