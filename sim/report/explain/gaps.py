"""Waits between tokens: the ten worst with the steps they spanned, and what the slowest hundredth has in common.

The one idea: a token comes when a step ends, so every gap is a range of steps, and requests that waited for the same
range share it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, get_args

import numpy as np

from sim.report.explain.explanation import Gap, GapCause, Itl

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sim.report.explain.run import Run

WORST = 10
_TAIL_PERCENTILE = 99
_CAUSES = get_args(GapCause)
_CHUNK, _DECODES, _PREEMPTION, _BUDGET, _HOST = range(len(_CAUSES))


class Gaps(NamedTuple):
    """Some gaps as aligned arrays: which requests' they are, seconds, and the first and last step of each."""

    rows: NDArray[np.int64]
    gap_s: NDArray[np.float64]
    first: NDArray[np.int64]
    last: NDArray[np.int64]


def gaps_from(run: Run, least_s: float) -> Gaps:
    """All gaps of at least so many seconds, the longest first."""
    itls = run.frames.itls
    chosen = np.flatnonzero(itls.values_s >= least_s)
    chosen = chosen[np.argsort(-itls.values_s[chosen], kind="stable")]
    rows = np.searchsorted(itls.offsets, chosen, side="right") - 1
    since_first_s = np.concatenate(([0.0], np.cumsum(itls.values_s)))
    response_s = run.frames.meta.get("response_s", 0.0)
    assert isinstance(response_s, float | int)
    sampled_s = run.requests("first_token_s")[rows] - response_s - since_first_s[itls.offsets[rows]]
    before = _step_at(run, sampled_s + since_first_s[chosen])
    last = _step_at(run, sampled_s + since_first_s[chosen + 1])
    return Gaps(rows, itls.values_s[chosen], before + 1, last)


def _step_at(run: Run, end_s: NDArray[np.float64]) -> NDArray[np.int64]:
    """The steps that ended at these times, which are sums and so not exact."""
    ends_s = run.column("end_s")
    after = np.clip(np.searchsorted(ends_s, end_s), 1, max(1, len(ends_s) - 1))
    if len(ends_s) == 1:
        return np.zeros(len(end_s), dtype=np.int64)
    return np.asarray(np.where(end_s - ends_s[after - 1] < ends_s[after] - end_s, after - 1, after), dtype=np.int64)


def causes(run: Run, gaps: Gaps) -> NDArray[np.int64]:
    """Why each gap was as long as it was: indices of `GapCause`."""
    preempting = np.concatenate(([0], np.cumsum(run.column("preempted") > 0)))
    lost = (preempting[gaps.last + 1] > preempting[gaps.first]) & (run.requests("preemptions")[gaps.rows] > 0)
    several = gaps.last > gaps.first
    beyond_device = gaps.gap_s > 2 * run.step_s[gaps.last]
    with_chunk = run.column("chunk_tokens")[gaps.last] > 0
    kinds = [several & lost, several, beyond_device, with_chunk]
    return np.asarray(np.select(kinds, [_PREEMPTION, _BUDGET, _HOST, _CHUNK], _DECODES), dtype=np.int64)


def itl(run: Run) -> Itl:
    """All gaps in one glance."""
    values_s = run.frames.itls.values_s
    if not len(values_s):
        return Itl(0, 0.0, 0.0, 0.0, {})
    p99_s = float(np.percentile(values_s, _TAIL_PERCENTILE))
    tail = causes(run, gaps_from(run, p99_s))
    by = {name: float((tail == code).mean()) for code, name in enumerate(_CAUSES)}
    return Itl(len(values_s), float(np.median(values_s)), p99_s, float(values_s.max()), by)


def worst_gaps(run: Run) -> tuple[Gap, ...]:
    """The ten longest waits, each told once, however many requests had it."""
    values_s = run.frames.itls.values_s
    if not len(values_s):
        return ()
    # Requests of one step share a gap: more than so many of them are not needed for ten different ones.
    enough = min(len(values_s), WORST * int(run.column("num_seqs").max()))
    gaps = gaps_from(run, float(np.partition(values_s, -enough)[-enough]))
    kinds = causes(run, gaps)
    groups: dict[tuple[int, int], list[int]] = {}
    for at, span in enumerate(zip(gaps.first.tolist(), gaps.last.tolist(), strict=True)):
        if span not in groups and len(groups) == WORST:
            break
        groups.setdefault(span, []).append(at)
    return tuple(_gap(run, gaps, kinds, group) for group in groups.values())


def _gap(run: Run, gaps: Gaps, kinds: NDArray[np.int64], group: list[int]) -> Gap:
    at = group[0]
    first, last = int(gaps.first[at]), int(gaps.last[at])
    step = first + int(np.argmax(run.step_s[first : last + 1]))
    chunk_tokens, chunk_row = int(run.column("chunk_tokens")[step]), int(run.column("chunk_row")[step])
    return Gap(
        gap_s=float(gaps.gap_s[at]),
        end_s=float(run.column("end_s")[last]),
        num_requests=len(group),
        request_id=str(run.requests("request_id")[gaps.rows[at]]),
        cause=_CAUSES[kinds[at]],
        num_steps=last - first + 1,
        step=step,
        step_s=float(run.step_s[step]),
        num_tokens=int(run.column("num_tokens")[step]),
        decodes=int(run.column("decodes")[step]),
        prefill_tokens=int(run.column("prefill_tokens")[step]),
        chunk_request_id=str(run.requests("request_id")[chunk_row]) if chunk_tokens else None,
        chunk_tokens=chunk_tokens,
        chunk_context=int(run.column("chunk_context")[step]),
        chunk_prompt_tokens=int(run.requests("prompt_tokens")[chunk_row]) if chunk_tokens else 0,
    )
