"""Which dialect a trace is in, and the reader for it.

Not for the rows. The one idea: the first line decides, and must fit exactly one dialect.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from workloads.readers import FORMATS, azure, burstgpt, mooncake, plain, vllm_bench
from workloads.readers.row import json_object
from workloads.readers.source import Place, read_head
from workloads.readers.table import header_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from workloads.trace import Row

_RESULT_KEYS = {*vllm_bench.KEYS, "request_throughput"}


def detect(path: Path) -> str:
    """The format of the trace at `path`, from its first line. Raises `TraceError` for none, and for more than one."""
    place = Place(path)
    text, whole = read_head(place)
    found = _json_dialects(place, text, whole=whole) if text[0] in "{[" else _csv_dialects(place, text)
    if len(found) != 1:
        known = "; ".join(f"{name} ({look})" for name, look in FORMATS.items())
        wrong = f"what fits {' and '.join(found)}: {text}" if found else text
        raise place.error("format", wrong, f"one of: {known}")
    return found[0]


def reader(form: str, *, seed: int) -> Callable[[Path], Iterator[Row]]:
    """The reader of a format named in `FORMATS`. `seed` is for what a dialect leaves open."""
    readers: dict[str, Callable[[Path], Iterator[Row]]] = {
        "azure": azure.rows,
        "burstgpt": burstgpt.rows,
        "mooncake": partial(mooncake.rows, seed=seed),
        "vllm-bench": vllm_bench.rows,
        "csv": plain.csv_rows,
        "jsonl": plain.jsonl_rows,
    }
    return readers[form]


def _csv_dialects(place: Place, text: str) -> list[str]:
    names = set(header_names(place, text))
    fits = {
        "azure": names.issuperset(name.lower() for name in azure.COLUMNS),
        "burstgpt": names.issuperset(name.lower() for name in burstgpt.COLUMNS),
        "csv": plain.speaks(names),
    }
    return [name for name, fit in fits.items() if fit]


def _json_dialects(place: Place, text: str, *, whole: bool) -> list[str]:
    # A document over many lines, or one line longer than any request's: only a benchmark's result looks like that.
    if text == "{" or not whole:
        return ["vllm-bench"]
    keys = set(json_object(place, text))
    fits = {
        "mooncake": keys.issuperset(mooncake.KEYS),
        "vllm-bench": not keys.isdisjoint(_RESULT_KEYS),
        "jsonl": plain.speaks(keys),
    }
    return [name for name, fit in fits.items() if fit]
