"""Which CUDA graphs a server captures, by vLLM 0.32's rule from its flags.

Not for how a step finds its graph (`graphs`). The one idea: the flags name modes and sizes, the scheduler's settings
bound them: a graph for more decodes than may run, or for more tokens than a step may have, is never captured.
Source: vLLM 0.32, config/vllm.py (_set_cudagraph_sizes, optimization levels), config/compilation.py (CUDAGraphMode),
v1/worker/gpu/cudagraph_utils.py (CudaGraphManager).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sim.compilation import read_compilation
from sim.errors import InputError
from sim.latency.graphs import NO_GRAPHS, GraphMode, Graphs, capture_sizes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sim.config import EngineConfig, Settled

_OF_LEVEL = ("NONE", "PIECEWISE", "FULL_AND_PIECEWISE", "FULL_AND_PIECEWISE")
"""Optimization level -> mode."""
_WITHOUT_PIECES = {"PIECEWISE": "NONE", "FULL_AND_PIECEWISE": "FULL_DECODE_ONLY"}
_FLAG = "compilation_config"


def settled_graphs(settled: Settled, capability: tuple[int, int] = (9, 0)) -> Graphs:
    """The graphs of a server on a GPU of this CUDA capability. Raises InputError for what vLLM refuses."""
    said, scheduler = settled.said, settled.scheduler
    compilation = {} if said.compilation_config is None else read_compilation(said.compilation_config)
    sizes, largest = _named(said, compilation)
    mode = _mode(said, compilation, capability)
    if mode == "NONE":
        return NO_GRAPHS
    tokens, seqs = scheduler.max_num_batched_tokens, scheduler.max_num_seqs
    query_len = 1 + scheduler.num_speculative_tokens
    if sizes is None:
        interactivity = said.performance_mode == "interactivity"
        captured = capture_sizes(
            tokens, seqs, capability=capability, query_len=query_len, largest=largest, interactivity=interactivity
        )
    else:
        captured = tuple(sorted({size for size in sizes if size <= tokens}))
        if largest is not None and captured[-1:] != (largest,):
            expected = f"{max(captured, default=0)}, the largest of cudagraph_capture_sizes that fits into a step"
            raise InputError(field="max_cudagraph_capture_size", value=largest, expected=expected)
    return graphs_of(mode, captured, query_len, seqs)


def graphs_of(mode: str, sizes: tuple[int, ...], query_len: int, max_num_seqs: int) -> Graphs:
    """The graphs of a mode (vLLM's `cudagraph_mode`) that were captured at these sizes."""
    if mode == "NONE" or not sizes:
        return NO_GRAPHS
    if mode == "FULL":
        return Graphs(sizes, mixed=True, query_len=query_len, mixed_mode=GraphMode.FULL)
    decodes = _decode_sizes(sizes, query_len, max_num_seqs) if mode.startswith("FULL") else ()
    return Graphs(sizes, mixed=mode.endswith("PIECEWISE"), decode_sizes=decodes, query_len=query_len)


def mode_of(graphs: Graphs) -> str:
    """Which mode such graphs are of."""
    if not graphs.sizes:
        return "NONE"
    if graphs.mixed_mode is GraphMode.FULL:
        return "FULL"
    whole = len(graphs.decode_padding) > 0
    return ("FULL_AND_PIECEWISE" if whole else "PIECEWISE") if graphs.mixed else "FULL_DECODE_ONLY"


def _decode_sizes(captured: tuple[int, ...], query_len: int, max_num_seqs: int) -> tuple[int, ...]:
    """Whole decodes only, and no more than may run: 104 is no size for 100 requests, so 97 of them find no graph."""
    rounded = {-(-size // query_len) * query_len for size in captured}
    return tuple(sorted(n for n in rounded if n <= min(captured[-1], query_len * max_num_seqs)))


def _mode(said: EngineConfig, compilation: Mapping[str, Any], capability: tuple[int, int]) -> str:
    if said.enforce_eager:
        return "NONE"
    level = said.optimization_level
    mode: str = compilation.get("cudagraph_mode") or _OF_LEVEL[2 if level is None else level]
    compiled = compilation.get("mode") or ("VLLM_COMPILE" if level != 0 else "NONE")
    if compiled == "STOCK_TORCH_COMPILE":  # vLLM runs it without graphs
        return "NONE"
    if compiled != "VLLM_COMPILE":  # which alone cuts a model into pieces
        mode = _WITHOUT_PIECES.get(mode, mode)
    # FlashAttention 3, on Hopper only, is the one that can be captured for any step.
    if mode == "FULL" and capability[0] != 9:
        mode = "FULL_AND_PIECEWISE"
    return mode


def _named(said: EngineConfig, compilation: Mapping[str, Any]) -> tuple[list[int] | None, int | None]:
    """(capture sizes, the largest), each None unless a flag or the compilation config names it; not both may."""
    sizes, largest = compilation.get("cudagraph_capture_sizes"), compilation.get("max_cudagraph_capture_size")
    for name, flag, inner in (
        ("cudagraph_capture_sizes", said.cudagraph_capture_sizes, sizes),
        ("max_cudagraph_capture_size", said.max_cudagraph_capture_size, largest),
    ):
        if flag is not None and inner is not None:
            raise InputError(field=name, value=flag, expected=f"none beside that of --{_FLAG.replace('_', '-')}")
    sizes = said.cudagraph_capture_sizes if sizes is None else sizes
    largest = said.max_cudagraph_capture_size if largest is None else largest
    if sizes is not None and not (isinstance(sizes, list | tuple) and sizes and all(map(_is_size, sizes))):
        raise InputError(field="cudagraph_capture_sizes", value=sizes, expected="a list of batch sizes from 1")
    if largest is not None and not _is_size(largest):
        raise InputError(field="max_cudagraph_capture_size", value=largest, expected="a whole number of 1 or more")
    return None if sizes is None else list(sizes), largest


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
