"""What a user says with `vllm serve` flags, and vLLM 0.32's way from there to the scheduler's numbers.

Not for reading the command line (`sim.cli.flags`), nor for rules of single scheduling steps (`sim.core`). The one idea:
None is "unset"; an explicit flag stands above the settings that a profile was measured under, and those above vLLM's
defaults for the GPU. Source: vLLM 0.32, engine/arg_utils.py, config/scheduler.py, config/cache.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from sim.core.config import SchedulerConfig
from sim.drafters import DrafterSize, drafter_size
from sim.errors import InputError
from sim.host import HostMemory, host_memory
from sim.kv_choice import BlockCount, KvChoice
from sim.memory import KvCapacity, longest_request
from sim.plurals import counted
from sim.specs import KV_DTYPE_BYTES
from sim.speculative import Rates, Settings, Speculation, read_speculation
from sim.without_effect import NOT_BUILT, flag_name, notes

if TYPE_CHECKING:
    from sim.specs import GpuSpec, ModelSpec

GIB = 1 << 30
AUTO_LENGTH = -1
"""`--max-model-len auto`: the longest that the KV cache can hold, at most the model's own."""

POLICIES = ("fcfs", "priority")
KV_PREEMPTIONS = ("recompute", "swap", "offload")
KV_OFFLOADING_BACKENDS = ("native", "lmcache")
PERFORMANCE_MODES = ("balanced", "interactivity", "throughput")
OPTIMIZATION_LEVELS = (0, 1, 2, 3)
DTYPES = ("auto", "half", "float16", "bfloat16", "float", "float32")
KV_CACHE_DTYPES = ("auto", *KV_DTYPE_BYTES)

