"""Identity of KV blocks: which text a block holds, after which text. The one idea: content ids stand for text.

vLLM hashes (parent block's hash, token ids). Here the token ids of a block are named by its slices of content,
`(content_id, first position, n)`, so no token lists exist, sharing below a block's size and pieces of any length
follow the same rule, and a request's generated text is its last, endless piece.
Mirrors vllm/v1/core/kv_cache_utils.py (vLLM 0.32).
"""

from __future__ import annotations

from typing import ClassVar, Protocol

_ROOT = 0x656C70617365  # the parent of every first block
_BLOCKS_PER_OWNER = 1 << 24


class BlockHashes(Protocol):
    """Where a request's block hashes come from."""

    own_text: ClassVar[bool]
    """Nobody else's blocks can have the same hashes, so when they are made is nobody else's concern."""

    def upto(self, num_blocks: int) -> list[int]:
        """The hashes list, holding at least the first `num_blocks`."""


class BlockHasher:
    """The chained block hashes of one request's known and future tokens, computed as far as they are asked for.

    `pieces` is the prompt as `(content_id, n)`, each from its content's position 0 on; `output_content` follows it.
    A content id may be any integer but -1, which CPython hashes as -2.
    """

    own_text: ClassVar[bool] = False
    __slots__ = ("_block_size", "_offset", "_output_content", "_piece", "_pieces", "hashes")

    def __init__(self, pieces: tuple[tuple[int, int], ...], output_content: int, block_size: int) -> None:
        self._pieces = pieces
        self._output_content = output_content
        self._block_size = block_size
        self._piece = 0  # the piece that the next block starts in,
        self._offset = 0  # and where in it
        self.hashes: list[int] = []

    def upto(self, num_blocks: int) -> list[int]:
        """The hashes list, holding at least the first `num_blocks`."""
        hashes = self.hashes
        while len(hashes) < num_blocks:
            parent = hashes[-1] if hashes else _ROOT
            hashes.append(self._next_hash(parent))
        return hashes

    def _next_hash(self, parent: int) -> int:
        size = self._block_size
        if self._piece == len(self._pieces):  # inside the generated text
            start = self._offset
            self._offset += size
            return hash((parent, self._output_content, start, size))
        content_id, length = self._pieces[self._piece]
        if self._offset + size < length:  # inside one piece
            start = self._offset
            self._offset += size
            return hash((parent, content_id, start, size))
        return hash((parent, *self._slices(size)))

    def _slices(self, missing: int) -> list[int]:
        """The next `missing` tokens over as many pieces as they touch: content id, start, n of each, in a row."""
        slices: list[int] = []
        while missing and self._piece < len(self._pieces):
            content_id, length = self._pieces[self._piece]
            n = min(missing, length - self._offset)
            slices += (content_id, self._offset, n)
            missing -= n
            self._offset += n
            if self._offset == length:
                self._piece += 1
                self._offset = 0
        if missing:
            slices += (self._output_content, self._offset, missing)
            self._offset += missing
        return slices


class OwnTextHasher:
    """Block hashes of a request whose text nobody else has: nothing to chain, a number for each block will do.

    `owner` >= 0 tells requests apart. The numbers are negative and far from the 64-bit hashes of BlockHasher.
    """

    own_text: ClassVar[bool] = True
    __slots__ = ("_first", "hashes")

    def __init__(self, owner: int) -> None:
        self._first = -(owner * _BLOCKS_PER_OWNER) - 1
        self.hashes: list[int] = []

    def upto(self, num_blocks: int) -> list[int]:
        """The hashes list, holding at least the first `num_blocks`."""
        hashes, first = self.hashes, self._first
        if len(hashes) < num_blocks:
            hashes.extend(range(first - len(hashes), first - num_blocks, -1))
        return hashes
