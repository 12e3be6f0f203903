"""Reads the steps out of the log of `vllm serve --enable-logging-iteration-details`.

Not for what the totals leave open (unknowns.py, log_composition.py). The one idea: a line says what one step computed
and how long the engine waited for it, whatever stands around it; so lines are searched, not parsed, and what is broken
is counted. Two dialects:

    old  (EngineCore_DP0 pid=7) INFO 01-20 10:00:00 [core.py:359] Iteration(5): 1 context requests, 400 context tokens,
         3 generation requests, 3 generation tokens, iteration elapsed time: 12.34 ms
    0.32 (APIServer pid=7) INFO ... [loggers.py:199] Engine 000: Iteration(5): ... 12.34 ms, GPU KV cache usage: 0.1%

Source: vLLM 0.32, v1/metrics/loggers.py and v1/engine/core.py; the old dialect as of 0.1x to 0.2x, v1/engine/core.py.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from math import nan
from typing import TYPE_CHECKING

from sim.errors import InputError
from sim.input_file import read_lines
from sim.plurals import counted

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Sequence

_ITERATION = re.compile(
    r"(?:Engine (?P<engine>\d+): )?Iteration\((?P<index>\d+)\): "
    r"(?P<prompts>\d+) context requests, (?P<prompt_tokens>\d+) context tokens, "
    r"(?P<decodes>\d+) generation requests, (?P<decode_tokens>\d+) generation tokens, "
    r"iteration elapsed time: (?P<ms>\d+\.?\d*) ms(?P<dummy> \(dummy\))?"
    r"(?:, (?P<device>[A-Z]+) KV cache usage: (?P<usage>\d+\.?\d*)%)?"
)
_STARTED = re.compile(r"\bIteration\(")
_PROCESS = re.compile(r"\((?P<name>[A-Za-z]\w*) pid=(?P<pid>\d+)\)")
_EPOCH = re.compile(r"(?<![\d.])(?P<s>\d{10}\.\d{3,9})(?![\d.])")
_CLOCK = re.compile(r"\b(?P<month>\d\d)-(?P<day>\d\d) (?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)(?:[.,](?P<ms>\d{3}))?\b")
_CACHE = re.compile(r"KV cache size: (?P<tokens>[\d,]+) tokens")
_BLOCK = re.compile(r"'block_size': (?P<size>\d+)")
_VERSION = re.compile(r"Initializing a V1 LLM engine \(v(?P<version>[\w.+]+)\)|\bversion (?P<banner>\d+\.\d+\.\w+)")
_ASYNC = re.compile(r"Asynchronous scheduling is enabled|['\"]?\basync_scheduling['\"]?\s*[=:]\s*True", re.IGNORECASE)
_SYNC = re.compile(
    r"Asynchronous scheduling is disabled|['\"]?\basync_scheduling['\"]?\s*[=:]\s*False"
    r"|Async scheduling (?:will be|is) disabled",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Iteration:
    """One logged step."""

    engine: str
    """Which engine, and which life of it: its number, or the process that logged."""
    index: int
    prompts: int
    """Requests that had no output yet: whole prompts and chunks of them."""
    prompt_tokens: int
    decodes: int
    """Requests with output; a resumed one is counted here too, with all of its tokens."""
    decode_tokens: int
    elapsed_s: float
    """The engine's wait for the step: device, worker and the way there, not the scheduler."""
    kv_usage: float = nan
    """Share of the KV blocks in use when the step was over; NaN in the old dialect."""
    logged_s: float = nan
    """When the line was written, seconds of a running clock; NaN without a time stamp."""


