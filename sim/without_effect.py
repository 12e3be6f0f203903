"""Flags of vLLM that do nothing here, or that are taken at one value only, and the lines that say so.

Not for what the other flags mean (`sim.config`). The one idea: nothing that somebody says is passed over in silence.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from sim.compilation import KEYS_WITHOUT_EFFECT as COMPILATION_KEYS
from sim.compilation import read_compilation
from sim.speculative import KEYS_WITHOUT_EFFECT as SPECULATIVE_KEYS
from sim.speculative import read_settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sim.config import EngineConfig


class NotBuilt(NamedTuple):
    """A flag of vLLM that this version takes at one value only."""

    only: object
    why: str


NOT_BUILT: Mapping[str, NotBuilt] = MappingProxyType(
    {
        "kv_offloading_backend": NotBuilt("native", "LMCache is not simulated"),
        "max_num_queued_reqs": NotBuilt(None, "the API server's queue limit is not simulated"),
        "max_num_queued_tokens": NotBuilt(None, "the API server's queue limit is not simulated"),
        "stream_interval": NotBuilt(1, "each token is streamed by itself"),
        "pipeline_parallel_size": NotBuilt(1, "one pipeline stage is simulated"),
        "data_parallel_size": NotBuilt(1, "one replica is simulated"),
    }
)

NO_EFFECT: Mapping[str, str] = MappingProxyType(
    {
        "prefill_schedule_interval": "it acts only between data-parallel ranks, and one engine is simulated",
        "disable_hybrid_kv_cache_manager": "every layer keeps the KV of all tokens here, with it and without it",
        "disable_chunked_mm_input": "prompts are text",
        "prefix_caching_hash_algo": "blocks are told apart exactly, whatever the hash",
    }
)
"""Flags that are accepted, and do nothing in what is simulated."""

_GRAPH_SIZES = ("cudagraph_capture_sizes", "max_cudagraph_capture_size")


def flag_name(name: str) -> str:
    """As it is spelt on the command line."""
    return f"--{name.replace('_', '-')}"


def notes(config: EngineConfig) -> tuple[str, ...]:
    """One line for each flag that was given and has no effect: never, or not beside the others.

    Raises InputError for settings that are refused on their own.
    """
    found = [(flag_name(name), why) for name, why in NO_EFFECT.items() if getattr(config, name) is not None]
    found += [*_keys(config), *_of_drafts(config), *_beside_others(config)]
    return tuple(f"{what} has no effect: {why}" for what, why in found)


def _keys(config: EngineConfig) -> Iterable[tuple[str, str]]:
    """Of flags that are JSON objects."""
    if config.speculative_config is not None:
        said = read_settings("speculative_config", config.speculative_config)
        why = "which drafts there are and how they are computed is not simulated; --draft-acceptance says how they fare"
        yield from ((f"--speculative-config {key}", why) for key in said if key in SPECULATIVE_KEYS)
    if config.compilation_config is not None:
        said = read_compilation(config.compilation_config)
        why = "of the compilation only its mode and the CUDA graphs are simulated"
        yield from ((f"--compilation-config {key}", why) for key in said if key in COMPILATION_KEYS)


def _of_drafts(config: EngineConfig) -> Iterable[tuple[str, str]]:
    if config.drafter_cost is None:
        return
    speculation = config.speculation()
    if speculation is None:
        yield "--drafter-cost", "nobody drafts, see --speculative-config"
    elif speculation.scheduler_method == "ngram":
        yield "--drafter-cost", f"{speculation.method} looks its drafts up in the text"


def _beside_others(config: EngineConfig) -> Iterable[tuple[str, str]]:
    copies = config.kv_offloading_size is not None or config.kv_preemption not in (None, "recompute")
    for name in () if copies else ("pcie_bandwidth", "pcie_latency"):
        if getattr(config, name) is not None:
            yield flag_name(name), "without --kv-offloading-size or --kv-preemption swap nothing is copied"
    if config.long_prefill_token_threshold_adaptive and not config.long_prefill_token_threshold:
        yield "--long-prefill-token-threshold-adaptive", "there is no --long-prefill-token-threshold to raise"
    for name in _GRAPH_SIZES if config.enforce_eager else ():
        if getattr(config, name) is not None:
            yield flag_name(name), "--enforce-eager captures no CUDA graphs"
