"""A trace as the simulator reads it: requests in order of arrival, chosen and counted as the user asked.

Not for a file's dialect (`workloads.readers`) nor for making requests up (`workloads.synthetic`): both only hand rows
to a `Trace`. The one idea: a trace is a stream that can be started again, never a list.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from workloads.errors import TraceError
from workloads.readers import FORMATS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from workloads.request import Request

MAX_SECONDS = 1e9
"""32 years after a trace's first request: what comes later is milliseconds in a column of seconds."""

NO_PROMPT = "prompt of 0 tokens"
NO_OUTPUT = "output of 0 tokens"
TOO_LONG = "longer than max_model_len"
FOLLOWS_SKIPPED = "follows a skipped turn"


class Row(NamedTuple):
    """A request and where it was read: the names under which its file gives the two lengths serve an error's text.

    `zero_s`: what the file's own clock showed at second 0.
    """

    request: Request
    line: int | None = None
    prompt_field: str = "prompt_tokens"
    output_field: str = "output_tokens"
    zero_s: float = 0.0


class Complaint(NamedTuple):
    """Why a row cannot be used: the reason it is counted under, and the parts of the error it is with `strict`."""

    reason: str
    field: str
    value: object
    expected: str


@dataclass(frozen=True, slots=True)
class Selection:
    """Which of a trace's requests are served, and how fast they come. Applied in this order:

    1. `start_s`, `end_s`: only arrivals in [start_s, end_s) of the trace's own seconds; start_s becomes 0.
    2. Rows that cannot be used are skipped and counted or, with `strict`, an error: 0 prompt or output tokens; prompt
       plus output longer than `max_model_len` tokens; turns that follow a skipped one.
    3. `rate_scale`: arrivals are divided by it, so 2.0 is twice the rate (a session's think times stay as they are).
    4. `limit`: at most so many requests.

    Raises `TraceError` that names the option and its range.
    """

    strict: bool = False
    max_model_len: int | None = None
    rate_scale: float = 1.0
    limit: int | None = None
    start_s: float | None = None
    end_s: float | None = None

    def __post_init__(self) -> None:
        _option("rate_scale", self.rate_scale, "a finite number > 0", 0.0 < self.rate_scale < math.inf)
        _option("limit", self.limit, "an integer >= 1", self.limit is None or self.limit >= 1)
        _option(
            "max_model_len",
            self.max_model_len,
            "an integer >= 2",
            self.max_model_len is None or self.max_model_len >= 2,
        )
        _option("start_s", self.start_s, "seconds >= 0", self.start_s is None or 0.0 <= self.start_s < math.inf)
        _option("end_s", self.end_s, "seconds > start_s", self.end_s is None or self.end_s > (self.start_s or 0.0))

    def complaint(self, row: Row, gone: set[str]) -> Complaint | None:
        """Why a row cannot be used; None if it can. `gone`: request ids of turns that will not be answered."""
        request = row.request
        if request.prompt_tokens == 0:
            return Complaint(NO_PROMPT, row.prompt_field, 0, "at least 1 token")
        if request.output_tokens == 0:
            return Complaint(NO_OUTPUT, row.output_field, 0, "at least 1 token")
        total = request.prompt_tokens + request.output_tokens
        if self.max_model_len is not None and total > self.max_model_len:
            fields = f"{row.prompt_field} + {row.output_field}"
            return Complaint(TOO_LONG, fields, total, f"at most max_model_len = {self.max_model_len} tokens")
        if request.after in gone:
            return Complaint(FOLLOWS_SKIPPED, "after", request.after, "a turn that is not skipped")
        return None


def _option(name: str, value: object, expected: str, good: bool) -> None:
    if not good:
        raise TraceError(field=name, value=value, expected=expected)


