"""CUDA graphs: a step of few tokens runs as the smallest captured one that holds it, padding and all.

Not for when a graph pays (the server decides that once). The one idea: captured sizes make a staircase of the tokens
that the GPU computes, and the law is priced by those.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sim.errors import InputError


@dataclass(frozen=True, slots=True)
class Graphs:
    """Which steps run as graphs, and how wide those are."""

    sizes: tuple[int, ...] = ()
    """Captured numbers of tokens, ascending; none: no graphs."""
    mixed: bool = False
    """Steps with chunks run as graphs too (vLLM's piecewise ones), not only pure decodes."""
    decode_padding: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """Position n: the tokens that a pure decode of n computes. As long as sizes[-1] + 1: beyond, nothing is padded."""
    mixed_padding: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """The same for steps with chunks."""

    def __post_init__(self) -> None:
        if any(size < 1 for size in self.sizes) or list(self.sizes) != sorted(set(self.sizes)):
            raise InputError(field="sizes", value=list(self.sizes), expected="ascending batch sizes from 1")
        padded: list[int] = [0]
        for size in self.sizes:
            padded += [size] * (size + 1 - len(padded))
        table = tuple(padded) if self.sizes else ()
        object.__setattr__(self, "decode_padding", table)
        object.__setattr__(self, "mixed_padding", table if self.mixed else ())

    def padded(self, num_tokens: int, chunk_tokens: int) -> int:
        """Tokens that a step computes, of which `chunk_tokens` are in chunks."""
        table = self.mixed_padding if chunk_tokens else self.decode_padding
        return table[num_tokens] if num_tokens < len(table) else num_tokens


NO_GRAPHS = Graphs()

_LARGEST, _LARGEST_BLACKWELL = 512, 1024


def capture_sizes(
    max_num_batched_tokens: int, max_num_seqs: int, *, capability: tuple[int, int] = (9, 0)
) -> tuple[int, ...]:
    """The sizes that vLLM 0.32 captures by default, without speculation (vllm/config/vllm.py).

    1, 2, 4, then every 8 below 256, then every 16 up to twice max_num_seqs, at most 512 (1024 on capability 10); with
    max_num_batched_tokens where it is not above that, and max_num_seqs.
    """
    ceiling = _LARGEST_BLACKWELL if capability[0] == 10 else _LARGEST
    largest = min(2 * max_num_seqs, ceiling, max_num_batched_tokens)
    sizes = {n for n in (1, 2, 4, *range(8, 256, 8), *range(256, largest + 1, 16)) if n <= largest}
    if max_num_batched_tokens == largest:
        sizes.add(largest)
    if max_num_seqs <= min(ceiling, max_num_batched_tokens):
        sizes.add(max_num_seqs)
    return tuple(sorted(sizes))