@dataclass(frozen=True, slots=True)
class IterationLog:
    """All that a log says of steps."""

    iterations: tuple[Iteration, ...]
    """In file order; of several engines, each in its own order."""
    broken: int = 0
    """Lines that begin an iteration and do not end it: two processes wrote at once, or the file was cut."""
    dummies: int = 0
    """Steps without a request, which data-parallel engines make to keep in step."""
    repeated: int = 0
    """Copies of a line that was there already."""
    resolution_s: float = nan
    """Of the time stamps; NaN without."""
    cache_tokens: int | None = None
    block_size: int | None = None
    version: str = ""
    synchronous: bool | None = None
    """Whether the server scheduled synchronously; None where the log does not say."""

    def engines(self) -> dict[str, list[Iteration]]:
        """Engine -> its steps."""
        steps: dict[str, list[Iteration]] = {}
        for step in self.iterations:
            steps.setdefault(step.engine, []).append(step)
        return steps

    def require_synchronous(self, file: str | os.PathLike[str] | None = None, *, assume: bool = False) -> None:
        """Raise InputError where "elapsed" is not the step's time.

        Under async scheduling the engine schedules the next step while the GPU works, so it waits for the rest only.
        `assume`: the log does not say, somebody knows.
        """
        if self.synchronous is False:
            raise InputError(
                "taken under async scheduling, where the elapsed time is only what was left to wait for; log again "
                "with --no-async-scheduling",
                file=file,
            )
        if self.synchronous is None and not assume:
            raise InputError(
                "the log does not say whether scheduling was synchronous, and under async scheduling its times are "
                "useless: keep the server's first lines, or state it with --synchronous",
                file=file,
            )


def read_iteration_log(path: str | os.PathLike[str]) -> IterationLog:
    """The steps of a log file, gzipped where its name ends in .gz. Raises InputError where it has none; OSError."""
    try:
        log = parse_iteration_log(read_lines(path, errors="replace"))
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"damaged: {error}", file=path, expected="a whole gzip file") from error
    if not log.iterations:
        what = f"{counted(log.broken, 'broken iteration line')} only" if log.broken else "no iteration lines"
        raise InputError(
            f"{what}, expected the log of vllm serve --enable-logging-iteration-details --no-async-scheduling",
            file=path,
        )
    return log


def parse_iteration_log(lines: Iterable[str]) -> IterationLog:
    """The steps of a log's lines."""
    reader = _Reader()
    for line in lines:
        reader.read(line)
    return reader.log()


class _Reader:
    """Collects, line by line."""

    def __init__(self) -> None:
        self._steps: list[Iteration] = []
        self._last: dict[str, Iteration] = {}
        self._lives: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()
        self._resolution_s = nan
        self._facts: dict[str, str] = {}
        self._sync: bool | None = None
        self._cpu = False

    def read(self, line: str) -> None:
        matches = list(_ITERATION.finditer(line))
        self._counts["broken"] += len(_STARTED.findall(line)) - len(matches)
        if not matches:
            self._read_fact(line)
        for match in matches:
            self._take(match, line[: match.start()])

    def _take(self, match: re.Match[str], before: str) -> None:
        if match["dummy"]:
            self._counts["dummies"] += 1
            return
        engine = f"engine {int(match['engine'])}" if match["engine"] else _process(before)
        self._cpu |= match["device"] == "CPU"
        step = Iteration(
            engine=engine,
            index=int(match["index"]),
            prompts=int(match["prompts"]),
            prompt_tokens=int(match["prompt_tokens"]),
            decodes=int(match["decodes"]),
            decode_tokens=int(match["decode_tokens"]),
            elapsed_s=float(match["ms"]) / 1e3,
            kv_usage=float(match["usage"]) / 100 if match["usage"] else nan,
            logged_s=self._time(before),
        )
        last = self._last.get(engine)
        if last is not None and step.index == last.index and replace(step, logged_s=nan) == replace(last, logged_s=nan):
            self._counts["repeated"] += 1
            return
        if last is not None and step.index <= last.index:
            self._lives[engine] += 1  # a server that started again counts from 0
        self._last[engine] = step
        life = self._lives[engine]
        self._steps.append(replace(step, engine=f"{engine}, start {life + 1}") if life else step)

    def _time(self, before: str) -> float:
        """The latest time stamp before the message."""
        if epochs := _EPOCH.findall(before):
            self._resolution_s = 1e-3
            return float(epochs[-1])
        clocks = list(_CLOCK.finditer(before))
        if not clocks:
            return nan
        at = clocks[-1]
        self._resolution_s = 1e-3 if at["ms"] else 1.0
        try:  # the year is not logged; a leap one has every day
            day = datetime(2000, int(at["month"]), int(at["day"]), tzinfo=UTC).timestamp()
        except ValueError:
            return nan
        return day + 3600.0 * int(at["h"]) + 60.0 * int(at["m"]) + int(at["s"]) + int(at["ms"] or 0) / 1e3

    def _read_fact(self, line: str) -> None:
        if _ASYNC.search(line):
            self._sync = False
        elif _SYNC.search(line) and self._sync is None:
            self._sync = True
        for name, pattern in (("cache_tokens", _CACHE), ("block_size", _BLOCK), ("version", _VERSION)):
            if found := pattern.search(line):
                self._facts.setdefault(name, next(group for group in found.groups() if group))

    def log(self) -> IterationLog:
        facts = self._facts
        return IterationLog(
            tuple(self._steps),
            broken=self._counts["broken"],
            dummies=self._counts["dummies"],
            repeated=self._counts["repeated"],
            resolution_s=self._resolution_s,
            cache_tokens=int(facts["cache_tokens"].replace(",", "")) if "cache_tokens" in facts else None,
            block_size=int(facts["block_size"]) if "block_size" in facts else None,
            version=facts.get("version", ""),
            # vLLM's CPU platform switches async scheduling off, whatever was asked for.
            synchronous=True if self._cpu else self._sync,
        )


