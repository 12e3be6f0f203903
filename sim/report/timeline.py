"""A run as a Chrome trace (JSON) that Perfetto's viewer (ui.perfetto.dev) and chrome://tracing open.

Not for figures (`summary`). The one idea: two processes. "engine" has a slice per step and counters beside it;
"requests" has as many slots as requests were ever in the system at once, each reused by the next, with a slice per
request and inside it send, queue, prefill and decode. Events are written as they are made, never held together.
Times are whole microseconds, so that neighbours touch and, whatever a viewer rounds, never overlap.
"""

from __future__ import annotations

import gzip
import heapq
import io
import json
from contextlib import contextmanager
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from sim.report.insight import kv_usage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import TextIO

    import pandas as pd

    from sim.report.frames import Frames

    Event = dict[str, object]

_ENGINE, _REQUESTS = 1, 2
_ROWS_AT_ONCE = 512


def write_timeline(frames: Frames, path: Path) -> None:
    """Write the trace to `path`, compressed if its name ends in .gz. The same run gives the same bytes.

    Times count from the workload's start. A request's prefill ends when its client sees the first token. A preemption
    is an instant on the steps' track, as the frames know in which step it happened; a request's own count is among
    its slice's arguments.
    """
    with _opened(path) as file:
        file.write('{"displayTimeUnit":"ms","traceEvents":[')
        separator = "\n"
        for event in chain(_names(), _step_events(frames), _request_events(frames)):
            file.write(separator)
            file.write(json.dumps(event, separators=(",", ":"), allow_nan=False))
            separator = ",\n"
        file.write("\n]}\n")


@contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    """A text file, or a gzip one without a name and time of its own in the header."""
    with path.open("wb") as raw:
        if path.suffix != ".gz":
            with io.TextIOWrapper(raw, encoding="utf-8") as text:
                yield text
            return
        packed = gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0, compresslevel=6)
        with packed, io.TextIOWrapper(packed, encoding="utf-8") as text:
            yield text


def _names() -> Iterator[Event]:
    for pid, name in ((_ENGINE, "engine"), (_REQUESTS, "requests")):
        yield {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}}
        yield {"ph": "M", "pid": pid, "name": "process_sort_index", "args": {"sort_index": pid}}
    yield _thread(_ENGINE, 0, "steps")
    yield _thread(_REQUESTS, 0, "rejected")


def _thread(pid: int, tid: int, name: str) -> Event:
    return {"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": name}}


# -- engine ------------------------------------------------------------------------------------------------------------

_STEP_ARGS = ("num_tokens", "num_seqs", "prefill_tokens", "decodes", "running", "waiting", "admitted", "preempted",
              "hit_tokens", "free_blocks")  # fmt: skip


def _step_events(frames: Frames) -> Iterator[Event]:
    table = frames.steps[["start_s", "end_s", *_STEP_ARGS]].assign(kv_percent=(100 * kv_usage(frames)).round(3))
    counters = _Counters()
    last_end_us = 0
    for start_s, end_s, *values, kv_percent in _rows(table):
        start_us, end_us = _us(start_s), _us(end_s)
        args = dict(zip(_STEP_ARGS, values, strict=True))
        if start_us > last_end_us:
            yield from counters.changes(last_end_us, dict.fromkeys(args, 0), 0.0)
        last_end_us = end_us
        kind = (
            "mixed" if args["prefill_tokens"] and args["decodes"] else "prefill" if args["prefill_tokens"] else "decode"
        )
        yield _slice(_ENGINE, 0, kind, start_us, end_us, args)
        yield from counters.changes(start_us, args, kv_percent)
        if args["preempted"]:
            yield _instant(_ENGINE, 0, "preemption", start_us, {"requests": args["preempted"]})
    yield from counters.changes(last_end_us, dict.fromkeys(_STEP_ARGS, 0), 0.0)


class _Counters:
    """Counter events, written only where a value changes."""

    def __init__(self) -> None:
        self._last: dict[str, Event] = {}

    def changes(self, ts_us: int, args: dict[str, int], kv_percent: float) -> Iterator[Event]:
        now: dict[str, Event] = {
            "requests": {"running": args["running"], "waiting": args["waiting"]},
            "KV cache": {"used %": kv_percent},
            "step tokens": {"prefill": args["prefill_tokens"], "decode": args["decodes"]},
        }
        for name, values in now.items():
            if self._last.get(name) != values:
                yield {"ph": "C", "pid": _ENGINE, "ts": ts_us, "name": name, "args": values}
        self._last = now


