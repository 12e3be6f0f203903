"""Identity of KV blocks: which text a block holds, after which text. The one idea: content ids stand for text.

vLLM hashes (parent block's hash, token ids). Here the token ids of a block are named by its slices of content,
`(content_id, first position, n)`, so no token lists exist, sharing below a block's size and pieces of any length
follow the same rule, and a request's generated text is its last, endless piece.
Mirrors vllm/v1/core/kv_cache_utils.py (vLLM 0.32).
"""

from __future__ import annotations

_ROOT = 0x656C70617365  # the parent of every first block


class BlockHasher:
    """The chained block hashes of one request's known and future tokens, computed as far as they are asked for.

    `pieces` is the prompt as `(content_id, n)`, each from its content's position 0 on; `output_content` follows it.
    Content ids below 0 are kept for text that occurs once (never -1, whose hash equals that of -2 in CPython).
    """

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
