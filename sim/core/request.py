"""A request as the server sees it: what it knows of it, and how far it has come.

Mirrors vllm/v1/request.py (vLLM 0.32). Not for the client's side (`workloads.Request`), nor for when things happen:
no clock here.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from sim.core.block_hash import BlockHashes
from sim.core.block_pool import Block


class Status(enum.Enum):
    """Where a request is."""

    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    SWAPPED = "swapped"
    """Preempted, with its KV in host memory."""
    LOADING = "loading"
    """It holds blocks that are loaded from host memory; vLLM's WAITING_FOR_REMOTE_KVS."""
    FINISHED = "finished"
    ABORTED = "aborted"


WAITING, RUNNING, PREEMPTED, SWAPPED, LOADING, FINISHED, ABORTED = Status
"""As names of their own: to look up an attribute of an Enum costs Python 3.11 as much as three calls."""


@dataclass(slots=True, eq=False)
class Request:
    """Scheduler state of one request, owned and changed by the scheduler and its KV cache manager only.

    The first fields are what `add_request` is given; counts are tokens. `arrival_time` (any unit) breaks ties of
    priority; give distinct ones, or two equal requests can preempt each other for ever, as in vLLM.
    """

    request_id: str
    num_prompt_tokens: int
    max_tokens: int
    block_hasher: BlockHashes
    arrival_time: float = 0.0
    priority: int = 0

    status: Status = WAITING
    num_tokens: int = field(init=False)
    """Known tokens: the prompt and what has been generated."""
    num_computed_tokens: int = 0
    """Tokens whose KV is in the cache (or will be when the scheduled step has run)."""
    final_num_tokens: int = field(init=False)
    """`num_tokens` at which it finishes; set by the scheduler, which knows max_model_len."""
    num_blocks: int = 0
    """KV blocks that it holds."""
    num_cached_blocks: int = 0
    """Leading ones that are in the prefix cache: full, and of known tokens."""
    nameless: bool = field(init=False)
    """Nobody looks for its blocks, so only their number is known: its text is its own, and it was never preempted."""
    blocks: list[Block] = field(default_factory=list)
    """The blocks themselves, unless it is `nameless`."""
    num_preemptions: int = 0
    num_swaps: int = 0
    """Preemptions that kept its KV, in host memory."""
    num_recomputed_tokens: int = 0
    """Computed tokens thrown away by preemption, less what the prefix cache gave back."""
    num_draft_tokens: int = 0
    """Speculative tokens that wait to be verified."""
    num_output_placeholders: int = 0
    """Async: tokens of steps in flight that count as known before they are."""
    joined: int | None = None
    """In a cohort: the round as of which it is described here; it goes on from there (see `Cohort.settle`)."""
    is_prefill_chunk: bool = False
    """It did not catch up with its known tokens when last scheduled."""

    def __post_init__(self) -> None:
        self.num_tokens = self.num_prompt_tokens
        self.nameless = self.block_hasher.own_text
        self.final_num_tokens = self.num_prompt_tokens + self.max_tokens

    @property
    def num_output_tokens(self) -> int:
        """Tokens generated so far."""
        return self.num_tokens - self.num_prompt_tokens

    @property
    def keeps_kv(self) -> bool:
        """Its computed tokens are in the cache, or in host memory, those of the step in flight among them."""
        return self.status is RUNNING or self.status is SWAPPED

    @property
    def is_finished(self) -> bool:
        """It has left the scheduler: finished or aborted."""
        return self.status is FINISHED or self.status is ABORTED
