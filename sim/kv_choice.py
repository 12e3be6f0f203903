"""How many KV blocks a server has: stated, else measured with the profile, else what memory leaves.

Not for what a GPU's memory goes into (`sim.memory`). The one idea: a number that was measured holds until a flag
changes what it depends on.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from sim.errors import InputError
from sim.memory import MemoryPlan, kv_blocks, plan_memory
from sim.plurals import counted
from sim.specs import ParallelSpec

if TYPE_CHECKING:
    from sim.config import EngineConfig
    from sim.drafters import DrafterSize
    from sim.specs import GpuSpec, ModelSpec


class KvChoice(NamedTuple):
    """The KV cache that was chosen, and why it has this size."""

    num_blocks: int
    block_size: int
    origin: str
    """What said so: a flag, the profile's server, or the estimate."""
    memory: MemoryPlan | None = None
    """The estimate, where it was needed."""


_OVERRIDE, _STATED_BYTES = "--num-gpu-blocks-override", "--kv-cache-memory-bytes"
_RESIZES_KV = ("gpu_memory_utilization", "kv_cache_memory_bytes", "kv_cache_dtype", "dtype", "tensor_parallel_size")
"""Flags that make a measured number of blocks worthless."""

_UNLESS_SAID = MappingProxyType({"dtype": "auto", "tensor_parallel_size": 1})
"""What a profile was measured under where it does not say."""


def window_note(said: EngineConfig, model: ModelSpec | None) -> str | None:
    """A line for a model with sliding-window layers, unless the user has asked for what is simulated."""
    if model is None or not model.num_window_layers or said.disable_hybrid_kv_cache_manager:
        return None
    return (
        f"{model.num_window_layers} of {counted(model.num_layers, 'layer')} of {model.name} look back on"
        f" {counted(model.window, 'token')} only; here they keep the KV of all, as with"
        " --disable-hybrid-kv-cache-manager: without it vLLM has room for more requests"
    )


@dataclass(frozen=True, slots=True)
class BlockCount:
    """Chooses the number of KV blocks: stated, else measured with the profile, else from memory."""

    explicit: EngineConfig
    measured: EngineConfig
    said: EngineConfig
    gpu: GpuSpec | None
    model: ModelSpec | None

    def choose(self, tokens: int, seqs: int, drafter: DrafterSize) -> KvChoice:
        """The choice, for steps of so many tokens and sequences."""
        kv = self._without_drafter(tokens, seqs)
        if not drafter.passes or self.model is None or kv.origin == _OVERRIDE:
            return kv
        # The drafter keeps weights where blocks would be, and its layers' K and V in every block.
        per_token = self._bytes_per_token(self.model)
        free = kv.num_blocks * kv.block_size * per_token
        if kv.origin != _STATED_BYTES:
            free -= int(drafter.weights_kept * self.model.weight_bytes / (self.said.tensor_parallel_size or 1))
        blocks = kv_blocks(free, int(per_token * (1 + drafter.kv)), kv.block_size, with_drafter=True)
        return kv._replace(num_blocks=blocks, origin=f"{kv.origin}, less the drafter's share")

    def _without_drafter(self, tokens: int, seqs: int) -> KvChoice:
        block_size = self.said.block_size or 16
        if self.explicit.num_gpu_blocks_override is not None:
            return KvChoice(self.explicit.num_gpu_blocks_override, block_size, _OVERRIDE)
        if self.measured.num_gpu_blocks_override is not None and not self._resized():
            # The same memory in blocks of another size.
            held = self.measured.num_gpu_blocks_override * (self.measured.block_size or 16)
            return KvChoice(held // block_size, block_size, "measured with the profile")
        return self._from_memory(block_size, tokens, seqs)

    def _resized(self) -> bool:
        """A flag that was given is not as measured. A share of memory that the profile does not state is unknown."""
        for name in _RESIZES_KV:
            before = getattr(self.measured, name)
            if name == "kv_cache_dtype":
                before = before or self.said.dtype
            elif name != "gpu_memory_utilization":
                before = before or _UNLESS_SAID.get(name)
            if getattr(self.explicit, name) not in (None, "auto", before):
                return True
        return False

    def _from_memory(self, block_size: int, tokens: int, seqs: int) -> KvChoice:
        if self.model is None:
            raise InputError(field="num_gpu_blocks_override", expected="a number, as no model is named to size it by")
        bytes_per_token = self._bytes_per_token(self.model)
        if self.said.kv_cache_memory_bytes is not None:
            blocks = kv_blocks(self.said.kv_cache_memory_bytes, bytes_per_token, block_size)
            return KvChoice(blocks, block_size, _STATED_BYTES)
        if self.gpu is None:
            raise InputError(field="num_gpu_blocks_override", expected="a number, as no GPU is named to size it by")
        memory = plan_memory(
            self.gpu,
            self.model,
            self._parallel(),
            gpu_memory_utilization=self.said.gpu_memory_utilization or 0.0,
            max_num_batched_tokens=tokens,
            max_num_seqs=seqs,
        )
        return KvChoice(kv_blocks(memory.kv_bytes, bytes_per_token, block_size), block_size, "estimated", memory)

    def _parallel(self) -> ParallelSpec:
        return ParallelSpec(self.said.tensor_parallel_size or 1)

    def _bytes_per_token(self, model: ModelSpec) -> int:
        return model.kv_bytes_per_token(self.said.kv_cache_dtype or "auto", self._parallel())
