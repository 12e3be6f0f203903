"""Plain traces, for whatever has no dialect of its own: CSV with a header line, or one JSON object per line.

| what          | under one of these names (CSV: any case)                                   |
|---------------|----------------------------------------------------------------------------|
| arrival, s    | `arrival_s`, `arrival`, `arrival_time`, `arrived_at`, `timestamp`, `time_s` |
| prompt        | `prompt_tokens`, `prompt_len`, `input_tokens`, `input_len`, `num_prefill_tokens` |
| output        | `output_tokens`, `output_len`, `completion_tokens`, `num_decode_tokens`    |
| optional      | `request_id` (text, each once), `priority` (integer, lower first)          |
| optional, JSON lines only | `content` (list of `[content_id, n]` that sum to the prompt), `output_content` (id) |

Other columns are ignored. Arrivals are seconds since the start of the workload, and are kept as they are; where the
first one is a minute or later (dates since 1970, a piece of a longer trace), they count from it. The one idea: names
that say what they are; a file that offers two names for one thing is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workloads.readers.row import StampClock, integer, json_object, tokens
from workloads.readers.source import Place, read_lines
from workloads.readers.table import read_records
from workloads.request import MAX_ID, Request, is_text
from workloads.trace import Row

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

ARRIVAL = ("arrival_s", "arrival", "arrival_time", "arrived_at", "timestamp", "time_s")
PROMPT = ("prompt_tokens", "prompt_len", "input_tokens", "input_len", "num_prefill_tokens")
OUTPUT = ("output_tokens", "output_len", "completion_tokens", "num_decode_tokens")


def csv_rows(path: Path) -> Iterator[Row]:
    """Each row of the CSV file at `path`."""
    place = Place(path)
    return _rows(place, read_records(place), "csv", shares=False)


def jsonl_rows(path: Path) -> Iterator[Row]:
    """Each line of the JSON lines file at `path`."""
    place = Place(path)
    return _rows(place, (json_object(place, text) for text in read_lines(place)), "jsonl", shares=True)


def speaks(names: Iterable[str]) -> bool:
    """Whether `names` offer an arrival, a prompt's and an output's length."""
    found = set(names)
    return all(found.intersection(known) for known in (ARRIVAL, PROMPT, OUTPUT))


def _rows(place: Place, records: Iterable[Mapping[str, Any]], dialect: str, *, shares: bool) -> Iterator[Row]:
    clock = StampClock()
    # The ids that the file gives itself are all that is remembered of it: results are told apart by them.
    seen: set[str] = set()
    names: list[str] | None = None
    arrival = prompt = output = ""
    for index, record in enumerate(records):
        if list(record) != names:  # never in CSV, seldom in JSON lines
            names = list(record)
            arrival, prompt, output = (_only(place, names, known) for known in (ARRIVAL, PROMPT, OUTPUT))
        arrival_s = clock.read(place, arrival, record[arrival])
        prompt_tokens = tokens(place, prompt, record[prompt])
        request = Request(
            request_id=_request_id(place, record, seen) or f"{dialect}-{index}",
            arrival_s=arrival_s,
            prompt_tokens=prompt_tokens,
            output_tokens=tokens(place, output, record[output]),
            content=_content(place, record.get("content"), prompt_tokens) if shares else None,
            output_content=_optional(place, record, "output_content", low=0) if shares else None,
            priority=_optional(place, record, "priority", low=-MAX_ID) or 0,
        )
        yield Row(request, place.line, prompt, output, clock.zero_s)


def _only(place: Place, names: list[str], known: tuple[str, ...]) -> str:
    found = [name for name in known if name in names]
    if len(found) != 1:
        raise place.error(known[0], f"names {', '.join(names)}", f"exactly one of {', '.join(known)}")
    return found[0]


def _optional(place: Place, record: Mapping[str, Any], name: str, *, low: int) -> int | None:
    value = record.get(name)
    return None if value is None else integer(place, name, value, low=low, high=MAX_ID)


def _request_id(place: Place, record: Mapping[str, Any], seen: set[str]) -> str | None:
    value = record.get("request_id")
    if value is None:
        return None
    named = is_text(value) or (isinstance(value, int) and not isinstance(value, bool))
    if not named or value == "" or str(value) in seen:
        raise place.error("request_id", value, "a name, of whole characters, that no row above has")
    seen.add(str(value))
    return str(value)


def _content(place: Place, value: object, prompt_tokens: int) -> tuple[tuple[int, int], ...] | None:
    if value is None:
        return None
    expected = f"a list of [content_id, n] whose n sum to the prompt's {prompt_tokens} tokens"
    if not isinstance(value, list) or not all(isinstance(piece, list) and len(piece) == 2 for piece in value):
        raise place.error("content", value, expected)
    pieces = tuple(
        (integer(place, "content", one, low=0, high=MAX_ID), integer(place, "content", n, low=1, high=prompt_tokens))
        for one, n in value
    )
    if sum(n for _, n in pieces) != prompt_tokens:
        raise place.error("content", value, expected)
    return pieces
