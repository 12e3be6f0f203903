"""Mooncake's traces (kvcache-ai/Mooncake): JSON lines with the prompt's blocks as hash ids, so prefix caching works.

`{"timestamp": ms, "input_length": n, "output_length": m, "hash_ids": [...]}`, one id per block of 512 prompt tokens,
the last one partial. An id stands for its block and all before it, so equal ids are equal text at equal positions: the
block becomes the content piece `(id, 512)`.

Some of these traces stamp requests in ticks of 3 s. A tick's requests are spread evenly at random inside it, in file
order; served at once, each tick would be a burst that never was. Stamps count from 0, or from the first one where that
is a minute or later.
"""

from __future__ import annotations

from itertools import chain, groupby, pairwise
from operator import itemgetter
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from workloads.readers.row import StampClock, integers, json_object, tokens
from workloads.readers.source import Place, read_lines
from workloads.request import MAX_ID, Request
from workloads.trace import Row

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

KEYS = ("timestamp", "input_length", "output_length", "hash_ids")
BLOCK_TOKENS = 512
TICK_MS = 3000

_TICK_JITTER_MS = 10
"""The real stamps lie 2997 to 3003 ms apart."""
_LOOK_AHEAD_STAMPS = 17
_LOOK_AHEAD_ROWS = 4096


class _Entry(NamedTuple):
    line: int | None
    stamp_ms: float
    prompt_tokens: int
    output_tokens: int
    content: tuple[tuple[int, int], ...]


def rows(path: Path, *, seed: int) -> Iterator[Row]:
    """Each row of the trace at `path`, at its own stamp or, in ticks, at a time drawn with `seed`.

    Memory: the rows of a tick, and the first few ticks while it is found out whether there are any.
    """
    clock = StampClock(per_s=1e3, unit="milliseconds")
    entries = _entries(path, clock)
    ahead = _look_ahead(entries)
    entries = chain(ahead, entries)
    timed = _spread(entries, Random(seed)) if _in_ticks(ahead) else ((entry.stamp_ms, entry) for entry in entries)
    for index, (arrival_ms, entry) in enumerate(timed):
        request = Request(
            request_id=f"mooncake-{index}",
            arrival_s=arrival_ms / 1e3,
            prompt_tokens=entry.prompt_tokens,
            output_tokens=entry.output_tokens,
            content=entry.content,
        )
        yield Row(request, entry.line, "input_length", "output_length", clock.zero_s)


def _entries(path: Path, clock: StampClock) -> Iterator[_Entry]:
    place = Place(path)
    values = itemgetter(*KEYS)
    for text in read_lines(place):
        record = json_object(place, text)
        try:
            stamp, prompt, output, hash_ids = values(record)
        except KeyError as error:
            key = error.args[0]
            raise place.error(key, f"keys {', '.join(record)}", f"a key {key!r}") from error
        now = clock.read(place, "timestamp", stamp)
        prompt_tokens = tokens(place, "input_length", prompt)
        output_tokens = tokens(place, "output_length", output)
        yield _Entry(place.line, now, prompt_tokens, output_tokens, _content(place, hash_ids, prompt_tokens))


def _content(place: Place, hash_ids: object, prompt_tokens: int) -> tuple[tuple[int, int], ...]:
    blocks = -(-prompt_tokens // BLOCK_TOKENS)
    if not isinstance(hash_ids, list) or len(hash_ids) != blocks:
        raise place.error(
            "hash_ids", hash_ids, f"a list of {blocks} ids, one per {BLOCK_TOKENS} of the prompt's tokens"
        )
    ids = integers(place, "hash_ids", hash_ids, low=0, high=MAX_ID)
    sizes = [BLOCK_TOKENS] * blocks
    if rest := prompt_tokens % BLOCK_TOKENS:
        sizes[-1] = rest
    return tuple(zip(ids, sizes, strict=True))


def _look_ahead(entries: Iterator[_Entry]) -> list[_Entry]:
    ahead: list[_Entry] = []
    stamps: set[float] = set()
    for entry in entries:
        ahead.append(entry)
        stamps.add(entry.stamp_ms)
        if len(stamps) == _LOOK_AHEAD_STAMPS or len(ahead) == _LOOK_AHEAD_ROWS:
            break
    return ahead


def _in_ticks(ahead: list[_Entry]) -> bool:
    """Whether stamps repeat, and different ones lie whole ticks apart."""
    gaps = [after - before for before, after in pairwise(entry.stamp_ms for entry in ahead)]
    steps = [gap for gap in gaps if gap]
    off_ms = (abs(gap - TICK_MS * max(1, round(gap / TICK_MS))) for gap in steps)
    return 0 < len(steps) < len(gaps) and all(off <= _TICK_JITTER_MS for off in off_ms)


def _spread(entries: Iterable[_Entry], rng: Random) -> Iterator[tuple[float, _Entry]]:
    ticks = ((stamp, list(group)) for stamp, group in groupby(entries, key=lambda entry: entry.stamp_ms))
    end: list[tuple[float, list[_Entry]]] = [(float("inf"), [])]
    for (stamp_ms, tick), (next_ms, _) in pairwise(chain(ticks, end)):
        width_ms = min(TICK_MS, next_ms - stamp_ms)
        offsets = sorted(rng.random() for _ in tick)
        yield from ((stamp_ms + offset * width_ms, entry) for offset, entry in zip(offsets, tick, strict=True))