class Trace:
    """Requests in order of arrival (equal stamps: in file order). Each `iter()` starts again, from the file.

    Reading raises `TraceError` at the first line that is wrong, and when no request at all can be used.

    `name`: the path or the built-in's name. `format`: which dialect it is in, or `synthetic`.
    `skipped`: reason -> rows skipped for it; filled while the trace is read, by the latest `iter()`.
    `zero_s`: what the file's own clock shows at second 0, where that is not 0; known once the trace is read.
    `prioritized`: whether a request that was read has a priority of its own.
    `at_most`: requests that it may have; None where only reading it can tell.
    `remarks`: lines on what it lacks of what was asked for.
    """

    def __init__(
        self,
        name: str,
        form: str,
        rows: Callable[[], Iterator[Row]],
        selection: Selection,
        size: int | None = None,
        remarks: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.format = form
        self.skipped: Counter[str] = Counter()
        self.zero_s = 0.0
        self.prioritized = False
        self.remarks = remarks
        self._rows = rows
        self._selection = selection
        self.at_most = min((n for n in (size, selection.limit) if n is not None), default=None)

    def __iter__(self) -> Iterator[Request]:
        chosen, skipped = self._selection, Counter[str]()
        start_s, end_s = chosen.start_s or 0.0, math.inf if chosen.end_s is None else chosen.end_s
        self.skipped = skipped
        gone: set[str] = set()
        as_they_are = chosen.rate_scale == 1.0 and start_s == 0.0
        count, latest_s = 0, 0.0
        for row in self._rows():
            request = row.request
            self.zero_s, latest_s = row.zero_s, request.arrival_s
            if latest_s >= end_s:
                break
            if latest_s >= start_s:
                complaint = chosen.complaint(row, gone)
                if complaint is None:
                    self.prioritized = self.prioritized or request.priority != 0
                    yield request if as_they_are and latest_s <= MAX_SECONDS else self._rated(request)
                    count += 1
                    if count == chosen.limit:
                        return
                    continue
                self._skip(row, complaint, skipped)
            # Only turns of sessions name their outputs, so nothing is remembered of a trace's skipped rows.
            if request.output_content is not None:
                gone.add(request.request_id)
        if count == 0:
            told = ", ".join(f"{n} skipped: {reason}" for reason, n in skipped.items())
            told = told or f"none in the window, the last one read is at {latest_s:.10g} s"
            raise TraceError(file=self.name, field="requests", value=told, expected="at least one that can be used")

    def notes(self) -> list[str]:
        """Lines on what was made of the trace, once it has been read."""
        skipped = [f"skipped {n:,} {'row' if n == 1 else 'rows'}: {reason}" for reason, n in self.skipped.items()]
        moved = [f"{self.name} starts at {self.zero_s:,.10g} s: arrivals count from there"] if self.zero_s else []
        return [*self.remarks, *moved, *skipped]

    def _skip(self, row: Row, complaint: Complaint, skipped: Counter[str]) -> None:
        reason, field, value, expected = complaint
        if self._selection.strict:
            raise TraceError(file=self.name, line=row.line, field=field, value=value, expected=expected)
        skipped[reason] += 1

    def _rated(self, request: Request) -> Request:
        chosen = self._selection
        arrival_s = (request.arrival_s - (chosen.start_s or 0.0)) / chosen.rate_scale
        request = replace(request, arrival_s=arrival_s)
        if not arrival_s <= MAX_SECONDS:
            expected = f"at most {MAX_SECONDS:.0f} seconds, by its rate and rate_scale"
            raise TraceError(file=self.name, field="arrival_s", value=arrival_s, expected=expected)
        return request


def read_trace(
    path: str | Path,
    *,
    format: str = "auto",  # noqa: A002  # the option's name on the command line
    strict: bool = False,
    max_model_len: int | None = None,
    rate_scale: float = 1.0,
    limit: int | None = None,
    start_s: float | None = None,
    end_s: float | None = None,
    seed: int = 0,
) -> Trace:
    """The trace in the file at `path`, plain or gzip. `format`: `auto` or a name of `FORMATS`.

    Seconds count from the trace's first request (Azure, BurstGPT, vllm-bench) or as the file counts them (Mooncake,
    csv, jsonl), unless its first request is a minute away or more: then from that one too, and `Trace.zero_s` says so.
    `seed` places requests inside Mooncake's 3 s ticks. The other options: see `Selection`.

    Raises `TraceError` for a file that cannot be read or is in no known format. Rows are read when iterated.
    """
    # Whoever draws requests does without them.
    from workloads.readers.dialects import detect, reader
    from workloads.readers.source import Place, count_lines, read_head

    selection = Selection(strict, max_model_len, rate_scale, limit, start_s, end_s)
    if format not in ("auto", *FORMATS):
        raise TraceError(field="format", value=format, expected=f"auto or one of {', '.join(FORMATS)}")
    if not str(path) or "\0" in str(path):  # the current folder, and what no system calls a file
        raise TraceError(field="path", value=str(path), expected="the name of a file")
    path = Path(path)
    read_head(Place(path))
    form = detect(path) if format == "auto" else format
    rows = reader(form, seed=seed)
    size = None if form == "vllm-bench" else count_lines(path)  # that one is lists, not lines
    return Trace(str(path), form, lambda: rows(path), selection, size)