VLLM_DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {
        "dtype": "auto",
        "tensor_parallel_size": 1,
        "block_size": 16,
        "gpu_memory_utilization": 0.92,
        "kv_cache_dtype": "auto",
        "enable_prefix_caching": True,
        "enable_chunked_prefill": True,
        "long_prefill_token_threshold": 0,
        "long_prefill_token_threshold_adaptive": False,
        "scheduling_policy": "fcfs",
        "scheduler_reserve_full_isl": True,
        "watermark": 0.0,
        "performance_mode": "balanced",
        "async_scheduling": True,
        "enforce_eager": False,
        "optimization_level": 2,
        "kv_offloading_backend": "native",
    }
)
"""Defaults that depend on nothing, as of vLLM 0.32."""


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Flags of `vllm serve`, under its names; None is unset. Raises InputError for a value that vLLM refuses.

    Units: tokens, requests, blocks; `gpu_memory_utilization` and `watermark` are fractions, `kv_cache_memory_bytes` is
    per GPU, `kv_offloading_size` is in GiB over all. `max_model_len` of -1 is vLLM's `auto`. Not vLLM's:
    `kv_preemption`, `pcie_bandwidth` (GB/s one way), `pcie_latency` (microseconds), `swap_space` (GiB per GPU), which
    vLLM had until 0.18, `offload_prompt_only`, which it takes in --kv-transfer-config; `draft_acceptance` (see
    `Speculation`) and `drafter_cost`, the time of one pass of the drafter as a share of the model's own.
    """

    dtype: str | None = None
    tensor_parallel_size: int | None = None
    max_model_len: int | None = None
    block_size: int | None = None
    gpu_memory_utilization: float | None = None
    kv_cache_memory_bytes: int | None = None
    kv_cache_dtype: str | None = None
    num_gpu_blocks_override: int | None = None
    enable_prefix_caching: bool | None = None
    max_num_batched_tokens: int | None = None
    max_num_scheduled_tokens: int | None = None
    max_num_seqs: int | None = None
    max_num_active_seqs: int | None = None
    enable_chunked_prefill: bool | None = None
    long_prefill_token_threshold: int | None = None
    long_prefill_token_threshold_adaptive: bool | None = None
    scheduling_policy: str | None = None
    scheduler_reserve_full_isl: bool | None = None
    watermark: float | None = None
    performance_mode: str | None = None
    async_scheduling: bool | None = None
    speculative_config: Settings | None = None
    spec_method: str | None = None
    spec_model: str | None = None
    spec_tokens: int | None = None
    draft_acceptance: Rates | None = None
    drafter_cost: float | None = None
    enforce_eager: bool | None = None
    compilation_config: Settings | None = None
    cudagraph_capture_sizes: tuple[int, ...] | list[int] | None = None
    max_cudagraph_capture_size: int | None = None
    optimization_level: int | None = None
    kv_offloading_size: float | None = None
    kv_offloading_backend: str | None = None
    kv_preemption: str | None = None
    swap_space: float | None = None
    offload_prompt_only: bool | None = None
    pcie_bandwidth: float | None = None
    pcie_latency: float | None = None
    max_num_queued_reqs: int | None = None
    max_num_queued_tokens: int | None = None
    stream_interval: int | None = None
    pipeline_parallel_size: int | None = None
    data_parallel_size: int | None = None
    prefill_schedule_interval: int | None = None
    disable_hybrid_kv_cache_manager: bool | None = None
    disable_chunked_mm_input: bool | None = None
    prefix_caching_hash_algo: str | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            self._check_type(field.name, str(field.type).split(" ")[0])
        for name, least in _AT_LEAST.items():
            value = getattr(self, name)
            self._require(value is None or value >= least, name, f"{least} or more")
        length = self.max_model_len
        self._require(length is None or length >= 1 or length == AUTO_LENGTH, "max_model_len", "1 or more, or auto")
        share = self.gpu_memory_utilization
        self._require(share is None or 0 < share <= 1, "gpu_memory_utilization", "a fraction in (0, 1]")
        mark = self.watermark
        self._require(mark is None or 0 <= mark < 1, "watermark", "a fraction in [0, 1)")
        # All of vLLM's attention backends for CUDA take multiples of 16 and nothing else.
        self._require((self.block_size or 16) % 16 == 0, "block_size", "a multiple of 16")
        for name, lowest, expected in _REAL:
            self._require(getattr(self, name) is None or lowest <= getattr(self, name) < _HUGE, name, expected)
        for name, allowed in _ONE_OF.items():
            self._require(getattr(self, name) in (None, *allowed), name, f"one of {', '.join(map(str, allowed))}")

    def _check_type(self, name: str, kind: str) -> None:
        """Settings also come from files, where nothing else has looked at their types."""
        value = getattr(self, name)
        kinds, expected = _KINDS[kind]
        fits = isinstance(value, kinds) and (kind == "bool" or not isinstance(value, bool))
        self._require(value is None or fits, name, expected)

    def _require(self, ok: bool, name: str, expected: str) -> None:
        if not ok:
            raise InputError(field=name, value=getattr(self, name), expected=expected)

    def notes(self) -> tuple[str, ...]:
        """One line for each flag that was given and has no effect here. Raises InputError, as `settle`."""
        return notes(self)

    def resolve(
        self,
        *,
        gpu: GpuSpec | None = None,
        model: ModelSpec | None = None,
        server_defaults: Mapping[str, object] = MappingProxyType({}),
    ) -> SchedulerConfig:
        """The scheduler's numbers: `settle` without what led to them."""
        return self.settle(gpu=gpu, model=model, server_defaults=server_defaults).scheduler

    def settle(
        self,
        *,
        gpu: GpuSpec | None = None,
        model: ModelSpec | None = None,
        server_defaults: Mapping[str, object] = MappingProxyType({}),
    ) -> Settled:
        """Choose every number as vLLM 0.32's API server does when it starts.

        `server_defaults` are the flags that a profile was measured under (names with underscores; others are passed
        over). Raises InputError for what is not built, for what vLLM refuses, and where a default needs a GPU or a
        model that is not given.
        """
        self._refuse_not_built()
        measured = _measured(server_defaults)
        said = _over(self, measured)
        length = _model_length(said, model)
        tokens, seqs = _budgets(self, said, gpu, length)
        speculation = said.speculation()
        if speculation is not None:
            speculation.check_beside(said, asked_for_async=bool(self.async_scheduling))
        drafter = drafter_size(speculation, model, said.drafter_cost)
        kv = BlockCount(self, measured, said, gpu, model).choose(tokens, seqs, drafter)
        if kv.num_blocks < 2:
            expected = f"one of which more fit into the KV cache than {counted(kv.num_blocks, 'such block')}"
            raise InputError(field="block_size", value=kv.block_size, expected=expected)
        longest = longest_request(kv.num_blocks, kv.block_size)
        length = min(length, longest) if said.max_model_len == AUTO_LENGTH else length
        if length > longest:
            expected = f"at most {longest}, which is what the {kv.num_blocks} KV blocks can hold for one request"
            raise InputError(field="max_model_len", value=length, expected=expected)
        host = host_memory(said, kv.block_size, gpu, model)
        numbers = _scheduler(said, length, tokens, seqs, kv, host, speculation)
        return Settled(numbers, kv, host, said, speculation, drafter)

    def speculation(self) -> Speculation | None:
        """Who drafts, and how it fares; None where nobody does. Raises InputError."""
        shorthands = {"method": self.spec_method, "model": self.spec_model, "num_speculative_tokens": self.spec_tokens}
        return read_speculation(self.speculative_config, shorthands, self.draft_acceptance)

    def _refuse_not_built(self) -> None:
        for name, (only, why) in NOT_BUILT.items():
            value = getattr(self, name)
            if value is not None and value != only:
                raise InputError(f"{flag_name(name)}: not built yet: {why}")


