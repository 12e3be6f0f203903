"""The pool of KV blocks: reference counts, hashes, and which free block is reused next.

Mirrors vllm/v1/core/block_pool.py (vLLM 0.32).

    free queue, reused from the left     [ blank | blank | ... | cached, oldest | ... | cached, newest ]
    a freed block without a hash joins   ^ here                       a freed block with a hash joins here ^
    a prefix hit takes its block out of the middle

Blank blocks all lie before cached ones (a free block loses its hash only by being reused), and one blank block is like
another; so the queue is two parts: a number of blanks, and an ordered dict of what is cached, whose C linked list gives
append, pop from the left and removal from the middle in constant time.

Cached blocks that nobody will ever look for are like one another, too. So who has text of its own holds *nameless*
blocks, a number, and leaves an *extent*: some cached blocks, with one place in the queue. When an extent's turn comes,
all of it turns blank: its blocks would be the next to be reused anyway.
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


@dataclass(slots=True, eq=False)
class Extent:
    """Free blocks that hold text which nobody will look for, freed at once."""

    num_blocks: int


class BlockPool:
    """All blocks but the null block, which vLLM never hands out.

    Several blocks may carry the same hash (requests that computed the same text side by side): the one that was hashed
    first and is still there is the one that is found.
    """

    def __init__(self, num_gpu_blocks: int) -> None:
        self.num_free_blocks = self._num_blank = num_gpu_blocks - 1
        """Blocks that nobody holds, cached ones included; and those of them without a hash."""
        self._evictable: OrderedDict[Block | Extent, None] = OrderedDict()
        self._findable: dict[int, Block] = {}
        self._duplicates: dict[int, list[Block]] = {}
        self._unused: list[Block] = []
        """Named blocks that have turned blank, to be handed out again under their ids."""
        self._num_named = 0

    def take(self, n: int) -> None:
        """Hand out `n` free blocks without names, the least recently used cached ones when blank ones run out."""
        assert n <= self.num_free_blocks
        if self._num_blank < n:
            self._evict(n)
        self._num_blank -= n
        self.num_free_blocks -= n

    def give_back(self, num_cached: int, num_blank: int) -> None:
        """Take back nameless blocks; those that are cached will never be found, but are reused only in their turn."""
        self.num_free_blocks += num_cached + num_blank
        self._num_blank += num_blank
        if num_cached:
            self._evictable[Extent(num_cached)] = None

    def name(self, n: int) -> list[Block]:
        """Names for `n` blocks that one request holds without."""
        unused = self._unused
        while len(unused) < n:
            self._num_named += 1
            unused.append(Block(self._num_named))
        blocks = unused[len(unused) - n :]
        del unused[len(unused) - n :]
        for block in blocks:
            block.ref_cnt = 1
        return blocks

    def allocate(self, n: int) -> list[Block]:
        """What `take` does, for blocks with names."""
        self.take(n)
        return self.name(n)

    def free(self, blocks: Iterable[Block]) -> None:
        """Give back one reference to each block, in order of eviction: the first given is the first reused."""
        for block in blocks:
            block.ref_cnt -= 1
            if block.ref_cnt == 0:
                self.num_free_blocks += 1
                if block.block_hash is None:
                    self._turn_blank(block)
                else:
                    self._evictable[block] = None

    def find(self, block_hash: int) -> Block | None:
        """The oldest block that holds this text, or None."""
        return self._findable.get(block_hash)

    def touch(self, blocks: list[Block]) -> None:
        """Take a reference to found blocks; free ones leave the free queue."""
        for block in blocks:
            if block.ref_cnt == 0:
                del self._evictable[block]
                self.num_free_blocks -= 1
            block.ref_cnt += 1

    def cache(self, blocks: list[Block], hashes: list[int]) -> None:
        """Make full blocks findable by their hashes."""
        findable = self._findable
        for block, block_hash in zip(blocks, hashes, strict=True):
            block.block_hash = block_hash
            if findable.setdefault(block_hash, block) is not block:
                self._duplicates.setdefault(block_hash, []).append(block)

    def count_free(self) -> int:
        """`num_free_blocks`, counted; for checks."""
        cached = sum(entry.num_blocks if isinstance(entry, Extent) else 1 for entry in self._evictable)
        return self._num_blank + cached

    def _evict(self, num_blank: int) -> None:
        """Turn least recently used cached blocks into blank ones, until there are as many of these as asked for."""
        while self._num_blank < num_blank:
            entry, _ = self._evictable.popitem(last=False)
            if isinstance(entry, Extent):
                self._num_blank += entry.num_blocks
            else:
                self._forget(entry)
                self._turn_blank(entry)

    def _turn_blank(self, block: Block) -> None:
        self._num_blank += 1
        self._unused.append(block)

    def _forget(self, block: Block) -> None:
        """A block's text is no longer in the cache, unless another block holds it, too."""
        block_hash = block.block_hash
        assert block_hash is not None
        block.block_hash = None
        others = self._duplicates.get(block_hash)
        if others is None:
            del self._findable[block_hash]
            return
        if self._findable[block_hash] is block:
            self._findable[block_hash] = others.pop(0)
        else:
            others.remove(block)
        if not others:
            del self._duplicates[block_hash]
