"""Preemption by swap: a victim's KV goes to host memory and comes back later.

A counterfactual: no vLLM of today does it. It is what V0 did, gone since vLLM 0.11, on top of V1's loop. The one idea:
recomputing is swapping without space.

As in V0 (vllm/core/scheduler.py and block_manager.py of vLLM 0.10):

- The victim's blocks with computed KV are copied out before the step that preempts it runs; it keeps its computed
  tokens, and its GPU blocks are that step's to use.
- Swapped requests stand in a queue of their own, in the order of their swaps (policy priority: by their keys).
- They come back before anybody who waits is admitted, and only in a step that preempts nobody. One comes back when
  what V0's `can_swap_in` asks for fits: its whole known sequence and the watermark. The first that does not blocks
  those behind it. While any is out, nobody who waits is admitted.
- It goes on in the step that brings it back, after the copy.

As in V1: who is the victim, the budgets, the cap on running requests, what admission asks for (without
`scheduler_reserve_full_isl` only the next tokens must fit; the watermark counts while something runs).

As in neither: V0 stopped when its space was full, here the victim is recomputed. A copy takes all of a request's
blocks, also those that the GPU's prefix cache still has, and shares none in host memory. Drafts that wait are lost. A
request that the step in flight is sure to finish is copied like any other.

Async: the output of the step in flight is not stale, as that step writes its KV before the copy, in stream order. It is
back before the next step that could bring the request in, and may finish it where it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.core.request import SWAPPED
from sim.core.request_queue import make_queue

if TYPE_CHECKING:
    from sim.core.config import SchedulerConfig
    from sim.core.request import Request
    from sim.core.request_queue import RequestQueue


class SwapSpace:
    """Host memory for the KV of preempted requests, in blocks; of 0 blocks where preemption is by recompute."""

    def __init__(self, config: SchedulerConfig) -> None:
        self.num_blocks = config.num_host_blocks if config.kv_preemption == "swap" else 0
        self.num_used_blocks = 0
        """Blocks that swapped requests hold."""
        self.requests: RequestQueue = make_queue(config.policy)
        """Swapped requests, in the order in which they come back."""
        self.held: dict[Request, int] = {}
        """Swapped request -> its blocks."""

    def take(self, request: Request, num_blocks: int) -> int:
        """Keep that many blocks of a victim; returns them, or 0 and nothing happens where they do not fit."""
        if not 0 < num_blocks <= self.num_blocks - self.num_used_blocks:
            return 0
        self.num_used_blocks += num_blocks
        self.held[request] = num_blocks
        self.requests.add(request)
        request.status = SWAPPED
        request.num_swaps += 1
        return num_blocks

    def give_back(self, request: Request) -> int:
        """It comes back, or is gone: its space is free; returns its blocks."""
        num_blocks = self.held.pop(request)
        self.requests.remove(request)
        self.num_used_blocks -= num_blocks
        return num_blocks