# -- requests ----------------------------------------------------------------------------------------------------------


class _Life(NamedTuple):
    """A request's moments, in order, in microseconds; what never happened falls together with the end of the run."""

    send_us: int
    queued_us: int
    scheduled_us: int
    first_token_us: int
    finish_us: int


def _request_events(frames: Frames) -> Iterator[Event]:
    """A slice per request in the lowest free slot, and its phases inside."""
    sent = frames.requests[frames.requests["send_s"].notna()].sort_values("send_s", kind="stable")
    slots = _Slots()
    for moments, args in zip(_lives(sent, _end_us(frames)), _rows_as_dicts(sent), strict=True):
        name = str(args.pop("request_id"))
        if args["status"] == "rejected":
            yield _instant(_REQUESTS, 0, f"rejected {name}", moments.send_us, args)
            continue
        slot, is_new = slots.take(moments.send_us, moments.finish_us)
        if is_new:
            yield _thread(_REQUESTS, slot, f"slot {slot}")
        yield _slice(_REQUESTS, slot, name, moments.send_us, moments.finish_us, args)
        for phase, (begin_us, end_us) in zip(("send", "queue", "prefill", "decode"), pairwise(moments), strict=True):
            if end_us > begin_us:
                yield _slice(_REQUESTS, slot, phase, begin_us, end_us, {})


def _lives(requests: pd.DataFrame, end_us: int) -> Iterator[_Life]:
    columns = requests[[f"{name.removesuffix('_us')}_s" for name in _Life._fields]]
    for row in _rows(columns):
        yield _Life(*(_us(moment_s) if moment_s == moment_s else max(end_us, _us(row[0])) for moment_s in row))


def _end_us(frames: Frames) -> int:
    ends = (frames.steps["end_s"].max(), frames.requests["finish_s"].max())
    return max((_us(end) for end in ends if end == end), default=0)


class _Slots:
    """Slots 1, 2, 3 ...: the lowest that is free when a request comes."""

    def __init__(self) -> None:
        self._free: list[int] = []
        self._busy: list[tuple[int, int]] = []

    def take(self, begin_us: int, end_us: int) -> tuple[int, bool]:
        """The slot for [begin, end), and whether it is used for the first time. Call in order of begin."""
        while self._busy and self._busy[0][0] <= begin_us:
            heapq.heappush(self._free, heapq.heappop(self._busy)[1])
        is_new = not self._free
        slot = len(self._busy) + 1 if is_new else heapq.heappop(self._free)
        heapq.heappush(self._busy, (end_us, slot))
        return slot, is_new


# -- events ------------------------------------------------------------------------------------------------------------

_REQUEST_ARGS = ("request_id", "status", "priority", "prompt_tokens", "output_tokens", "cached_tokens", "preemptions",
                 "recomputed_tokens")  # fmt: skip


def _rows_as_dicts(requests: pd.DataFrame) -> Iterator[Event]:
    for row in _rows(requests[list(_REQUEST_ARGS)]):
        yield dict(zip(_REQUEST_ARGS, row, strict=True))


def _rows(table: pd.DataFrame) -> Iterator[tuple[Any, ...]]:
    """Rows as plain Python values, a few thousand at a time."""
    for begin in range(0, len(table), _ROWS_AT_ONCE):
        part = table.iloc[begin : begin + _ROWS_AT_ONCE]
        yield from zip(*(part[name].tolist() for name in part.columns), strict=True)


def _us(time_s: float) -> int:
    return round(time_s * 1e6)


def _slice(pid: int, tid: int, name: str, begin_us: int, end_us: int, args: Event) -> Event:
    event: Event = {"ph": "X", "pid": pid, "tid": tid, "name": name, "ts": begin_us}
    return event | {"dur": end_us - begin_us} | ({"args": args} if args else {})


def _instant(pid: int, tid: int, name: str, ts_us: int, args: Event) -> Event:
    return {"ph": "i", "s": "t", "pid": pid, "tid": tid, "name": name, "ts": ts_us, "args": args}
