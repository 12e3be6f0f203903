"""Turns logged iterations into samples: totals, and as much of the composition as can be told.

Not for reading a log (iteration_log.py). The one idea: a log counts tokens, not contexts; where the requests behind it
are known, in order and length, a first-come-first-served server without a prefix cache leaves one way only in which the
totals can have come about, so the contexts follow.
"""

from __future__ import annotations

from itertools import permutations
from math import isnan, nan
from typing import TYPE_CHECKING, NamedTuple

from calibrate.iteration_log import host_seconds
from calibrate.samples import TimedStep

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from calibrate.iteration_log import Iteration, IterationLog

SOURCE = "iteration log"

_LOOK_AHEAD = 3
"""Requests sent nearly together can reach the engine in another order; so many places are looked at."""


def log_steps(log: IterationLog) -> Iterator[TimedStep]:
    """Samples of a log alone: totals, with the decode rows' context where the KV usage tells it."""
    for steps in log.engines().values():
        hosts = host_seconds(steps, log.resolution_s)
        befores = [None, *steps[:-1]]
        for step, before, host_s in zip(steps, befores, hosts, strict=True):
            if is_clear(step):
                context = _context(step, before, log.cache_tokens, log.block_size or 16)
                # With no decode rows and no chunks the table's own zeros are right.
                known = {} if isnan(context) else {"decode_context": context}
                yield TimedStep.of_totals(
                    step.prompts, step.prompt_tokens, step.decodes, step.elapsed_s, host_seconds=host_s, source=SOURCE,
                    **known,
                )  # fmt: skip


def is_clear(step: Iteration) -> bool:
    """Whether a step's totals say how many sequences computed how much.

    A resumed request, or one with drafts, computes several tokens and is logged among the decodes: which one, and what
    of its tokens, is not. Nor can a step without time or tokens be used.
    """
    enough = step.prompt_tokens >= step.prompts and step.prompts + step.decodes > 0
    return step.decode_tokens == step.decodes and enough and step.elapsed_s > 0


_HALF_STEP = 0.0005
"""Usage is logged in tenths of a percent."""


def _context(step: Iteration, before: Iteration | None, cache_tokens: int | None, block_size: int) -> float:
    """Tokens that a pure decode step's rows attend to, from the share of the KV cache in use before it; else NaN.

    The last block of a sequence is half empty on average. NaN too where a tenth of a percent of the cache is too
    coarse to say anything (more than a tenth of the result).
    """
    if step.prompts or before is None or before.index + 1 != step.index or cache_tokens is None:
        return nan
    context = before.kv_usage * cache_tokens - 0.5 * block_size * step.decodes
    return context if _HALF_STEP * cache_tokens <= 0.1 * context else nan


# -- with the requests behind the log ----------------------------------------------------------------------------------


class _Sequence(NamedTuple):
    prompt: int
    computed: int
    outputs_left: int


Composition = tuple[tuple[tuple[int, int], ...], tuple[int, ...]]
"""Chunks (tokens, context before them), and the decode rows' contexts."""

_SLACK = 4
"""Steps by which a request may end before or after its time: two that came in together may have changed places."""


def compose(
    steps: Sequence[Iteration], requests: Sequence[tuple[int, int]], max_num_batched_tokens: int
) -> list[Composition | None]:
    """The composition of each step of one engine that serves `requests` (prompt and output tokens, in order).

    First come, first served, no prefix cache, no preemption, the engine empty at first. None from the first step on
    whose totals cannot have come about like this.
    """
    running: list[_Sequence] = []
    waiting = list(requests)
    found: list[Composition | None] = []
    for step in steps:
        scheduled = _scheduled(step, running, waiting, max_num_batched_tokens)
        if scheduled is None:
            break
        chunks = tuple((n, sequence.computed) for sequence, n in scheduled if sequence.computed < sequence.prompt)
        rows = tuple(sequence.computed for sequence, _ in scheduled if sequence.computed >= sequence.prompt)
        found.append((chunks, rows))
        running = [_after(sequence, n) for sequence, n in scheduled]
    return found + [None] * (len(steps) - len(found))


def _scheduled(
    step: Iteration, running: list[_Sequence], waiting: list[tuple[int, int]], budget: int
) -> list[tuple[_Sequence, int]] | None:
    """Who computes how many tokens; None where that contradicts the log. Takes those who join out of `waiting`."""
    rows = _still_decoding(step, [sequence for sequence in running if sequence.computed >= sequence.prompt])
    if rows is None:
        return None
    scheduled = [(sequence, 1) for sequence in rows]
    left = budget - len(rows)
    for sequence in running:
        if sequence.computed < sequence.prompt:
            scheduled.append((sequence, min(left, sequence.prompt - sequence.computed)))
            left -= scheduled[-1][1]
    chunks = [n for _, n in scheduled[len(rows) :]]
    joined = _joining(waiting, step.prompts - len(chunks), step.prompt_tokens - sum(chunks), left)
    if joined is None:
        return None
    for request in joined:
        waiting.remove(request)
        scheduled.append((_Sequence(request[0], 0, request[1]), min(left, request[0])))
        left -= scheduled[-1][1]
    return scheduled


def _still_decoding(step: Iteration, rows: list[_Sequence]) -> list[_Sequence] | None:
    """The `step.decodes` rows with most to do; None where the others cannot be through, or these must be."""
    rows = sorted(rows, key=lambda sequence: -sequence.outputs_left)
    on, through = rows[: step.decodes], rows[step.decodes :]
    too_late = any(sequence.outputs_left <= -_SLACK for sequence in on)
    too_soon = any(sequence.outputs_left > _SLACK for sequence in through)
    return None if len(on) < step.decodes or step.decode_tokens != step.decodes or too_late or too_soon else on


def _joining(
    waiting: Sequence[tuple[int, int]], count: int, tokens: int, left: int
) -> Sequence[tuple[int, int]] | None:
    """Which `count` of the next requests come in, to compute `tokens` with `left` to spend: in order, if that fits."""
    if count < 1:
        return () if count == tokens == 0 else None
    for some in (waiting[:count], *permutations(waiting[: count + _LOOK_AHEAD], min(count, 3))):
        if len(some) == count:
            spent = sum(prompt for prompt, _ in some[:-1])
            if spent < left and spent + min(left - spent, some[-1][0]) == tokens:
                return some
    return None


def _after(sequence: _Sequence, n: int) -> _Sequence:
    """The sequence after a step: `n` tokens computed, one sampled where its prompt is through."""
    computed = sequence.computed + n
    return sequence._replace(computed=computed, outputs_left=sequence.outputs_left - (computed >= sequence.prompt))
