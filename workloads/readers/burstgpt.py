"""BurstGPT (HPMLL/BurstGPT): requests of a university's ChatGPT and GPT-4 service.

`Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type`; the later release inserts `Session ID,Elapsed
time`. `Timestamp` is seconds since the trace's first midnight, whole or not. Failed calls carry 0 tokens: they are
skipped later, and counted. Not for the model's name, nor for sessions, whose texts the trace does not tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workloads.readers.row import StampClock, tokens
from workloads.readers.source import Place
from workloads.readers.table import read_columns
from workloads.request import Request
from workloads.trace import Row

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COLUMNS = ("Timestamp", "Request tokens", "Response tokens")


def rows(path: Path) -> Iterator[Row]:
    """Each row of the trace at `path`; arrivals count from the first row, since later files start days in."""
    place = Place(path)
    clock = StampClock(idle_start_s=0.0)
    stamp_name, prompt_name, output_name = COLUMNS
    for index, (stamp, prompt, output) in enumerate(read_columns(place, COLUMNS)):
        request = Request(
            request_id=f"burstgpt-{index}",
            arrival_s=clock.read(place, stamp_name, stamp),
            prompt_tokens=tokens(place, prompt_name, prompt),
            output_tokens=tokens(place, output_name, output),
        )
        yield Row(request, place.line, prompt_name, output_name)
