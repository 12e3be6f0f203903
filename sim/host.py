"""Host memory for KV blocks, and the PCIe link to it: from flags to blocks and bytes per second.

Not for when blocks move (`sim.core`) nor for copies side by side (`sim.engine.link`). The one idea: a KV block is as
large on the host as on its GPU, and every GPU of a tensor-parallel group has a link and a share of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from sim.errors import InputError
from sim.specs import ParallelSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sim.config import EngineConfig
    from sim.core.config import KvPreemption
    from sim.specs import GpuSpec, ModelSpec

GIB = 1 << 30

SWAP_SPACE_GIB = 4.0
"""`--swap-space` where it is not given: its default in all vLLM versions that had it."""

HOST_MEMORY_GIB = 20.0
"""Over all GPUs, where modes of preemption are compared and nobody says how much they may fill."""

PAGE_BYTES = 4096
"""Of host memory: vLLM rounds an offloaded block, of all GPUs together, up to whole pages."""

SWAP_SPACE_GONE = "gone since vLLM 0.18: V1 preempts by recompute only; --kv-preemption swap brings it back, as V0 was"

PCIE_BYTES_PER_S = {4: (25e9, 41.5e9), 5: (50e9, 83e9)}
"""PCIe generation -> what 16 lanes carry between pinned host memory and a GPU: one way alone, both ways together.

Generation 5: about 50 GB/s, and 83 GB/s as measured on an H100 for vLLM's announcement of its offloading connector
("Inside vLLM's new KV offloading connector", January 2026). Generation 4 has half the clock, and half of it here.
"""
PCIE_LATENCY_S = 10e-6
"""From a copy's launch to its first byte: the order of a CUDA memcpy's launch, not measured by us."""


@dataclass(frozen=True, slots=True)
class HostLink:
    """One GPU's link to host memory, and the bytes that one KV block takes on it."""

    block_bytes: int
    bytes_per_s: float
    """One way, while nothing goes the other way."""
    both_bytes_per_s: float
    """Both ways together."""
    latency_s: float = PCIE_LATENCY_S

    @classmethod
    def of_gpu(cls, gpu: GpuSpec | None, block_bytes: int) -> HostLink:
        """The catalogue's; 50 GB/s for a GPU that it does not have."""
        return cls(block_bytes, *PCIE_BYTES_PER_S[5 if gpu is None else gpu.pcie_generation])

    def at(self, bytes_per_s: float) -> HostLink:
        """A link of the same kind, faster or slower."""
        both = self.both_bytes_per_s * bytes_per_s / self.bytes_per_s
        return HostLink(self.block_bytes, bytes_per_s, both, self.latency_s)


class HostMemory(NamedTuple):
    """What preempted (or all) KV has beyond the GPU."""

    preemption: KvPreemption
    num_blocks: int
    link: HostLink | None
    """None where nothing is ever copied."""


def host_memory(said: EngineConfig, block_size: int, gpu: GpuSpec | None, model: ModelSpec | None) -> HostMemory:
    """What `--kv-preemption` and its flags ask for. Raises InputError for flags that contradict each other."""
    preemption = _preemption(said)
    if preemption == "recompute":
        return HostMemory("recompute", 0, None)
    if model is None:
        raise InputError(field="kv_preemption", value=preemption, expected="a model that tells how large a KV block is")
    parallel = ParallelSpec(said.tensor_parallel_size or 1)
    block_bytes = block_size * model.kv_bytes_per_token(said.kv_cache_dtype or "auto", parallel)
    if preemption == "swap":
        num_blocks = int((SWAP_SPACE_GIB if said.swap_space is None else said.swap_space) * GIB) // block_bytes
    else:
        chunk_bytes = -(-block_bytes * parallel.tensor_parallel_size // PAGE_BYTES) * PAGE_BYTES
        num_blocks = int((said.kv_offloading_size or 0.0) * GIB) // chunk_bytes
    return HostMemory(preemption, num_blocks, _link(said, gpu, block_bytes))


def _preemption(said: EngineConfig) -> KvPreemption:
    """As vLLM, which offloads as soon as it is told how much."""
    size_gib, asked = said.kv_offloading_size, said.kv_preemption
    preemption = asked or ("recompute" if size_gib is None else "offload")
    if said.swap_space is not None and preemption != "swap":
        raise InputError(f"--swap-space: {SWAP_SPACE_GONE}")
    if size_gib is not None and preemption != "offload":
        raise InputError(f"--kv-offloading-size contradicts --kv-preemption {preemption}")
    if preemption == "offload":
        if size_gib is None:
            raise InputError(field="kv_offloading_size", expected="GiB of host memory, with kv_preemption offload")
        return "offload"
    if said.offload_prompt_only is not None:
        raise InputError(f"--offload-prompt-only goes with --kv-offloading-size, not with --kv-preemption {preemption}")
    return "swap" if preemption == "swap" else "recompute"


def require_link_used(runs: Iterable[Mapping[str, object]]) -> None:
    """Raise InputError where runs, as they are said, name the link to host memory, and none ever copies anything."""
    said = list(runs)
    if any(
        run.get("kv_preemption") in ("swap", "offload") or run.get("kv_offloading_size") is not None for run in said
    ):
        return
    for name in ("pcie_bandwidth", "pcie_latency"):
        if any(run.get(name) is not None for run in said):
            flag = name.replace("_", "-")
            raise InputError(f"--{flag} goes with --kv-preemption swap or --kv-offloading-size: nothing is copied here")


def _link(said: EngineConfig, gpu: GpuSpec | None, block_bytes: int) -> HostLink:
    link = HostLink.of_gpu(gpu, block_bytes)
    if said.pcie_bandwidth is not None:
        link = link.at(said.pcie_bandwidth * 1e9)
    if said.pcie_latency is None:
        return link
    return HostLink(block_bytes, link.bytes_per_s, link.both_bytes_per_s, said.pcie_latency * 1e-6)