_KINDS: Mapping[str, tuple[tuple[type, ...], str]] = MappingProxyType(
    {
        "bool": ((bool,), "true or false"),
        "int": ((int,), "a whole number"),
        "float": ((int, float), "a number"),
        "str": ((str,), "a text"),
        "Settings": ((str, Mapping), "a JSON object"),
        "Rates": ((int, float, tuple), "numbers"),
        "tuple[int,": ((tuple, list), "whole numbers"),
    }
)

_AT_LEAST = {
    "tensor_parallel_size": 1, "block_size": 1, "kv_cache_memory_bytes": 1, "num_gpu_blocks_override": 2,
    "max_num_batched_tokens": 1, "max_num_scheduled_tokens": 1, "max_num_seqs": 1, "max_num_active_seqs": 1,
    "long_prefill_token_threshold": 0, "spec_tokens": 1, "max_num_queued_reqs": 0, "max_num_queued_tokens": 0,
    "max_cudagraph_capture_size": 1,
    "stream_interval": 1, "pipeline_parallel_size": 1, "data_parallel_size": 1, "prefill_schedule_interval": 1,
}  # fmt: skip

_ONE_OF = {
    "dtype": DTYPES,
    "kv_cache_dtype": KV_CACHE_DTYPES,
    "scheduling_policy": POLICIES,
    "performance_mode": PERFORMANCE_MODES,
    "optimization_level": OPTIMIZATION_LEVELS,
    "kv_preemption": KV_PREEMPTIONS,
    "kv_offloading_backend": KV_OFFLOADING_BACKENDS,
}

_HUGE = 1e9
_REAL = (
    ("drafter_cost", 0.0, f"a share of 0 or more, below {_HUGE:g}"),
    ("swap_space", 0.0, f"a number of GiB, 0 or more, below {_HUGE:g}"),
    ("kv_offloading_size", 0.0, f"a number of GiB, 0 or more, below {_HUGE:g}"),
    ("pcie_bandwidth", 1e-9, f"GB/s, more than 0, below {_HUGE:g}"),
    ("pcie_latency", 0.0, f"microseconds, 0 or more, below {_HUGE:g}"),
)
"""Flags of host memory: name, least value, what is expected."""


class Settled(NamedTuple):
    """All that `EngineConfig.settle` decided."""

    scheduler: SchedulerConfig
    kv: KvChoice
    host: HostMemory
    said: EngineConfig
    """Every flag as it was given, or as the profile's server had it, or by vLLM's fixed default."""
    speculation: Speculation | None
    drafter: DrafterSize

    @property
    def capacity(self) -> KvCapacity:
        """What the KV cache holds, as vLLM counts it."""
        return KvCapacity(self.kv.num_blocks, self.kv.block_size, self.scheduler.max_model_len)


def batch_defaults(gpu: GpuSpec) -> tuple[int, int]:
    """(max_num_batched_tokens, max_num_seqs) that vLLM's API server starts from on this GPU."""
    if gpu.memory_bytes >= 160 * GIB:
        return 16384, 1024
    # vLLM leaves the A100 with the small budget, whatever its memory: a large one cost it throughput.
    if gpu.memory_bytes >= 70 * GIB and "a100" not in gpu.device_name.lower():
        return 8192, 1024
    return 2048, 256


