"""Findings about KV blocks: too few for those who run, thrash, the gate and the watermark at admission."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from sim.plurals import counted
from sim.report.explain.explanation import Finding
from sim.report.explain.facts import MATTERS
from sim.report.explain.knobs import KV_LIMITS, waiting_for_blocks
from sim.report.units import percent

if TYPE_CHECKING:
    from sim.report.explain.facts import Facts

_TRIED_WATERMARK = 0.02
"""What vLLM's users settled on: it ends most preemptions and costs little."""
_LARGE_WATERMARK = 0.1
_OFTEN_PREEMPTED = 0.05
"""Share of requests preempted at least once that is a finding by itself."""
_GIB = 1 << 30


def find_thrash(facts: Facts) -> Finding | None:
    """Much of the work is done again."""
    thrash, run = facts.thrash, facts.run
    if not thrash.thrashing:
        return None
    because = [
        (
            f"{counted(thrash.preemptions, 'preemption')} threw away {thrash.recomputed_tokens:,} computed tokens"
            f" beside {thrash.useful_tokens:,} useful ones: {percent(thrash.recomputed_share)} on top"
        ),
        (
            f"{thrash.most_preempted} was preempted {counted(thrash.most_preemptions, 'time')};"
            f" {thrash.cycling_requests:,} of {counted(len(run.frames.requests), 'request')} 3 times or more"
        ),
        *_seats_sum(facts),
    ]
    change = _fewer_at_once(facts)
    if not run.config.scheduler_reserve_full_isl:
        because.append("scheduler_reserve_full_isl is off: a prompt is admitted when its first chunk fits")
        change.insert(0, "scheduler_reserve_full_isl on: a prompt waits until all of it fits")
    steps = waiting_for_blocks(run)
    what = "Thrash: running requests take each other's KV blocks, and compute the same tokens again and again."
    return Finding("thrash", what, tuple(because), tuple(change), run.share(steps))


def find_memory(facts: Facts) -> Finding | None:
    """Requests wait for KV blocks, or lose theirs; named after what was missing for most of the time."""
    run, thrash = facts.run, facts.thrash
    steps = waiting_for_blocks(run)
    share = run.share(steps)
    often = thrash.preempted_requests >= _OFTEN_PREEMPTED * len(run.frames.requests)
    if not often and (share < MATTERS or not facts.concurrency_helps(steps)):
        return None
    shares = {name: run.share(run.limit == name) for name in KV_LIMITS}
    most = max(shares, key=lambda name: shares[name])
    if most == "gate":
        return _gate(facts, share)
    if most == "watermark" and run.config.watermark >= _LARGE_WATERMARK:
        return _watermark(facts, share)
    return _blocks(facts, share)


def _blocks(facts: Facts, share: float) -> Finding:
    run, thrash = facts.run, facts.thrash
    because = [f"KV usage at its peak: {percent(run.kv_usage.max())}"]
    what, change = (
        f"KV blocks are too few: somebody waited for them {percent(share)} of the time",
        _more_blocks(facts),
    )
    if thrash.preemptions:
        what += f", and {counted(thrash.preempted_requests, 'running request')} lost theirs"
    if not thrash.thrashing:  # else it has been said
        because = [*_seats_sum(facts), *because]
        change = [*_fewer_at_once(facts), *change]
        if thrash.preemptions:
            because.append(
                f"{counted(thrash.preemptions, 'preemption')}; {thrash.recomputed_tokens:,} tokens were computed again,"
                f" {percent(thrash.recomputed_share)} of the useful ones: no thrash"
            )
    return Finding("kv_blocks", f"{what}.", tuple(because), tuple(change), share)


def _seats_sum(facts: Facts) -> list[str]:
    """How many requests the settings let in against how many the blocks hold."""
    run, fit, each = facts.run, facts.fit, facts.blocks_each
    allowed = min(run.config.seqs_cap, run.max_concurrency or run.config.seqs_cap)
    asked = min(allowed, facts.wanted)
    whose = "may run" if asked == allowed else "were there at once"
    return [
        f"a request of {facts.blocks_sum}",
        (
            f"{asked:,} that {whose} need {asked:,} x {each:,} = {asked * each:,} blocks; there are"
            f" {run.config.usable_blocks:,}: at most {fit:,} run to their end"
        ),
    ]


