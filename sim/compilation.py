"""`--compilation-config` as vLLM takes it: which keys there are, and what the two modes may be.

Not for which graphs follow from it (`sim.latency.graph_flags`). The one idea: vLLM refuses a key that it does not know,
so a key that it had once, or one with a slip, is not passed over.
Source: vLLM 0.32, config/compilation.py (CompilationConfig, CompilationMode, CUDAGraphMode).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sim.errors import InputError, did_you_mean
from sim.speculative import read_settings

if TYPE_CHECKING:
    from sim.speculative import Settings

_FIELD = "compilation_config"
GRAPH_MODES = ("NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")
"""`cudagraph_mode`; the first three may be said as their numbers."""
_NUMBERED_GRAPH_MODES = 3
COMPILATION_MODES = ("NONE", "STOCK_TORCH_COMPILE", "DYNAMO_TRACE_ONCE", "VLLM_COMPILE")
"""`mode`; each may be said as its number."""

SIMULATED = ("mode", "cudagraph_mode", "cudagraph_capture_sizes", "max_cudagraph_capture_size")
KEYS_WITHOUT_EFFECT = (
    "debug_dump_path", "cache_dir", "compile_cache_save_format", "backend", "custom_ops", "ir_enable_torch_wrap",
    "splitting_ops", "compile_mm_encoder", "cudagraph_mm_encoder", "encoder_cudagraph_token_budgets",
    "encoder_cudagraph_max_vision_items_per_batch", "encoder_cudagraph_max_frames_per_batch",
    "cudagraph_decoder_replay", "decoder_replay_cudagraph_capture_sizes", "decoder_replay_trim_threshold",
    "compile_sizes", "compile_ranges_endpoints", "inductor_compile_config", "inductor_passes",
    "cudagraph_num_of_warmups", "cudagraph_copy_inputs", "cudagraph_specialize_lora", "use_inductor_graph_partition",
    "pass_config", "dynamic_shapes_config", "fast_moe_cold_start",
)  # fmt: skip
"""Keys that change how the model is compiled: no profile tells one compilation from another."""


def read_compilation(settings: Settings) -> dict[str, Any]:
    """The object that it says, both modes by their names, None where it leaves them open. Raises InputError."""
    said = read_settings(_FIELD, settings)
    for key in said:
        if key not in (*SIMULATED, *KEYS_WITHOUT_EFFECT):
            known = did_you_mean(key, (*SIMULATED, *KEYS_WITHOUT_EFFECT))
            expected = f"a key that vLLM 0.32 has: {', '.join(SIMULATED)}, ...{known}"
            raise InputError(field=_FIELD, value=key, expected=expected)
    graphs = _named("cudagraph_mode", said.get("cudagraph_mode"), GRAPH_MODES, _NUMBERED_GRAPH_MODES)
    mode = _named("mode", said.get("mode"), COMPILATION_MODES, len(COMPILATION_MODES))
    return {**said, "cudagraph_mode": graphs, "mode": mode}


def _named(key: str, value: object, names: tuple[str, ...], numbered: int) -> str | None:
    """A mode by its name in any case, or by its number."""
    if value is None:
        return None
    if isinstance(value, str) and value.upper() in names:
        return value.upper()
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < numbered:
        return names[value]
    raise InputError(field=f"{_FIELD}.{key}", value=value, expected=f"one of {', '.join(names)}")
