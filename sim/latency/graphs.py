"""CUDA graphs: a step of few tokens runs as the smallest captured one that holds it, padding and all.

Not for which graphs a server's flags ask for (`graph_flags`). The one idea: captured sizes make a staircase of the
tokens that the GPU computes. Decodes alone, each with as many tokens as a whole draft and one, replay one whole graph;
other steps replay the pieces between attention layers; a step beyond the largest size runs without.
Source: vLLM 0.32, v1/worker/gpu/cudagraph_utils.py, whose runtime modes these are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from sim.errors import InputError


class GraphMode(Enum):
    """How a step runs."""

    __hash__ = object.__hash__  # looked up for every step; an Enum's own is slow

    NONE = "NONE"
    """Kernel by kernel."""
    PIECEWISE = "PIECEWISE"
    """In graphs, but for attention."""
    FULL = "FULL"
    """As one graph."""


class GraphRun(NamedTuple):
    """How one step runs, and how many tokens the GPU then computes."""

    num_tokens: int
    mode: GraphMode


@dataclass(frozen=True, slots=True)
class Graphs:
    """Which steps run as graphs, and how wide those are."""

    sizes: tuple[int, ...] = ()
    """Captured numbers of tokens, ascending; none: no graphs."""
    mixed: bool = False
    """Steps with chunks run as graphs too (vLLM's piecewise ones), not only pure decodes."""
    decode_sizes: tuple[int, ...] | None = None
    """Captured as whole graphs of decodes alone; None: all of `sizes`."""
    query_len: int = 1
    """Tokens of each decode in those: 1, and the drafts that it verifies."""
    mixed_mode: GraphMode = GraphMode.PIECEWISE
    """How `mixed` steps run; FULL where attention can be captured for any step."""
    decode_padding: tuple[GraphRun, ...] = field(init=False, repr=False, compare=False)
    """Position n: how a pure decode of n tokens runs. As long as the largest size + 1: beyond, no padding."""
    mixed_padding: tuple[GraphRun, ...] = field(init=False, repr=False, compare=False)
    """The same for other steps."""

    def __post_init__(self) -> None:
        if any(size < 1 for size in self.sizes) or list(self.sizes) != sorted(set(self.sizes)):
            raise InputError(field="sizes", value=list(self.sizes), expected="ascending batch sizes from 1")
        decodes = self.sizes if self.decode_sizes is None else self.decode_sizes
        mixed = self.sizes if self.mixed else ()
        object.__setattr__(self, "decode_padding", _staircase(decodes, GraphMode.FULL))
        object.__setattr__(self, "mixed_padding", _staircase(mixed, self.mixed_mode))

    def __reduce__(self) -> tuple[type[Graphs], tuple[object, ...]]:
        """To pickle what it is made of: attributes cannot be set afterwards, and compiled it has no other way."""
        return Graphs, (self.sizes, self.mixed, self.decode_sizes, self.query_len, self.mixed_mode)

    def run(self, num_tokens: int, num_seqs: int, chunk_tokens: int) -> GraphRun:
        """How a step of so many tokens runs, of which `chunk_tokens` are in chunks."""
        decodes = not chunk_tokens and num_tokens == self.query_len * num_seqs
        if decodes and num_tokens < len(self.decode_padding):
            return self.decode_padding[num_tokens]
        if num_tokens < len(self.mixed_padding):
            return self.mixed_padding[num_tokens]
        return _without_graphs(num_tokens)

    def padded(self, num_tokens: int, chunk_tokens: int) -> int:
        """Tokens that a step without drafts computes, of which `chunk_tokens` are in chunks."""
        return self.run(num_tokens, num_tokens, chunk_tokens).num_tokens


@lru_cache(maxsize=1 << 14)
def _without_graphs(num_tokens: int) -> GraphRun:
    """Beyond the largest size; made once for each number of tokens."""
    return GraphRun(num_tokens, GraphMode.NONE)


def _staircase(sizes: tuple[int, ...], mode: GraphMode) -> tuple[GraphRun, ...]:
    """Position n: the smallest size that holds n."""
    padded = [GraphRun(0, mode)] if sizes else []
    for size in sizes:
        padded += [GraphRun(size, mode)] * (size + 1 - len(padded))
    return tuple(padded)


NO_GRAPHS = Graphs()

_LARGEST, _LARGEST_BLACKWELL = 512, 1024
_FINE = 32
"""Up to here `--performance-mode interactivity` captures every size."""


def capture_sizes(
    max_num_batched_tokens: int,
    max_num_seqs: int,
    *,
    capability: tuple[int, int] = (9, 0),
    query_len: int = 1,
    largest: int | None = None,
    interactivity: bool = False,
) -> tuple[int, ...]:
    """The sizes that vLLM 0.32 captures when none are named (vllm/config/vllm.py).

    1, 2, 4, then every 8 below 256, then every 16 up to twice the tokens of max_num_seqs decodes, at most 512 (1024 on
    capability 10); with max_num_batched_tokens where it is not above that, and with the decodes' own: max_num_seqs,
    or, where each verifies drafts (`query_len` tokens), those numbers of requests times query_len. A `largest` that is
    said takes the place of that bound and leaves the decodes' own sizes out.
    """
    ceiling = _LARGEST_BLACKWELL if capability[0] == 10 else _LARGEST
    bound = min(2 * max_num_seqs * query_len, ceiling) if largest is None else largest
    decodes: list[int] = []
    if largest is None:
        requests = (
            [max_num_seqs] if query_len == 1 else [*_grid(min(max_num_seqs, ceiling)), min(max_num_seqs, ceiling)]
        )
        decodes = [n * query_len for n in requests if n * query_len <= bound]
    top = min(bound, max_num_batched_tokens)
    sizes = {n for n in (*decodes, *_grid(top)) if n <= max_num_batched_tokens}
    if interactivity:
        sizes |= set(range(1, min(top, _FINE) + 1))
    if max_num_batched_tokens == top:
        sizes.add(top)
    return tuple(sorted(sizes))


def _grid(top: int) -> list[int]:
    return [n for n in (1, 2, 4, *range(8, 256, 8), *range(256, top + 1, 16)) if n <= top]
