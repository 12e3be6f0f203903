"""Findings about what a step may hold: the token budget, too small or too large, the threshold, chunks at all."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from sim.plurals import counted
from sim.report.explain.explanation import Finding
from sim.report.explain.facts import MATTERS
from sim.report.explain.knobs import cut_by_threshold, full_steps, unchunked
from sim.report.units import percent

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sim.report.explain.explanation import Gap
    from sim.report.explain.facts import Facts
    from sim.report.explain.prices import Prices

_OFTEN = 0.1
"""Share of time in full steps from which on the budget is looked at."""
_FASTER = 1.25
"""Prompt tokens per second gained by a larger budget, from which on this one is too small."""
_TAIL, _TAIL_S = 3.0, 0.05
"""A tail: the 99th percentile is so many times the median, and at least so long that a reader could notice."""
_FREEZE, _FREEZE_S = 10.0, 0.25
"""A freeze: the longest gap is so many times the median, and so long."""
_CALMER = 0.6
"""What a smaller budget must make of the worst gap to be worth a word."""
_SPARE = 2.0
"""Prompt tokens per second that a smaller budget must still compute, relative to those that came."""
_SMALLEST = 512
"""Budgets below cost much throughput: a step reads all weights for them."""
_BUDGETS = tuple(2**k for k in range(8, 15))


def find_small_budget(facts: Facts) -> Finding | None:
    """Full steps of few tokens: the GPU could compute prompts faster in larger ones."""
    run, prices = facts.run, facts.prices
    steps = full_steps(run)
    share, budget = run.share(steps), run.config.token_budget
    if share < _OFTEN or prices is None or run.share(unchunked(run)) >= MATTERS:
        return None
    row = _typical(run.step_s, steps & (run.column("prefill_tokens") > 0))
    if row is None:
        return None
    decodes, prompt = int(run.column("decodes")[row]), float(np.median(run.requests("prompt_tokens")))
    rates = {larger: _rate(prices, row, larger) for larger in (budget, *(b for b in _BUDGETS if b > budget))}
    asked = _SPARE * facts.prompt_tokens_per_s
    if rates[budget] >= asked or max(rates.values()) < _FASTER * rates[budget]:
        return None
    better = next((b for b in rates if b > budget and rates[b] >= asked), max(rates, key=lambda b: rates[b]))
    left, new_left = budget - decodes, better - decodes
    step_s, new_step_s = (prices.with_prompts(row, tokens) for tokens in (left, new_left))
    full = int(steps.sum())
    was = "was" if full == 1 else "were"
    because = (
        (
            f"{full:,} of {counted(len(run.step_s), 'step')} {was} full. A typical one had"
            f" {counted(decodes, 'decode')}: {budget:,} - {decodes:,} = {left:,} tokens are left for prompts, so"
            f" {prompt:,.0f} prompt tokens (median) take {_steps(prompt, left)}"
        ),
        (
            f"such a step takes {step_s * 1e3:,.0f} ms: {rates[budget]:,.0f} prompt tokens/s. One of {better:,} takes"
            f" {new_step_s * 1e3:,.0f} ms by the profile's law: {rates[better]:,.0f}/s"
        ),
    )
    change = (
        (
            f"max_num_batched_tokens {better:,}: a prompt takes {_steps(prompt, new_left)}; in exchange a token can"
            f" wait {new_step_s * 1e3:,.0f} ms for the next"
        ),
    )
    what = (
        f"The token budget of {budget:,} is too small: {percent(share)} of the time steps are full, and prompts queue."
    )
    return Finding("budget_too_small", what, because, change, share)


def find_large_budget(facts: Facts) -> Finding | None:
    """Prompt chunks so large that everybody else's next token waits for them."""
    run, itl = facts.run, facts.itl
    by_chunks = [gap for gap in facts.gaps if gap.cause == "chunk"]
    tail = itl.p99_s >= max(_TAIL * itl.median_s, _TAIL_S) and itl.tail_by.get("chunk", 0.0) > 0.5
    freeze = itl.max_s >= max(_FREEZE * itl.median_s, _FREEZE_S) and 2 * len(by_chunks) > len(facts.gaps)
    if not by_chunks or not (tail or freeze):
        return None
    worst = by_chunks[0]
    smaller = _smaller_budget(facts, worst)
    if facts.prices is not None and not smaller:
        return None
    sizes = [gap.prefill_tokens for gap in by_chunks]
    span = f"{min(sizes):,}" if min(sizes) == max(sizes) else f"{min(sizes):,} to {max(sizes):,}"
    which = f"{len(by_chunks)} of the {len(facts.gaps)} worst {'is a step' if len(by_chunks) == 1 else 'are steps'}"
    because = [
        (
            f"median gap {itl.median_s * 1e3:,.0f} ms, 99th percentile {itl.p99_s * 1e3:,.0f} ms, longest"
            f" {itl.max_s * 1e3:,.0f} ms"
        ),
        (
            f"{which} with {span} prompt tokens; the worst held {counted(worst.chunk_tokens, 'token')} of"
            f" {worst.chunk_request_id} and kept {worst.num_requests:,} waiting"
        ),
        *smaller[:-1],
    ]
    change = (*(smaller[-1:] or ["a smaller max_num_batched_tokens"]), *_threshold(facts, worst))
    what = (
        f"Tokens wait for other requests' prompts: steps of up to {max(sizes):,} prompt tokens under a budget of"
        f" {run.config.token_budget:,}."
    )
    share = run.share(run.column("prefill_tokens") >= min(sizes))
    return Finding("budget_too_large", what, tuple(because), change, share)


