"""Requests that could never be served with the settings at hand: refused when they come, by name.

Not for requests that only have to wait. Mirrors what vllm/v1/engine/input_processor.py (vLLM 0.32) refuses, and names
what vLLM would wait for, for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.core.step import Limit
from sim.errors import InputError

if TYPE_CHECKING:
    from sim.core.config import SchedulerConfig
    from sim.core.request import Request
    from sim.core.step import StepPlan


class RequestRejected(InputError):
    """A request that could never be served with these settings; the message names it and says why."""


def check_servable(request: Request, config: SchedulerConfig) -> None:
    """Raises RequestRejected if a request could never be served; its `final_num_tokens` must be known."""
    why = _why_not(request, config)
    if why is not None:
        raise RequestRejected(f"request {request.request_id}: {why}")


def _why_not(request: Request, config: SchedulerConfig) -> str | None:
    prompt = request.num_prompt_tokens
    if prompt < 1 or request.max_tokens < 1:
        return f"prompt tokens and max_tokens: got {prompt} and {request.max_tokens}, expected >= 1 of each"
    if prompt >= config.max_model_len:
        return f"prompt tokens: got {prompt}, expected < max_model_len {config.max_model_len}"
    # The last generated token is never computed, so it needs no slot.
    needed = -(-(request.final_num_tokens - 1) // config.block_size)
    if needed > config.usable_blocks:
        return f"KV blocks: needs {needed}, of {config.usable_blocks}"
    # Without chunks a prompt above the budget waits for ever, unless a threshold or a prefix hit shortens it.
    shortened = config.enable_prefix_caching or 0 < config.long_prefill_token_threshold <= config.token_budget
    if config.enable_chunked_prefill or shortened or request.num_prompt_tokens <= config.token_budget:
        return None
    return f"prompt tokens: got {prompt}, expected <= {config.token_budget} in one step, as chunked prefill is off"


def why_never(request: Request, config: SchedulerConfig, plan: StepPlan) -> str:
    """Who waits for what, for ever: nothing runs or is on its way, and still `plan` could not schedule it."""
    lacks = f"its length in tokens is {request.num_tokens}, and with nothing else running"
    if plan.limit is Limit.TOKENS:
        budget = "max_num_scheduled_tokens" if config.max_num_scheduled_tokens else "max_num_batched_tokens"
        lacks += f" a step may compute {config.token_budget} ({budget})"
        if not config.enable_chunked_prefill:
            lacks += " and may not cut a prompt, as chunked prefill is off"
        elif config.num_speculative_tokens:
            lacks += f", fewer than its next one and {config.num_speculative_tokens} drafts need"
    else:
        lacks += f" {plan.num_free_blocks} of {config.usable_blocks} KV blocks of {config.block_size} are free"
        if config.kv_preemption == "offload":
            lacks += ": too few to load what host memory has of it beside what its next step needs"
    return f"request {request.request_id} can never be scheduled, and vLLM waits for ever, too: {lacks}"
