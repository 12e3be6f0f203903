"""Azure's LLM inference traces (Azure Public Dataset), the 2023 and the 2024 release.

`TIMESTAMP,ContextTokens,GeneratedTokens`; the stamp is a date and time with up to 9 fraction digits, without a zone
(2023) or with `+00:00` (2024). The one idea: stamps are compared as whole nanoseconds, so no digit is lost.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING

from workloads.readers.row import Place, in_order, tokens
from workloads.readers.table import read_table
from workloads.request import Request
from workloads.trace import Row

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")

_STAMP = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)?", re.ASCII)
_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


def rows(path: Path) -> Iterator[Row]:
    """Each row of the trace at `path`; arrivals count from the first row."""
    first = before = None
    stamp_name, prompt_name, output_name = COLUMNS
    for index, (place, cells) in enumerate(read_table(path, COLUMNS)):
        stamp = cells[stamp_name.lower()]
        now = in_order(place, stamp_name, stamp, _nanoseconds(place, stamp), before)
        first, before = (now if first is None else first), now
        request = Request(
            request_id=f"azure-{index}",
            arrival_s=(now - first) / 1e9,
            prompt_tokens=tokens(place, prompt_name, cells[prompt_name.lower()]),
            output_tokens=tokens(place, output_name, cells[output_name.lower()]),
        )
        yield Row(request, place.line, prompt_name, output_name)


def _nanoseconds(place: Place, stamp: str) -> int:
    match = _STAMP.fullmatch(stamp)
    expected = "a date and time such as 2023-11-16 18:15:46.6805900, with or without +00:00"
    if match is None:
        raise place.error(COLUMNS[0], stamp, expected)
    day, clock, fraction, zone = match.groups()
    try:
        moment = datetime.fromisoformat(f"{day}T{clock}{(zone or '+00:00').replace('Z', '+00:00')}")
    except ValueError as error:
        raise place.error(COLUMNS[0], stamp, f"{expected} ({error})") from error
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * 10**9 + int((fraction or "").ljust(9, "0"))
