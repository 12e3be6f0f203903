"""KV blocks of requests: prefix hits, admission, slots for new tokens.

Mirrors vllm/v1/core/kv_cache_manager.py (vLLM 0.32).

    a request's blocks    | hit, found in the cache | computed earlier | new for this step |
                          <-- num_cached_blocks carry a hash: full, and of known tokens -->

Hashing happens when slots are given, before the step has run, so a later request of the same step can already hit. Text
that nobody else has can only be hit by its own request after a preemption; until then its blocks need no names and no
hashes, they are only counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.core.block_pool import Block, BlockPool
from sim.core.step import Limit

if TYPE_CHECKING:
    from sim.core.config import SchedulerConfig
    from sim.core.request import Request


class KVCacheManager:
    """Gives, shares and takes back the blocks of requests."""

    def __init__(self, config: SchedulerConfig) -> None:
        self.block_pool = BlockPool(config.num_gpu_blocks)
        self._block_size = config.block_size
        self._max_model_len = config.max_model_len
        self._enable_caching = config.enable_prefix_caching
        # Of all blocks, the null block included.
        self._watermark_blocks = int(config.watermark * config.num_gpu_blocks)
        self._reserve_full_isl = config.scheduler_reserve_full_isl
        self._num_lookahead_tokens = config.num_lookahead_tokens
        self._drop_last_hit = config.spec_method == "eagle" and config.num_speculative_tokens > 0

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold `num_tokens` tokens."""
        return -(-num_tokens // self._block_size)

    def find_computed_blocks(self, request: Request) -> list[Block]:
        """The longest run of cached blocks that the request's known tokens start with.

        The last known token is always computed again, since its output is what the next token is sampled from.
        """
        if not self._enable_caching or request.nameless:
            return []
        found: list[Block] = []
        find = self.block_pool.find
        hasher = request.block_hasher
        for index in range((request.num_tokens - 1) // self._block_size):
            block = find(hasher.upto(index + 1)[index])
            if block is None:
                break
            found.append(block)
        if self._drop_last_hit and found:
            found.pop()  # EAGLE needs the hidden states right before the next token
        return found

    def admit(self, request: Request, hit: list[Block], num_new_tokens: int, *, anything_running: bool) -> bool:
        """Give a request its hit blocks and slots for `num_new_tokens` more; False, and no change, if not free.

        It is one that waits; it may have computed tokens, in blocks that it holds or that are to be filled again.

        With `scheduler_reserve_full_isl` the whole known sequence must fit, not only this chunk. The watermark stays
        free unless nothing runs. Hit blocks in the free queue count as needed: they leave it.
        """
        num_tokens = request.num_computed_tokens + len(hit) * self._block_size + num_new_tokens
        total = self._with_lookahead(num_tokens)
        whole = request.num_tokens if self._reserve_full_isl and request.num_tokens > total else total
        needed = self.blocks_for(whole) - request.num_blocks - len(hit)
        if hit:
            needed += sum(block.ref_cnt == 0 for block in hit)
        if anything_running:
            needed += self._watermark_blocks
        if needed > self.block_pool.num_free_blocks:
            return False
        self._hold(request, hit)
        self._extend(request, num_tokens, total)
        return True

    def admit_load(
        self, request: Request, hit: list[Block], num_blocks: int, reserved: int, *, anything_running: bool
    ) -> bool:
        """Give a request hit blocks and others to load into, `num_blocks` in all; False, and no change, if not free.

        `reserved` blocks stay free for prompts in flight, as it holds its own without getting on. Nothing is hashed.
        """
        free = self.block_pool.num_free_blocks - sum(block.ref_cnt == 0 for block in hit) + len(hit)
        free -= self._watermark_blocks if anything_running else 0
        if self._reserve_full_isl and self.blocks_for(request.num_tokens) > free:
            return False
        if num_blocks > free - reserved:
            return False
        self._hold(request, hit)
        self.block_pool.take(num_blocks - len(hit))
        self.own(request, num_blocks * self._block_size)
        return True

    def _hold(self, request: Request, hit: list[Block]) -> None:
        if not hit:
            return
        self.block_pool.touch(hit)
        request.blocks += hit
        request.num_blocks += len(hit)
        request.num_cached_blocks += len(hit)

    def what_lacks(self, request: Request, hit: list[Block], num_new_tokens: int) -> Limit:
        """Why `admit` said no."""
        free = (
            self.block_pool.num_free_blocks - sum(block.ref_cnt == 0 for block in hit) + len(hit) + request.num_blocks
        )
        num_tokens = request.num_computed_tokens + len(hit) * self._block_size + num_new_tokens
        if self.blocks_for(self._with_lookahead(num_tokens)) > free:
            return Limit.BLOCKS
        if self._reserve_full_isl and self.blocks_for(request.num_tokens) > free:
            return Limit.GATE
        return Limit.WATERMARK

    def allocate_slots(self, request: Request, num_new_tokens: int) -> bool:
        """Slots for the next `num_new_tokens` tokens of a running request; False, and no change, if blocks lack."""
        num_tokens = request.num_computed_tokens + num_new_tokens
        total = self._with_lookahead(num_tokens)
        if self.blocks_for(total) - request.num_blocks > self.block_pool.num_free_blocks:
            return False
        self._extend(request, num_tokens, total)
        return True

    def own(self, request: Request, num_tokens: int) -> None:
        """Blocks that were taken for a decode's first `num_tokens` tokens are its own."""
        missing = self.blocks_for(num_tokens) - request.num_blocks
        if missing > 0:
            if not request.nameless:
                request.blocks += self.block_pool.name(missing)
            request.num_blocks += missing

    def name_blocks(self, request: Request) -> None:
        """The request will be back, and look for what it has computed: from here on each of its blocks counts."""
        if not request.nameless or not self._enable_caching:
            return
        request.nameless = False
        request.blocks = self.block_pool.name(request.num_blocks)
        cached = request.num_cached_blocks
        self.block_pool.cache(request.blocks[:cached], request.block_hasher.upto(cached)[:cached])

    def free(self, request: Request) -> None:
        """Give back all blocks, the tail first, so that the head of a shared prefix is kept longest."""
        if request.nameless:
            cached = request.num_cached_blocks
            self.block_pool.give_back(cached, request.num_blocks - cached)
        if request.blocks:
            self.block_pool.free(reversed(request.blocks))
            request.blocks = []
        request.num_blocks = request.num_cached_blocks = 0

    def cache_blocks(self, request: Request, num_tokens: int) -> None:
        """Hash the blocks that are full with the first `num_tokens` tokens."""
        first, num_full = request.num_cached_blocks, num_tokens // self._block_size
        if not self._enable_caching or num_full <= first:
            return
        if not request.nameless:
            hashes = request.block_hasher.upto(num_full)
            self.block_pool.cache(request.blocks[first:num_full], hashes[first:num_full])
        request.num_cached_blocks = num_full

    def _with_lookahead(self, num_tokens: int) -> int:
        total = num_tokens + self._num_lookahead_tokens
        return total if total < self._max_model_len else self._max_model_len

    def _extend(self, request: Request, num_tokens: int, total: int) -> None:
        """Hold blocks for `num_tokens` tokens, `total` with lookahead, and hash those that are full of known tokens."""
        missing = self.blocks_for(total) - request.num_blocks
        if missing > 0:
            self.block_pool.take(missing)
            self.own(request, total)
        self.cache_blocks(request, num_tokens if num_tokens < request.num_tokens else request.num_tokens)