def _measured(server_defaults: Mapping[str, object]) -> EngineConfig:
    known = {field.name for field in fields(EngineConfig)} - NOT_BUILT.keys()
    settings: dict[str, Any] = {name: value for name, value in server_defaults.items() if name in known}
    return EngineConfig(**settings)


def _over(explicit: EngineConfig, measured: EngineConfig) -> EngineConfig:
    """`explicit`, then `measured`, then vLLM's fixed defaults."""
    values: dict[str, Any] = {}
    for field in fields(EngineConfig):
        name = field.name
        said = (getattr(explicit, name), getattr(measured, name), VLLM_DEFAULTS.get(name))
        values[name] = next((value for value in said if value is not None), None)
    return EngineConfig(**values)


def _model_length(said: EngineConfig, model: ModelSpec | None) -> int:
    """`max_model_len`, as long as the model's own at most; the KV cache may still shorten an automatic one."""
    asked = said.max_model_len
    if model is None:
        if asked is None or asked == AUTO_LENGTH:
            raise InputError(field="max_model_len", expected="a length in tokens, as no model is named to take it from")
        return asked
    if asked is None or asked == AUTO_LENGTH:
        return model.max_model_len
    if asked > model.max_model_len:
        expected = f"at most {model.max_model_len}, the longest that {model.name}'s config.json allows"
        raise InputError(field="max_model_len", value=asked, expected=expected)
    return asked


def _budgets(explicit: EngineConfig, said: EngineConfig, gpu: GpuSpec | None, length: int) -> tuple[int, int]:
    """(max_num_batched_tokens, max_num_seqs). Only what the user left open is fitted to the rest, as vLLM does."""
    tokens, seqs = said.max_num_batched_tokens, said.max_num_seqs
    if tokens is None or seqs is None:
        default_tokens, default_seqs = _default_budgets(said, gpu)
        tokens, seqs = tokens or default_tokens, seqs or default_seqs
    if explicit.max_num_batched_tokens is None:
        if not said.enable_chunked_prefill:
            tokens = max(tokens, length)
        tokens = min(tokens, seqs * length)
    if explicit.max_num_seqs is None:
        seqs = min(seqs, tokens)
    return tokens, seqs


def _default_budgets(said: EngineConfig, gpu: GpuSpec | None) -> tuple[int, int]:
    if gpu is None:
        missing = "max_num_batched_tokens" if said.max_num_batched_tokens is None else "max_num_seqs"
        raise InputError(field=missing, expected="a number, as no GPU is named to take vLLM's default from")
    tokens, seqs = batch_defaults(gpu)
    factor = 2 if said.performance_mode == "throughput" else 1
    return tokens * factor, seqs * factor


def _scheduler(
    said: EngineConfig,
    length: int,
    tokens: int,
    seqs: int,
    kv: KvChoice,
    host: HostMemory,
    speculation: Speculation | None,
) -> SchedulerConfig:
    return SchedulerConfig(
        max_num_batched_tokens=tokens,
        max_num_seqs=seqs,
        max_model_len=length,
        num_gpu_blocks=kv.num_blocks,
        block_size=kv.block_size,
        policy="priority" if said.scheduling_policy == "priority" else "fcfs",
        enable_chunked_prefill=bool(said.enable_chunked_prefill),
        enable_prefix_caching=bool(said.enable_prefix_caching),
        scheduler_reserve_full_isl=bool(said.scheduler_reserve_full_isl),
        watermark=said.watermark or 0.0,
        long_prefill_token_threshold=said.long_prefill_token_threshold or 0,
        long_prefill_token_threshold_adaptive=bool(said.long_prefill_token_threshold_adaptive),
        max_num_active_seqs=said.max_num_active_seqs,
        max_num_scheduled_tokens=said.max_num_scheduled_tokens,
        async_scheduling=bool(said.async_scheduling and (speculation is None or speculation.allows_async)),
        num_speculative_tokens=0 if speculation is None else speculation.num_speculative_tokens,
        spec_method="ngram" if speculation is None else speculation.scheduler_method,
        kv_preemption=host.preemption,
        num_host_blocks=host.num_blocks,
        offload_prompt_only=said.offload_prompt_only is not False,
    )
