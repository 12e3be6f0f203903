"""Workloads made up from laws: arrivals, lengths, shared text, sessions.

Not for the laws themselves. The one idea: every part draws from its own stream of random numbers, named after the part,
so changing one part leaves the draws of the others as they were; one seed gives the same requests on every machine.
Lengths are drawn as the requests are asked for, a block at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from workloads.arrivals import gaps
from workloads.content import ContentIds, SharedPrefixes, length
from workloads.errors import TraceError
from workloads.lengths import ByPrompt
from workloads.request import Request
from workloads.sessions import Sessions, Turn, session_requests
from workloads.trace import Row, Selection, Trace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from workloads.arrivals import ArrivalLaw
    from workloads.content import Pieces
    from workloads.lengths import LengthLaw

_BLOCK = 4096
"""Requests that are drawn at once."""
_SMALLEST_DRAW = 2.0**-54
"""Stands for the 0 that a uniform draw may be: the inverse of the normal distribution has no value there."""


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
    remarks: tuple[str, ...] = (),
) -> Trace:
    """`num_requests` requests drawn with `seed`; with `sessions`, that many sessions of several requests each.

    `arrivals` are then the sessions' starts. `prompt_tokens` counts without the `prefixes`, and in a session it is what
    each turn adds. `remarks`: as in `Trace`. Memory: one number for each request. Raises `TraceError` for
    num_requests < 1 or seed < 0.
    """
    if num_requests < 1:
        raise TraceError(field="num_requests", value=num_requests, expected="an integer >= 1")
    if seed < 0:
        raise TraceError(field="seed", value=seed, expected="an integer >= 0")
    draws = _Draws(num_requests, seed, name, arrivals, prompt_tokens, output_tokens, prefixes)
    selection = selection or Selection()
    if sessions is None:
        return Trace(name, "synthetic", lambda: map(Row, draws.singles()), selection, num_requests, remarks)
    total = int(draws.turns(sessions).sum())
    return Trace(name, "synthetic", lambda: map(Row, draws.conversations(sessions)), selection, total, remarks)


def stream(seed: int, part: str) -> np.random.Generator:
    """The random numbers of one part of a workload."""
    sequence = np.random.SeedSequence(seed, spawn_key=tuple(part.encode()))
    return np.random.Generator(np.random.PCG64(sequence))


@dataclass(frozen=True, slots=True)
class _Draws:
    """A workload's laws, and what they draw."""

    count: int
    seed: int
    name: str
    arrivals: ArrivalLaw
    prompt_tokens: LengthLaw
    output_tokens: LengthLaw | ByPrompt
    prefixes: SharedPrefixes | None

    def singles(self) -> Iterator[Request]:
        """Requests that stand alone."""
        ids = self._ids()
        rows = zip(self._starts(), self._lengths(self.count), strict=True)
        for index, ((start_s, prefix), (prompt, output)) in enumerate(rows):
            content = None
            if prefix:
                content = (*prefix, (ids.text(index), prompt))
                prompt += length(prefix)
            yield Request(f"{self.name}-{index}", start_s, prompt, output, content)

    def turns(self, sessions: Sessions) -> NDArray[np.int64]:
        """How many requests each session has."""
        return sessions.turns.tokens(self._uniforms("turns", self.count))

    def conversations(self, sessions: Sessions) -> Iterator[Request]:
        """Requests that follow one another."""
        counts = self.turns(sessions)
        total = int(counts.sum())
        new = zip(self._lengths(total), self._think_s(sessions, total), strict=True)
        first = 0
        for index, ((start_s, prefix), count) in enumerate(zip(self._starts(), _listed(counts), strict=True)):
            turns = [Turn(prompt, output, think_s) for (prompt, output), think_s in islice(new, count)]
            yield from session_requests(f"{self.name}-{index}", start_s, prefix, turns, self._ids(), first)
            first += count

    def _starts(self) -> Iterator[tuple[float, Pieces]]:
        """For each arrival its time and the prefix that it starts with."""
        times_s = _listed(self.arrivals.times_s(self.count, stream(self.seed, "arrivals")))
        if self.prefixes is None:
            return ((time_s, ()) for time_s in times_s)
        groups = self.prefixes.groups(self._uniforms("prefixes", self.count))
        pieces = [self.prefixes.pieces(group) for group in range(len(self.prefixes.lengths))]
        return ((time_s, pieces[group]) for time_s, group in zip(times_s, _listed(groups), strict=True))

    def _lengths(self, n: int) -> Iterator[tuple[int, int]]:
        """Prompt and output tokens of n requests."""
        law, of_prompts, of_outputs = self.output_tokens, *self._streams("prompt_tokens", "output_tokens")
        for size in _blocks(n):
            prompts = self.prompt_tokens.tokens(_uniforms(of_prompts, size))
            u = _uniforms(of_outputs, size)
            outputs = law.tokens_after(prompts, u) if isinstance(law, ByPrompt) else law.tokens(u)
            yield from zip(prompts.tolist(), outputs.tolist(), strict=True)

    def _think_s(self, sessions: Sessions, n: int) -> Iterator[float]:
        (of_gaps,) = self._streams("think_s")
        for size in _blocks(n):
            yield from (sessions.think_s * gaps(sessions.think_burstiness, size, of_gaps)).round(6).tolist()

    def _ids(self) -> ContentIds:
        return ContentIds(0 if self.prefixes is None else len(self.prefixes.lengths))

    def _uniforms(self, part: str, n: int) -> NDArray[np.float64]:
        return _uniforms(stream(self.seed, part), n)

    def _streams(self, *parts: str) -> list[np.random.Generator]:
        return [stream(self.seed, part) for part in parts]


def _uniforms(of: np.random.Generator, n: int) -> NDArray[np.float64]:
    return np.maximum(of.random(n), _SMALLEST_DRAW)


def _blocks(n: int) -> Iterator[int]:
    """Sizes that add up to n. A stream gives the same numbers in blocks as at once."""
    return (min(_BLOCK, n - at) for at in range(0, n, _BLOCK))


def _listed(values: NDArray[Any]) -> Iterator[Any]:
    """A column's values as Python's own numbers, of which there are few at one time."""
    for at in range(0, len(values), _BLOCK):
        yield from values[at : at + _BLOCK].tolist()
