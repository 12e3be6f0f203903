"""For each setting: in how many steps it was at work, and if it was not, how far it was from that.

The one idea: a step ends with one word (of `LIMITS`), and what else can bind shows in its totals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sim.plurals import counted
from sim.report.explain.explanation import Ending, Knob
from sim.report.step_rows import LIMITS
from sim.report.units import percent

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sim.report.explain.run import Run

KV_LIMITS = ("blocks", "gate", "watermark", "preemption")
AT_WORK = 0.01
"""Share of time below which a setting that acted is still not called binding."""


def endings(run: Run) -> tuple[Ending, ...]:
    """How the steps ended, in the order of `LIMITS`."""
    return tuple(
        Ending(limit, int(steps.sum()), run.share(steps)) for limit in LIMITS for steps in [run.limit == limit]
    )


def full_steps(run: Run) -> NDArray[np.bool_]:
    """Steps whose token budget was used up."""
    return np.asarray(run.column("num_tokens") >= run.config.token_budget)


def waiting_for_blocks(run: Run) -> NDArray[np.bool_]:
    """Steps that left somebody waiting, or preempted somebody, for want of KV blocks."""
    return np.asarray(np.isin(run.limit, KV_LIMITS) | (run.column("preempted") > 0))


def cut_by_threshold(run: Run) -> NDArray[np.bool_]:
    """Steps whose largest chunk is as long as long_prefill_token_threshold allows, of a prompt that has more."""
    config = run.config
    if not config.long_prefill_token_threshold:
        return np.zeros(len(run.step_s), dtype=bool)
    live = run.column("running") + run.column("waiting")
    cap = np.full(len(live), config.long_prefill_token_threshold)
    if config.long_prefill_token_threshold_adaptive:
        cap = np.maximum(cap, config.max_num_batched_tokens // np.maximum(1, live))
    tokens = run.column("chunk_tokens")
    has_more = run.column("chunk_context") + tokens < run.requests("prompt_tokens")[run.column("chunk_row")]
    return np.asarray((live > 1) & (tokens == cap) & has_more)


def unchunked(run: Run) -> NDArray[np.bool_]:
    """Steps with budget left, in which the next prompt had to wait for a step that holds all of it."""
    if run.config.enable_chunked_prefill:
        return np.zeros(len(run.step_s), dtype=bool)
    return np.asarray((run.limit == "tokens") & ~full_steps(run))


def knobs(run: Run) -> tuple[Knob, ...]:
    """Every setting that can hold requests back."""
    config, peak = run.config, int(run.column("running").max())
    budget = "max_num_scheduled_tokens" if config.max_num_scheduled_tokens else "max_num_batched_tokens"
    seqs = "max_num_active_seqs" if config.max_num_active_seqs else "max_num_seqs"
    largest = int(run.column("num_tokens").max())
    threshold = config.long_prefill_token_threshold
    rows = [
        _knob(run, budget, config.token_budget, full_steps(run), f"largest step: {counted(largest, 'token')}"),
        _knob(run, seqs, config.seqs_cap, run.limit == "seqs", f"at most {peak:,} ran at once"),
        _knob(run, "KV blocks", config.usable_blocks, waiting_for_blocks(run),
              f"peak usage {percent(run.kv_usage.max())}"),
        _knob(run, "scheduler_reserve_full_isl", _switch(config.scheduler_reserve_full_isl), run.limit == "gate",
              "held no prompt back" if config.scheduler_reserve_full_isl else "off"),
        _knob(run, "watermark", f"{config.watermark:g}", run.limit == "watermark",
              "held nobody back" if config.watermark else "none"),
        _knob(run, "long_prefill_token_threshold", threshold or "none", cut_by_threshold(run),
              "cut no prompt" if threshold else "none"),
        _knob(run, "enable_chunked_prefill", _switch(config.enable_chunked_prefill), unchunked(run),
              "prompts may be cut" if config.enable_chunked_prefill else "held no prompt back"),
        _knob(run, "max_concurrency (client)", run.max_concurrency or "none", run.at_client > 0,
              "no cap" if run.max_concurrency is None else "nobody waited at the client"),
    ]  # fmt: skip
    return tuple(rows)


def _switch(on: bool) -> str:
    return "on" if on else "off"


def _knob(run: Run, name: str, value: object, steps: NDArray[np.bool_], slack: str) -> Knob:
    count, share = int(steps.sum()), run.share(steps)
    why = "" if count else slack
    return Knob(name, f"{value:,}" if isinstance(value, int) else str(value), share >= AT_WORK, count, share, why)
