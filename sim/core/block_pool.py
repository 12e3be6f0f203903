"""The pool of KV blocks: reference counts, hashes, and which free block is reused next.

Mirrors vllm/v1/core/block_pool.py (vLLM 0.32).

    free queue, reused from the left     [ blank | blank | ... | cached, oldest | ... | cached, newest ]
    a freed block without a hash joins   ^ here                       a freed block with a hash joins here ^
    a prefix hit takes its block out of the middle

Blank blocks all lie before cached ones (a free block loses its hash only by being reused), and one blank block is like
another; so the queue is two parts: a stack of blanks, and an ordered dict of cached blocks, whose C linked list gives
append, pop from the left and removal from the middle in constant time.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(slots=True, eq=False)
class Block:
    """One KV block. `ref_cnt` requests hold it; `block_hash` names the full block of text in it, if it is findable."""

    block_id: int
    ref_cnt: int = 0
    block_hash: int | None = None


class BlockPool:
    """All blocks but the null block, which vLLM never hands out.

    Several blocks may carry the same hash (requests that computed the same text side by side): the one that was hashed
    first and is still there is the one that is found.
    """

    def __init__(self, num_gpu_blocks: int) -> None:
        self.blocks = [Block(i) for i in range(1, num_gpu_blocks)]
        self._blank = self.blocks[::-1]
        self._evictable: OrderedDict[Block, None] = OrderedDict()
        self._findable: dict[int, Block] = {}
        self._duplicates: dict[int, list[Block]] = {}

    @property
    def num_free_blocks(self) -> int:
        """Blocks that nobody holds, cached ones included."""
        return len(self._blank) + len(self._evictable)

    def allocate(self, n: int) -> list[Block]:
        """Take `n` free blocks, the least recently used cached ones when blank ones run out; n <= num_free_blocks."""
        blank = self._blank
        if len(blank) < n:
            self._evict(n - len(blank))
        blocks = blank[-n:]
        del blank[-n:]
        for block in blocks:
            block.ref_cnt = 1
        return blocks

    def allocate_one(self) -> Block | None:
        """One free block, or None where there is none."""
        if not self._blank:
            if not self._evictable:
                return None
            self._evict(1)
        block = self._blank.pop()
        block.ref_cnt = 1
        return block

    def free(self, blocks: Iterable[Block]) -> None:
        """Give back one reference to each block, in order of eviction: the first given is the first reused."""
        blank, evictable = self._blank, self._evictable
        for block in blocks:
            block.ref_cnt -= 1
            if block.ref_cnt == 0:
                if block.block_hash is None:
                    blank.append(block)
                else:
                    evictable[block] = None

    def find(self, block_hash: int) -> Block | None:
        """The oldest block that holds this text, or None."""
        return self._findable.get(block_hash)

    def touch(self, blocks: list[Block]) -> None:
        """Take a reference to found blocks; free ones leave the free queue."""
        for block in blocks:
            if block.ref_cnt == 0:
                del self._evictable[block]
            block.ref_cnt += 1

    def cache(self, blocks: list[Block], hashes: list[int]) -> None:
        """Make full blocks findable by their hashes."""
        findable = self._findable
        for block, block_hash in zip(blocks, hashes, strict=True):
            block.block_hash = block_hash
            if findable.setdefault(block_hash, block) is not block:
                self._duplicates.setdefault(block_hash, []).append(block)

    def _evict(self, n: int) -> None:
        """Turn the n least recently used cached blocks into blank ones."""
        evictable, findable, blank = self._evictable, self._findable, self._blank
        for _ in range(n):
            block, _ = evictable.popitem(last=False)
            block_hash = block.block_hash
            assert block_hash is not None
            if block_hash in self._duplicates:
                self._forget_one(block, block_hash)
            else:
                del findable[block_hash]
            block.block_hash = None
            blank.append(block)

    def _forget_one(self, block: Block, block_hash: int) -> None:
        """Drop one of several blocks with the same hash."""
        others = self._duplicates[block_hash]
        if self._findable[block_hash] is block:
            self._findable[block_hash] = others.pop(0)
        else:
            others.remove(block)
        if not others:
            del self._duplicates[block_hash]
