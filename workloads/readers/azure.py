"""Azure's LLM inference traces (Azure Public Dataset), the 2023 and the 2024 release.

`TIMESTAMP,ContextTokens,GeneratedTokens`; the stamp is a date and time with up to 9 fraction digits, without a zone
(2023) or with `+00:00` (2024). The one idea: stamps are compared as whole nanoseconds, so no digit is lost.
"""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING

from workloads.readers.row import in_order, tokens
from workloads.readers.source import Place
from workloads.readers.table import read_columns
from workloads.request import Request
from workloads.trace import Row

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")

_STAMP = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)?", re.ASCII)
_SECOND_LENGTH = len("2023-11-16 18:15:46")
_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


def rows(path: Path) -> Iterator[Row]:
    """Each row of the trace at `path`; arrivals count from the first row."""
    place = Place(path)
    first = before = None
    stamp_name, prompt_name, output_name = COLUMNS
    for index, (stamp, prompt, output) in enumerate(read_columns(place, COLUMNS)):
        now = in_order(place, stamp_name, stamp, _nanoseconds(place, stamp), before)
        first, before = (now if first is None else first), now
        request = Request(
            request_id=f"azure-{index}",
            arrival_s=(now - first) / 1e9,
            prompt_tokens=tokens(place, prompt_name, prompt),
            output_tokens=tokens(place, output_name, output),
        )
        yield Row(request, place.line, prompt_name, output_name)


def _nanoseconds(place: Place, stamp: str) -> int:
    second, _, fraction = stamp.removesuffix("+00:00").partition(".")
    plain = len(second) == _SECOND_LENGTH and len(fraction) <= 9 and fraction.isdigit() and fraction.isascii()
    try:
        return _since_1970(second) + int(fraction.ljust(9, "0")) if plain else _since_1970(stamp)
    except ValueError as error:
        expected = "a date and time such as 2023-11-16 18:15:46.6805900, with or without +00:00"
        reason = f" ({error})" if error.args else ""
        raise place.error(COLUMNS[0], stamp, f"{expected}{reason}") from error


@lru_cache(maxsize=1)  # rows of the same second follow one another
def _since_1970(stamp: str) -> int:
    """Nanoseconds. Raises ValueError, with a reason where it looks like a stamp."""
    match = _STAMP.fullmatch(stamp)
    if match is None:
        raise ValueError
    day, clock, fraction, zone = match.groups()
    since = datetime.fromisoformat(f"{day}T{clock}{(zone or '+00:00').replace('Z', '+00:00')}") - _EPOCH
    return (since.days * 86_400 + since.seconds) * 10**9 + int((fraction or "").ljust(9, "0"))
