"""Scheduler settings, resolved to numbers: what `schedule()` reads. Names are vLLM's own.

Not for defaults by device or for flags as users write them: that is `sim.config.EngineConfig`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, get_args

from sim.errors import InputError

Policy = Literal["fcfs", "priority"]
SpecMethod = Literal["ngram", "eagle", "draft_model"]
"""Drafters by what they ask of the scheduler: nothing; lookahead slots and the last hit block computed again;
lookahead slots and one more input slot per request."""

KvPreemption = Literal["recompute", "swap", "offload"]
"""What becomes of a preempted request's KV: dropped and computed again (V1), copied to host memory (V0), or dropped
and, as everybody's is copied to host memory when it is computed, loaded from there (V1's OffloadingConnector)."""

MAX_BLOCKS = 10_000_000
"""More than any GPU has; each takes some 100 bytes here."""


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """Settings of one engine's scheduler and KV cache. Raises InputError where vLLM 0.32 refuses.

    Units: tokens, requests and blocks. `num_gpu_blocks` includes vLLM's null block, which is never handed out;
    `watermark` is a fraction of all blocks; a `long_prefill_token_threshold` of 0 means none.
    """

    max_num_batched_tokens: int
    max_num_seqs: int
    max_model_len: int
    num_gpu_blocks: int
    block_size: int = 16
    policy: Policy = "fcfs"
    enable_chunked_prefill: bool = True
    enable_prefix_caching: bool = True
    scheduler_reserve_full_isl: bool = True
    watermark: float = 0.0
    long_prefill_token_threshold: int = 0
    long_prefill_token_threshold_adaptive: bool = False
    max_num_active_seqs: int | None = None
    max_num_scheduled_tokens: int | None = None
    async_scheduling: bool = False
    num_speculative_tokens: int = 0
    spec_method: SpecMethod = "ngram"
    kv_preemption: KvPreemption = "recompute"
    num_host_blocks: int = 0
    """KV blocks that fit into the host memory that `kv_preemption` uses."""
    offload_prompt_only: bool = True
    """Offload the blocks of prompts, not those of generated text."""

    def __post_init__(self) -> None:
        for name in ("max_num_batched_tokens", "max_num_seqs", "max_model_len", "block_size"):
            _require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        _require(
            2 <= self.num_gpu_blocks <= MAX_BLOCKS,
            "num_gpu_blocks",
            self.num_gpu_blocks,
            f"from 2 (one is the null block) to {MAX_BLOCKS}",
        )
        _require(self.policy in ("fcfs", "priority"), "policy", self.policy, "'fcfs' or 'priority'")
        speculative = self.num_speculative_tokens
        _require(speculative >= 0, "num_speculative_tokens", speculative, "0 (none) or more")
        _require(self.spec_method in get_args(SpecMethod), "spec_method", self.spec_method, str(get_args(SpecMethod)))
        _require(0.0 <= self.watermark < 1.0, "watermark", self.watermark, "a fraction in [0, 1)")
        _require(
            self.kv_preemption in get_args(KvPreemption),
            "kv_preemption",
            self.kv_preemption,
            str(get_args(KvPreemption)),
        )
        _require(self.num_host_blocks >= 0, "num_host_blocks", self.num_host_blocks, "0 or more")
        self._check_budgets()
        self._check_threshold()

    def __reduce__(self) -> tuple[type[SchedulerConfig], tuple[object, ...]]:
        """To pickle its fields: attributes cannot be set afterwards, and compiled it has no other way."""
        return SchedulerConfig, tuple(getattr(self, field.name) for field in fields(self))

    def _check_budgets(self) -> None:
        budget = self.max_num_batched_tokens
        seqs = self.max_num_seqs
        _require(budget >= seqs, "max_num_batched_tokens", budget, f"at least max_num_seqs ({seqs})")
        _require(
            self.enable_chunked_prefill or budget >= self.max_model_len,
            "max_num_batched_tokens",
            budget,
            f"at least max_model_len ({self.max_model_len}) when chunked prefill is off",
        )
        active = self.max_num_active_seqs
        _require(
            active is None or 1 <= active <= seqs,
            "max_num_active_seqs",
            active,
            f"from 1 to max_num_seqs ({seqs})",
        )
        scheduled = self.max_num_scheduled_tokens
        _require(
            scheduled is None or 1 <= scheduled <= budget,
            "max_num_scheduled_tokens",
            scheduled,
            f"from 1 to max_num_batched_tokens ({budget})",
        )

    def _check_threshold(self) -> None:
        threshold = self.long_prefill_token_threshold
        _require(
            0 <= threshold <= self.max_model_len,
            "long_prefill_token_threshold",
            threshold,
            f"from 0 (none) to max_model_len ({self.max_model_len})",
        )

    @property
    def num_lookahead_tokens(self) -> int:
        """KV slots past the scheduled tokens, which a drafter writes."""
        return 0 if self.spec_method == "ngram" else self.num_speculative_tokens

    @property
    def has_cohorts(self) -> bool:
        """A decode's step is like the one before: not with drafts, nor where each block that it fills is sent away."""
        return not self.num_speculative_tokens and (self.kv_preemption != "offload" or self.offload_prompt_only)

    @property
    def shares_text(self) -> bool:
        """Requests can find each other's KV, on the GPU or in host memory."""
        return self.enable_prefix_caching or self.kv_preemption == "offload"

    @property
    def num_draft_slots(self) -> int:
        """Input slots that each scheduled request takes on top of its tokens."""
        return int(self.spec_method == "draft_model" and self.num_speculative_tokens > 0)

    @property
    def token_budget(self) -> int:
        """Tokens that one step may schedule."""
        return self.max_num_scheduled_tokens or self.max_num_batched_tokens

    @property
    def seqs_cap(self) -> int:
        """Requests that may run at once."""
        return self.max_num_active_seqs or self.max_num_seqs

    @property
    def usable_blocks(self) -> int:
        """Blocks that requests can hold: all but the null block."""
        return self.num_gpu_blocks - 1


def _require(ok: bool, name: str, value: object, allowed: str) -> None:
    if not ok:
        raise InputError(field=name, value=value, expected=allowed)