def find_threshold(facts: Facts) -> Finding | None:
    """long_prefill_token_threshold cuts prompts in steps that had room for more."""
    run, config = facts.run, facts.run.config
    steps = cut_by_threshold(run) & ~full_steps(run)
    share = run.share(steps)
    if share < _OFTEN:
        return None
    threshold = config.long_prefill_token_threshold
    room = config.token_budget - run.mean("num_tokens", steps)
    longest = int(run.requests("prompt_tokens").max())
    because = (
        (
            f"{counted(int(steps.sum()), 'step')} cut a prompt at {threshold:,} tokens with {room:,.0f} of"
            f" {config.token_budget:,} left on average"
        ),
        (
            f"the longest prompt of {longest:,} tokens takes at least {longest:,} / {threshold:,} ="
            f" {_steps(longest, threshold)}, where the budget alone asks for {ceil(longest / config.token_budget):,}"
        ),
    )
    change = (
        "long_prefill_token_threshold 0 (none), or a larger one, if TTFT of long prompts matters more than others' ITL",
    )
    what = f"long_prefill_token_threshold {threshold:,} slows long prompts down {percent(share)} of the time."
    return Finding("long_prefill_token_threshold", what, because, change, share)


def find_unchunked(facts: Facts) -> Finding | None:
    """Without chunks a prompt waits for a step that holds all of it."""
    run, steps = facts.run, unchunked(facts.run)
    share = run.share(steps)
    if share < MATTERS:
        return None
    room = run.config.token_budget - run.mean("num_tokens", steps)
    because = (
        (
            f"{counted(int(steps.sum()), 'step')} had {room:,.0f} of {run.config.token_budget:,} tokens left on"
            " average, and the next prompt was longer"
        ),
    )
    what = f"Chunked prefill is off: {percent(share)} of the time a prompt waits for a step that holds all of it."
    return Finding("chunked_prefill_off", what, because, ("enable_chunked_prefill on (vLLM's default)",), share)


def _steps(tokens: float, each: int) -> str:
    return counted(ceil(tokens / each) if each > 0 else 0, "step")


def _typical(step_s: NDArray[np.float64], steps: NDArray[np.bool_]) -> int | None:
    """The step of median length among some."""
    rows = np.flatnonzero(steps)
    return int(rows[np.argsort(step_s[rows], kind="stable")[len(rows) // 2]]) if len(rows) else None


def _rate(prices: Prices, row: int, budget: int) -> float:
    """Prompt tokens per second of steps like this one, filled up to a budget."""
    left = budget - int(prices.run.column("decodes")[row])
    return left / prices.with_prompts(row, left) if left > 0 else 0.0


def _smaller_budget(facts: Facts, worst: Gap) -> list[str]:
    """What smaller budgets make of the worst step, then the advice; empty where none helps or all are too slow."""
    run, prices = facts.run, facts.prices
    if prices is None:
        return []
    came = facts.prompt_tokens_per_s
    least = max(_SMALLEST, 2 * worst.decodes, int(run.column("running").max()))
    for budget in (b for b in _BUDGETS if least <= b < worst.num_tokens):
        left = budget - worst.decodes
        chunk = min(left, worst.chunk_tokens)
        # The worst piece of the same prompt is its last one.
        pairs = chunk * (worst.chunk_context + worst.chunk_tokens - chunk / 2) + prices.pairs_per_token * (left - chunk)
        step_s, rate = prices.with_prompts(worst.step, left, pairs), _rate(prices, worst.step, budget)
        if rate < _SPARE * came or step_s > _CALMER * worst.step_s:
            continue
        needs = "" if run.config.max_num_seqs <= budget else f" (with max_num_seqs at most {budget:,})"
        count = ceil(worst.chunk_prompt_tokens / left)
        return [
            (
                f"by the profile's law a budget of {budget:,} makes {step_s * 1e3:,.0f} ms of that step's"
                f" {worst.step_s * 1e3:,.0f}, and computes {rate:,.0f} prompt tokens/s beside"
                f" {counted(worst.decodes, 'decode')}; {came:,.0f}/s came"
            ),
            (
                f"max_num_batched_tokens {budget:,}{needs}: gaps of at most about {step_s * 1e3:,.0f} ms; in exchange"
                f" the prompt of {worst.chunk_prompt_tokens:,} tokens takes {_steps(worst.chunk_prompt_tokens, left)},"
                f" some {count * step_s * 1e3:,.0f} ms"
            ),
        ]
    return []


def _threshold(facts: Facts, worst: Gap) -> list[str]:
    """Where one prompt stands out from the others, only such ones need cutting."""
    median = float(np.median(facts.run.requests("prompt_tokens")))
    if worst.chunk_prompt_tokens < 4 * median or worst.chunk_tokens < 0.5 * worst.prefill_tokens:
        return []
    threshold = max(_SMALLEST, 2 ** ceil(np.log2(2 * median)))
    return [
        (
            f"or long_prefill_token_threshold {threshold:,}: cuts long prompts only"
            f" (that one has {worst.chunk_prompt_tokens:,} tokens, the median is {median:,.0f})"
        )
    ]
