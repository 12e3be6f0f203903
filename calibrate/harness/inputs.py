"""A step's inputs as flat arrays: which tokens, at which positions, into which slots of the paged KV cache.

Not for computing anything with them (torch_model.py), and not for deciding (sim.core). The one idea: one row per live
sequence keeps its tokens and its block table, so a step's arrays are a few numpy gathers, however many rows it has.

    tokens of a step | decode rows, one each | chunk | chunk | ...
    KV cache         | block 0: nobody's, where padding is written | block 1 | block 2 | ...
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


class Piece(NamedTuple):
    """What one sequence computes in a step, from position `start` on."""

    row: int
    start: int
    num_tokens: int
    samples: bool
    """It has caught up with its known tokens, so its last token's output is sampled from."""


@dataclass(frozen=True, slots=True)
class StepInputs:
    """Arrays of one step: T tokens of S sequences, decode rows (one token) first, then chunks; K of them sample."""

    tokens: Ints
    """(T,) token ids."""
    positions: Ints
    """(T,) positions in their sequences."""
    slots: Ints
    """(T,) where their K and V go: block * block size + offset."""
    num_decodes: int
    starts: Ints
    """(S,) context before the step."""
    counts: Ints
    """(S,) tokens in the step."""
    tables: Ints
    """(S, blocks) block ids, 0 beyond a sequence's own."""
    sampled: Ints
    """(K,) indices into the T tokens."""
    sampling: list[Piece]
    """The pieces that sample, in the order of `sampled`."""

    @property
    def num_tokens(self) -> int:
        """Tokens of the step."""
        return int(self.tokens.size)

    @property
    def chunks(self) -> list[tuple[int, int]]:
        """(tokens, context before) of every chunk."""
        n = self.num_decodes
        return list(zip(self.counts[n:].tolist(), self.starts[n:].tolist(), strict=True))

    @property
    def decodes(self) -> list[int]:
        """Context of every decode row."""
        decodes: list[int] = self.starts[: self.num_decodes].tolist()
        return decodes


class InputBatch:
    """Tokens and block tables of the sequences that run: row -> both."""

    def __init__(self, max_rows: int, max_tokens: int, block_size: int) -> None:
        self._block_size = block_size
        self._tokens = np.zeros((max_rows, max_tokens), dtype=np.int64)
        self._tables = np.zeros((max_rows, -(-max_tokens // block_size)), dtype=np.int64)
        self._num_blocks = [0] * max_rows
        self._free = list(range(max_rows - 1, -1, -1))

    def add(self, tokens: NDArray[np.integer]) -> int:
        """Give a sequence a row, with its tokens so far; its blocks follow by `hold`."""
        row = self._free.pop()
        self._tokens[row, : tokens.size] = tokens
        return row

    def drop(self, row: int) -> None:
        """The sequence has left: finished or preempted."""
        self._tables[row, : self._num_blocks[row]] = 0
        self._num_blocks[row] = 0
        self._free.append(row)

    def hold(self, row: int, block_ids: Sequence[int], total: int) -> None:
        """The row now has `total` blocks; `block_ids` are those from `num_blocks(row)` on."""
        self._tables[row, self._num_blocks[row] : total] = block_ids
        self._num_blocks[row] = total

    def num_blocks(self, row: int) -> int:
        """Blocks that the row is known to hold."""
        return self._num_blocks[row]

    def append(self, row: int, position: int, token: int) -> None:
        """A token was sampled."""
        self._tokens[row, position] = token

    def tokens(self, row: int, count: int) -> Ints:
        """The first `count` tokens of a row, copied."""
        return self._tokens[row, :count].copy()

    def inputs(self, pieces: Sequence[Piece]) -> StepInputs:
        """The arrays of a step. Pieces of one token go first; apart from that their order stays."""
        ordered = sorted(pieces, key=_is_chunk)
        rows, starts, counts, samples = (np.array(column, dtype=np.int64) for column in zip(*ordered, strict=True))
        ends = np.cumsum(counts)
        row_of = np.repeat(rows, counts)
        positions = np.arange(ends[-1]) + np.repeat(starts - (ends - counts), counts)
        blocks, offsets = np.divmod(positions, self._block_size)
        longest = int((starts + counts).max())
        return StepInputs(
            tokens=self._tokens[row_of, positions],
            positions=positions,
            slots=self._tables[row_of, blocks] * self._block_size + offsets,
            num_decodes=int((counts == 1).sum()),
            starts=starts,
            counts=counts,
            tables=self._tables[rows, : -(-longest // self._block_size)],
            sampled=ends[samples.astype(bool)] - 1,
            sampling=[piece for piece in ordered if piece.samples],
        )


def _is_chunk(piece: Piece) -> bool:
    return piece.num_tokens > 1
