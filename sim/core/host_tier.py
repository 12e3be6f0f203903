"""Host memory as a second tier of the prefix cache: which blocks it holds, and which goes next.

Not for when blocks move (`offloading`). Mirrors vllm/v1/kv_offload/cpu (manager.py and policies/lru.py, vLLM 0.32): a
block is being written, then readable, pinned while somebody reads it; the least recently used of those that nobody
reads goes first. Used means: stored, and once more when a request that stored or loaded it is done, the head of a
sequence last, so that it stays longest.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

_WRITING = -1


class HostTier:
    """Blocks of text by their hashes, the least recently used first."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._readers: OrderedDict[int, int] = OrderedDict()
        """Hash -> how many loads read it now; `_WRITING` until it is stored."""
        self._num_idle = 0

    @property
    def num_used_blocks(self) -> int:
        """Blocks that hold text, or will when it is written."""
        return len(self._readers)

    def holds(self, block_hash: int) -> bool:
        """It is there, readable or being written."""
        return block_hash in self._readers

    def is_readable(self, block_hash: int) -> bool:
        """It is there and written."""
        return self._readers.get(block_hash, _WRITING) != _WRITING

    def begin_store(self, hashes: Collection[int]) -> list[int] | None:
        """Make room for those that are not there; returns them, or None and no change where there is none.

        The given ones that are there already stay there.
        """
        fresh = [block_hash for block_hash in hashes if block_hash not in self._readers]
        missing = len(fresh) - (self.num_blocks - len(self._readers))
        if missing > 0:
            evicted = self._least_recent(missing, set(hashes)) if missing <= self._num_idle else None
            if evicted is None:
                return None
            for block_hash in evicted:
                del self._readers[block_hash]
            self._num_idle -= missing
        for block_hash in fresh:
            self._readers[block_hash] = _WRITING
        return fresh

    def end_store(self, hashes: Iterable[int]) -> None:
        """They are written, and readable."""
        for block_hash in hashes:
            self._readers[block_hash] = 0
            self._num_idle += 1

    def begin_load(self, hashes: Iterable[int]) -> None:
        """They are read, and stay until they have been."""
        for block_hash in hashes:
            self._num_idle -= self._readers[block_hash] == 0
            self._readers[block_hash] += 1

    def end_load(self, hashes: Iterable[int]) -> None:
        """They have been read."""
        for block_hash in hashes:
            self._readers[block_hash] -= 1
            self._num_idle += self._readers[block_hash] == 0

    def use(self, hashes: Collection[int]) -> None:
        """A request with these, in the order of its text, is done."""
        for block_hash in reversed(list(hashes)):
            if block_hash in self._readers:
                self._readers.move_to_end(block_hash)

    def _least_recent(self, n: int, keep: set[int]) -> list[int] | None:
        """The n blocks to evict; None where fewer may go."""
        found: list[int] = []
        for block_hash, readers in self._readers.items():
            if readers == 0 and block_hash not in keep:
                found.append(block_hash)
                if len(found) == n:
                    return found
        return None

    def count_idle(self) -> tuple[int, int]:
        """Blocks that may go, as kept and as counted; for checks."""
        return self._num_idle, sum(readers == 0 for readers in self._readers.values())