def _process(before: str) -> str:
    """The process that logged, of a line without an engine's number."""
    found = list(_PROCESS.finditer(before))
    return f"{found[-1]['name']} pid {found[-1]['pid']}" if found else "engine"


# -- what the lines do not say by themselves ---------------------------------------------------------------------------

WINDOW = 16
"""Steps over which a host's time is averaged: a line's time stamp comes when its logger gets round to it."""


def host_seconds(steps: Sequence[Iteration], resolution_s: float) -> list[float]:
    """Seconds of one engine's steps that are not in `elapsed_s`, from when lines were written; NaN where unknown.

    While requests run on, the time between two lines is one whole step, so over a window of such steps the host has
    what is left. Windows are long enough for the time stamps' resolution to matter little.
    """
    found = [nan] * len(steps)
    for start, end in _busy(steps):
        first = start
        while first < end:
            last = _window_end(steps, first, end, resolution_s)
            if last is None:
                break
            whole_s = steps[last].logged_s - steps[first].logged_s
            waits_s = sum(step.elapsed_s for step in steps[first + 1 : last + 1])
            share = max(0.0, whole_s - waits_s) / (last - first)
            found[first + 1 : last + 1] = [share] * (last - first)
            first = last
    return found


def _busy(steps: Sequence[Iteration]) -> list[tuple[int, int]]:
    """Spans (first, last) of positions within which some request ran on from each step to the next."""
    spans: list[tuple[int, int]] = []
    start = 0
    for i, (step, after) in enumerate(pairwise(steps)):
        runs_on = after.decodes > 0 and after.index == step.index + 1 and after.logged_s >= step.logged_s
        if not runs_on:
            spans.append((start, i))
            start = i + 1
    spans.append((start, len(steps) - 1))
    return [(a, b) for a, b in spans if b > a]


def _window_end(steps: Sequence[Iteration], first: int, end: int, resolution_s: float) -> int | None:
    """The last step of a window that starts after `first`; None where the span ends too soon for one."""
    long_enough_s = 40 * resolution_s if resolution_s >= 1 else 0.0
    for last in range(first + WINDOW, end + 1):
        if steps[last].logged_s - steps[first].logged_s >= long_enough_s:
            return end if end - last < WINDOW else last
    return None
