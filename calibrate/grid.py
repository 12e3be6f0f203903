"""Which steps to time, in which order: few of them must already pin the law down, more only sharpen it.

Not for timing. The one idea: every family of steps (pure decodes, whole prompts, later chunks, mixed ones) first gets
its corners, then points of a low-discrepancy sequence on a logarithmic scale, and the families take turns; so whenever
the time is up, each regime has been seen from end to end. Source of the sequence: Roberts, "The unreasonable
effectiveness of quasirandom sequences" (2018), the d-dimensional golden ratio.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import cycle, islice
from typing import TYPE_CHECKING

import numpy as np

from sim.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

LEAST_CONTEXT = 128
_SPREAD = 0.5
"""Contexts of a batch lie evenly within so much of their mean: a server's are never all alike."""
_LEAST_CHUNK = 2
_MOST_PROMPTS = 8
"""Prompts that share a step."""


@dataclass(frozen=True, slots=True)
class GridStep:
    """One step to time: chunks as (tokens, context before), decode rows as their contexts."""

    chunks: tuple[tuple[int, int], ...]
    decodes: tuple[int, ...]

    @property
    def chunk_tokens(self) -> int:
        """Tokens in chunks."""
        return sum(n for n, _ in self.chunks)

    @property
    def num_tokens(self) -> int:
        """Tokens of the step."""
        return self.chunk_tokens + len(self.decodes)

    @property
    def num_seqs(self) -> int:
        """Sequences of the step."""
        return len(self.chunks) + len(self.decodes)

    @property
    def decode_context(self) -> int:
        """Context of all decode rows."""
        return sum(self.decodes)

    @property
    def chunk_pairs(self) -> float:
        """Query-key pairs of the chunks."""
        return sum(n * (c + 0.5 * n) for n, c in self.chunks)

    def blocks(self, block_size: int) -> int:
        """KV blocks that its sequences hold."""
        lengths = [n + c for n, c in self.chunks] + [1 + c for c in self.decodes]
        return sum(-(-length // block_size) for length in lengths)


@dataclass(frozen=True, slots=True)
class GridLimits:
    """How far the grid reaches: tokens of a step, sequences, context of one sequence, tokens in the KV cache."""

    max_tokens: int
    max_seqs: int
    max_context: int
    kv_tokens: int
    max_model_len: int

    def __post_init__(self) -> None:
        for name, least in (("max_tokens", 16), ("max_seqs", 1), ("max_context", 16), ("kv_tokens", 64)):
            if getattr(self, name) < least:
                raise InputError(field=name, value=getattr(self, name), expected=f"at least {least}")

    @property
    def longest(self) -> int:
        """Tokens that one sequence can have."""
        return min(self.max_model_len, self.kv_tokens // 2)

    @property
    def context(self) -> int:
        """The greatest mean context: what spreads around it still fits, and a token more."""
        return max(1, min(self.max_context, int((self.longest - 1) / (1 + _SPREAD))))

    @property
    def least_context(self) -> int:
        """The smallest one."""
        return min(LEAST_CONTEXT, self.context)


def grid(limits: GridLimits, count: int) -> list[GridStep]:
    """The first `count` steps, all different. Each family's corners come first, the cheap ones before the dear ones."""
    families = [_Family(limits, *family) for family in _FAMILIES]
    seen: dict[GridStep, None] = {}
    for step in islice(_in_turn(families), 4 * count):  # small limits have fewer steps than asked for
        seen.setdefault(step)
        if len(seen) == count:
            break
    return list(seen)


def _in_turn(families: Sequence[_Family]) -> Iterator[GridStep]:
    by_name = {family.name: iter(family) for family in families}
    for name in cycle(_TURNS):
        yield next(by_name[name])


@dataclass(frozen=True, slots=True)
class _Family:
    """One kind of step: a law from the unit cube to steps."""

    limits: GridLimits
    name: str
    dimensions: int
    corners: tuple[tuple[float, ...], ...]
    build: Callable[[GridLimits, tuple[float, ...]], GridStep]

    def __iter__(self) -> Iterator[GridStep]:
        for point in self.corners:
            yield self.build(self.limits, point)
        for point in low_discrepancy(self.dimensions):
            yield self.build(self.limits, point)


def low_discrepancy(dimensions: int) -> Iterator[tuple[float, ...]]:
    """Points that fill the unit cube evenly, however many are taken."""
    root = 2.0
    for _ in range(64):
        root = (1.0 + root) ** (1.0 / (dimensions + 1))
    index = 0
    while True:
        index += 1
        yield tuple((0.5 + index * root ** -(axis + 1)) % 1.0 for axis in range(dimensions))


def _log(low: float, high: float, at: float) -> int:
    """A whole number between two, evenly on a logarithmic scale."""
    return round(low * math.exp(at * math.log(max(high, low) / low)))


def _contexts(limits: GridLimits, rows: int, kv_tokens: int, at: float) -> tuple[int, ...]:
    """Contexts of decode rows around a mean that the cache can hold."""
    # A block is half empty on average, and the row's own token needs a place.
    fits = max(1, kv_tokens // rows - 16)
    mean = _log(min(limits.least_context, fits), min(limits.context, fits), at)
    spread = np.linspace(1 - _SPREAD, 1 + _SPREAD, rows) if rows > 1 else np.ones(1)
    return tuple(int(context) for context in np.maximum(1, mean * spread))


def _decode(limits: GridLimits, at: tuple[float, ...]) -> GridStep:
    rows = _log(1, min(limits.max_seqs, limits.max_tokens, limits.kv_tokens // 32), at[0])
    return GridStep((), _contexts(limits, rows, limits.kv_tokens, at[1]))


def _prompt(limits: GridLimits, at: tuple[float, ...]) -> GridStep:
    total = _log(_LEAST_CHUNK, min(limits.max_tokens, limits.kv_tokens // 2, limits.max_seqs * limits.longest), at[0])
    wanted = _log(1, min(_MOST_PROMPTS, limits.max_seqs), at[1])
    prompts = max(min(wanted, total // _LEAST_CHUNK), -(-total // limits.longest))
    sizes = [total // prompts + (i < total % prompts) for i in range(prompts)]
    return GridStep(tuple((n, 0) for n in sizes), ())


def _chunk(limits: GridLimits, at: tuple[float, ...]) -> GridStep:
    return GridStep((_one_chunk(limits, limits.kv_tokens // 2, at[0], at[1]),), ())


def _one_chunk(limits: GridLimits, kv_tokens: int, tokens_at: float, context_at: float) -> tuple[int, int]:
    longest = min(limits.longest, kv_tokens)
    tokens = _log(16, max(16, min(limits.max_tokens - 1, longest // 2)), tokens_at)
    room = max(1, min(longest - tokens, limits.max_context))
    return tokens, _log(min(limits.least_context, room), room, context_at)


def _mixed(limits: GridLimits, at: tuple[float, ...]) -> GridStep:
    """Half of the cache for the chunk, half for the decode rows. Every other chunk is a prompt's first."""
    tokens, context = _one_chunk(limits, limits.kv_tokens // 2, at[0], abs(2 * at[1] - 1))
    context = context if at[1] > 0.5 else 0
    most = min(limits.max_seqs - 1, limits.max_tokens - tokens, limits.kv_tokens // 64)
    rows = _log(1, max(1, most), at[2])
    return GridStep(((tokens, context),), _contexts(limits, rows, limits.kv_tokens // 2, at[3]))


_FAMILIES: tuple[tuple[str, int, tuple[tuple[float, ...], ...], Callable[..., GridStep]], ...] = (
    ("decode", 2, ((0, 0), (0.5, 0), (0, 1), (1, 0), (0.5, 1), (1, 1), (0.25, 0.5), (0.75, 0.5)), _decode),
    ("prompt", 2, ((0.3, 0), (0.6, 0), (0, 0), (0.8, 1), (0.9, 0), (1, 0)), _prompt),
    ("chunk", 2, ((0, 0), (0, 1), (0.5, 0.5), (1, 0), (0.7, 1)), _chunk),
    ("mixed", 4, ((0, 0, 0, 0), (0.5, 0, 0.5, 0.5), (0, 1, 1, 1), (0.8, 0, 1, 0), (0.8, 1, 0.5, 1)), _mixed),
)
"""Name, dimensions, corners, and how a point becomes a step."""

_TURNS = ("decode", "mixed", "prompt", "decode", "mixed", "chunk")
"""A server decodes in nearly every step, and mixed steps have most to tell: they get two turns of six each."""
