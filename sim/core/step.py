"""The two words the core speaks: a plan goes out, an outcome comes back.

A plan is one `schedule()` call's decision, written as aligned columns so that pricing and logging a step cost a few
C-speed passes over lists instead of an object per request. Not for deciding (scheduler.py) and not for time.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from sim.core.request import Request


class Limit(enum.Enum):
    """What ended the admission of waiting requests in a step, where it was not the end of the queue."""

    __hash__ = object.__hash__  # looked up for every step; an Enum's own is slow

    TOKENS = "tokens"
    """The token budget was used up, or too small for a whole prompt without chunked prefill."""
    SEQS = "seqs"
    """max_num_seqs (or max_num_active_seqs) requests were running."""
    BLOCKS = "blocks"
    """The tokens that the head of the queue could compute now did not fit into the free KV blocks."""
    GATE = "gate"
    """They did, but not its whole known sequence (scheduler_reserve_full_isl)."""
    WATERMARK = "watermark"
    """All of it did, but not beside the blocks that the watermark keeps free."""
    PREEMPTION = "preemption"
    """Somebody was preempted in this step, so nobody was admitted."""
    TRANSFER = "transfer"
    """All who wait need KV that is on its way to or from host memory."""


class Transfer(NamedTuple):
    """KV blocks that go to or from host memory beside the steps, by the number that `transfer_done` is told."""

    number: int
    num_blocks: int


class StepPlan:
    """What one `schedule()` call decided. Columns are aligned: position i speaks of `requests[i]`.

    Order is vLLM's own: running requests first, then admitted ones. All counts are tokens, blocks or requests.
    Handed over by `schedule()`, which keeps nothing of it; the engine adds what plans without tokens before it moved.
    """

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.num_scheduled_tokens: list[int] = []
        """Tokens to compute in this step, each >= 1."""
        self.num_computed_tokens: list[int] = []
        """Context in the KV cache before this step."""
        self.chunks: list[int] = []
        """Positions with more than one scheduled token (prompt chunks, resumed sequences, drafts)."""
        self.partial: list[int] = []
        """Positions that do not catch up with their known tokens in this step, and so sample nothing."""
        self.num_drafts: dict[int, int] = {}
        """Position -> speculative tokens among its scheduled tokens; absent: none."""
        self.admitted: list[tuple[Request, int]] = []
        """Requests taken from the waiting queue, each with its prefix-cache hit (0 = none)."""
        self.preempted: list[Request] = []
        self.total_num_scheduled_tokens = 0
        self.num_running = self.num_waiting = self.num_free_blocks = 0
        """Running, waiting and free blocks after the call."""
        self.limit: Limit | None = None
        """What ended admission; None: nobody was left waiting."""
        self.swapped_out: list[tuple[Request, int]] = []
        """Those of the preempted whose KV is copied to host memory before this step runs, each with its blocks."""
        self.swapped_in: list[tuple[Request, int]] = []
        """Requests whose KV is copied back before this step runs, each with its blocks."""
        self.loads: list[Transfer] = []
        """From host memory, to start when this step has run."""
        self.stores: list[Transfer] = []
        """To host memory, to start when this step has run and, so as not to delay it, the next one begins."""
        self.flushes: list[int] = []
        """Numbers of stores that must be over before this step computes."""
        self.host_queries = 0
        """Tokens that were looked for in host memory by requests admitted or loading in this step."""
        self.num_host_blocks = 0
        """Blocks of host memory in use after the call."""


class StepOutcome(NamedTuple):
    """What the model answered to a plan, aligned with its `requests`."""

    num_sampled: list[int]
    """Tokens sampled: 0 for partial positions, else 1 + accepted drafts."""
    stopped: Mapping[int, int] = MappingProxyType({})
    """Position -> its how manieth sampled token is a stop token (1: the first); what follows it is dropped."""
    num_new_drafts: list[int] | None = None
    """Sync speculation: tokens that the drafter proposes for each position, to be verified next. Async: None."""
