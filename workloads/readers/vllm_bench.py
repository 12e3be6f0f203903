"""Results of `vllm bench serve --save-result --save-detailed`: send what that benchmark sent, when it sent it.

Keys read: `start_times` (seconds of a running clock), `input_lens`, `output_lens`, lists of equal length. Failed
requests carry 0 output tokens: they are skipped later, and counted.

Not streaming, unlike its neighbours: the file is one JSON document, so it is read as a whole; and it lists requests in
the order in which they were made, so they are sorted by their start. Source of the keys: vLLM 0.32,
vllm/benchmarks/serve.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workloads.readers.row import LATEST_S, json_object, number, tokens
from workloads.readers.source import Place, read_document
from workloads.request import Request
from workloads.trace import Row

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KEYS = ("start_times", "input_lens", "output_lens")


def rows(path: Path) -> Iterator[Row]:
    """Each request of the result at `path`; arrivals count from the earliest request that was answered."""
    place = Place(path)
    record = json_object(place, read_document(path))
    starts, prompts, outputs = (_list(place, record, key) for key in KEYS)
    for key, column in zip(KEYS, (starts, prompts, outputs), strict=True):
        if not column or len(column) != len(starts):
            raise place.error(key, f"{len(column)} values", f"{len(starts) or 'some'}, as many as start_times")
    starts_s = [number(place, f"start_times[{i}]", x, high=LATEST_S) for i, x in enumerate(starts)]
    lengths = [
        (tokens(place, f"input_lens[{i}]", prompt), tokens(place, f"output_lens[{i}]", output))
        for i, (prompt, output) in enumerate(zip(prompts, outputs, strict=True))
    ]
    # A request that failed before it was sent carries 0 as its start: it must not set the zero.
    answered = [start_s for start_s, (_, output) in zip(starts_s, lengths, strict=True) if output]
    zero_s = min(answered, default=min(starts_s))
    for i in sorted(range(len(starts_s)), key=starts_s.__getitem__):
        request = Request(f"vllm-bench-{i}", max(0.0, starts_s[i] - zero_s), *lengths[i])
        yield Row(request, None, f"input_lens[{i}]", f"output_lens[{i}]")


def _list(place: Place, record: dict[str, Any], key: str) -> list[Any]:
    value = record.get(key)
    if not isinstance(value, list):
        raise place.error(key, value, f"a list {key!r}, as vllm bench serve --save-detailed writes it")
    return value
