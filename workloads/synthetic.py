"""Workloads made up from laws: arrivals, lengths, shared text, sessions.

Not for the laws themselves. The one idea: every part draws from its own stream of random numbers, named after the part,
so changing one part leaves the draws of the others as they were; one seed gives the same requests on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from workloads.arrivals import gaps
from workloads.content import ContentIds, SharedPrefixes
from workloads.errors import TraceError
from workloads.lengths import ByPrompt
from workloads.readers.row import Row
from workloads.request import Request
from workloads.sessions import Sessions, Turn, session_requests
from workloads.trace import Selection, Trace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from workloads.arrivals import ArrivalLaw
    from workloads.lengths import LengthLaw

_SMALLEST_DRAW = 2.0**-54
"""Stands for the 0 that a uniform draw may be: the inverse of the normal distribution has no value there."""


@dataclass(frozen=True, slots=True)
class Mix:
    """The laws of a workload. With `sessions`, arrivals are starts of sessions, and lengths those of each turn."""

    arrivals: ArrivalLaw
    prompt_tokens: LengthLaw
    output_tokens: LengthLaw | ByPrompt
    prefixes: SharedPrefixes | None = None
    sessions: Sessions | None = None


def synthetic(
    num_requests: int,
    arrivals: ArrivalLaw,
    prompt_tokens: LengthLaw,
    output_tokens: LengthLaw | ByPrompt,
    *,
    prefixes: SharedPrefixes | None = None,
    sessions: Sessions | None = None,
    seed: int = 0,
    selection: Selection | None = None,
    name: str = "synthetic",
) -> Trace:
    """`num_requests` requests (with `sessions`: that many sessions, of several requests each) drawn with `seed`.

    `prompt_tokens` counts without the `prefixes`, and in a session what each turn adds. Memory: a few numbers for each
    request. Raises `TraceError` for num_requests < 1 or a negative seed.
    """
    if num_requests < 1:
        raise TraceError(field="num_requests", value=num_requests, expected="an integer >= 1")
    if seed < 0:
        raise TraceError(field="seed", value=seed, expected="an integer >= 0")
    mix = Mix(arrivals, prompt_tokens, output_tokens, prefixes, sessions)
    return Trace(name, "synthetic", lambda: _rows(mix, num_requests, seed, name), selection or Selection())


def stream(seed: int, part: str) -> np.random.Generator:
    """The random numbers of one part of a workload."""
    sequence = np.random.SeedSequence(seed, spawn_key=tuple(part.encode()))
    return np.random.Generator(np.random.PCG64(sequence))


def _uniforms(seed: int, part: str, n: int) -> NDArray[np.float64]:
    return np.maximum(stream(seed, part).random(n), _SMALLEST_DRAW)


def _rows(mix: Mix, n: int, seed: int, name: str) -> Iterator[Row]:
    starts_s = mix.arrivals.times_s(n, stream(seed, "arrivals"))
    groups = np.zeros(n, np.int64) if mix.prefixes is None else mix.prefixes.groups(_uniforms(seed, "prefixes", n))
    turns = np.ones(n, np.int64) if mix.sessions is None else mix.sessions.turns.tokens(_uniforms(seed, "turns", n))
    columns = _turn_columns(mix, int(turns.sum()), seed)
    ids = ContentIds(0 if mix.prefixes is None else len(mix.prefixes.lengths))
    first = 0
    for index, (start_s, group, count) in enumerate(
        zip(starts_s.tolist(), groups.tolist(), turns.tolist(), strict=True)
    ):
        said = () if mix.prefixes is None else mix.prefixes.pieces(group)
        new = [
            Turn(*values)
            for values in zip(*(column[first : first + count].tolist() for column in columns), strict=True)
        ]
        requests = session_requests(f"{name}-{index}", start_s, said, new, ids, first)
        first += count
        yield from (Row(request) for request in (requests if mix.sessions else map(_alone, requests)))


def _alone(turn: Request) -> Request:
    """A session's only turn, as a request: nobody repeats its answer, and its own text need not be named."""
    content = turn.content if turn.content is not None and len(turn.content) > 1 else None
    return Request(
        request_id=turn.request_id.removesuffix(".0"),
        arrival_s=turn.arrival_s,
        prompt_tokens=turn.prompt_tokens,
        output_tokens=turn.output_tokens,
        content=content,
    )


def _turn_columns(mix: Mix, n: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    prompts = mix.prompt_tokens.tokens(_uniforms(seed, "prompt_tokens", n))
    u = _uniforms(seed, "output_tokens", n)
    law = mix.output_tokens
    outputs = law.tokens_after(prompts, u) if isinstance(law, ByPrompt) else law.tokens(u)
    think_s = np.zeros(n)
    if mix.sessions is not None:
        think_s = mix.sessions.think_s * gaps(mix.sessions.think_burstiness, n, stream(seed, "think_s"))
    return prompts, outputs, think_s.round(6)