def _fewer_at_once(facts: Facts) -> list[str]:
    """What keeps those who run from losing their blocks; nothing where nobody did."""
    config, safe = facts.run.config, facts.safe
    change = []
    if facts.thrash.preemptions and 0 < safe < config.seqs_cap:
        change.append(f"max_num_seqs {safe:,} instead of {config.seqs_cap:,}: {facts.safe_sum}{_cost(facts)}")
    if facts.thrash.preemptions and config.watermark < _TRIED_WATERMARK:
        kept = int(_TRIED_WATERMARK * config.num_gpu_blocks)
        change.append(f"watermark {_TRIED_WATERMARK:g}: admission leaves {counted(kept, 'block')} to those that run")
    return change


def _cost(facts: Facts) -> str:
    """What it means for throughput that fewer run at once."""
    steps = waiting_for_blocks(facts.run)
    running = facts.run.mean("running", steps)
    if facts.prices is None or running <= facts.safe:
        return ""
    gain = facts.prices.throughput_gain(steps, facts.safe / running)
    instead = ", but nothing is computed twice" if facts.thrash.recomputed_tokens else ""
    return f". By the profile's law {gain:.2f} times the throughput of {running:,.0f}{instead}"


def _more_blocks(facts: Facts) -> list[str]:
    """The size of KV cache that would let everybody in, or, under overload, as many as carry the load."""
    run, config = facts.run, facts.run.config
    steps = waiting_for_blocks(run)
    asked = facts.wanted
    if facts.overloaded and (factor := facts.factor_that_carries(steps)) is not None:
        asked = ceil(factor * run.mean("running", steps))
    asked = min(asked, config.seqs_cap)
    blocks = asked * facts.blocks_each
    if blocks <= config.usable_blocks:
        return []
    size = ""
    if facts.prices is not None:
        profile = facts.prices.profile
        gib = blocks * config.block_size * profile.kv_bytes_per_token / _GIB
        size = f" ({gib:,.1f} GiB at {profile.kv_bytes_per_token:,} bytes per token)"
    return [
        (
            f"more blocks: {asked:,} x {facts.blocks_each:,} = {blocks:,}{size} hold {counted(asked, 'request')} at"
            " once. gpu_memory_utilization, kv_cache_dtype fp8 (twice the blocks), more GPUs"
        )
    ]


def _gate(facts: Facts, share: float) -> Finding:
    run, config = facts.run, facts.run.config
    held = run.limit == "gate"
    prompts = run.requests("prompt_tokens")
    median, longest = int(np.median(prompts)), int(prompts.max())
    size, free = config.block_size, run.mean("free_blocks", held)
    because = (
        (
            f"a prompt is admitted only when all of it fits: {median:,} tokens (median) / {size} ="
            f" {ceil(median / size):,} blocks at once, the longest {longest:,} / {size} = {ceil(longest / size):,}"
        ),
        (
            f"while the gate held, {free:,.0f} of {config.usable_blocks:,} blocks were free on average: enough for"
            f" the next chunk (at most {config.token_budget:,} tokens), not for the prompt"
        ),
        counted(facts.thrash.preemptions, "preemption"),
    )
    change = (
        *_more_blocks(facts),
        "leave scheduler_reserve_full_isl on: without it half-computed prompts preempt each other",
    )
    back = percent(run.share(held))
    what = f"The admission gate holds prompts back {back} of the time: KV blocks for whole prompts lack."
    return Finding("admission_gate", what, because, change, share)


def _watermark(facts: Facts, share: float) -> Finding:
    run, config = facts.run, facts.run.config
    held = run.limit == "watermark"
    kept, least = int(config.watermark * config.num_gpu_blocks), int(run.column("free_blocks").min())
    because = (
        (
            f"watermark {config.watermark:g} x {config.num_gpu_blocks:,} = {kept:,} blocks stay free at admission: room"
            f" for {counted(kept // facts.blocks_each, 'request')} of {facts.blocks_sum}"
        ),
        f"{least:,} blocks or more were free at any time; {counted(facts.thrash.preemptions, 'preemption')}",
    )
    change = (
        f"watermark {_TRIED_WATERMARK:g}: keeps {counted(int(_TRIED_WATERMARK * config.num_gpu_blocks), 'block')}",
    )
    what = f"The watermark keeps requests waiting {percent(run.share(held))} of the time, for blocks that nobody uses."
    return Finding("watermark", what, because, change, share)
