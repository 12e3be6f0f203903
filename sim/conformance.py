"""Proof of faithfulness: the core, driven by the loop that recorded the real scheduler, must decide the same.

A recorded case holds settings, requests and, for every `schedule()` call, what vLLM decided. Not a simulation: steps
take no time here, arrivals are counted in steps. Format and loop: docs/conformance.md.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sim.core.block_hash import BlockHasher
from sim.core.config import SchedulerConfig
from sim.core.request import Request
from sim.core.scheduler import Scheduler
from sim.core.step import StepOutcome
from sim.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from sim.core.step import StepPlan

Record = dict[str, Any]

OUTPUT_CONTENT = 1_000_003
"""Output token p of the i-th request is content `OUTPUT_CONTENT + i` at position p."""
_EXPECTED_LINE = "one JSON object per line"
COMPARED = ("n", "admitted", "preempted", "free", "waiting", "finished")


@dataclass(frozen=True, slots=True)
class Difference:
    """The first step of a case in which the core decided otherwise than vLLM."""

    case: str
    step: int
    key: str
    recorded: Any
    decided: Any
    state_before: Record

    def as_dict(self) -> Record:
        """For JSON."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)
class Conformance:
    """What a comparison of many cases found."""

    cases: int = 0
    steps: int = 0
    equal: int = 0
    """Steps equal, in order, before the first difference of their case."""
    skipped: dict[str, int] = field(default_factory=dict)
    """Feature that is not built yet -> cases left out."""
    first_difference: Difference | None = None

    def add(self, case: Record, make_scheduler: Callable[[SchedulerConfig], Scheduler] = Scheduler) -> None:
        """Drive one case, or skip it by name."""
        feature = missing_feature(case["config"])
        if feature:
            self.skipped[feature] = self.skipped.get(feature, 0) + 1
            return
        difference = compare(case, make_scheduler)
        self.cases += 1
        self.steps += len(case["steps"])
        self.equal += difference.step if difference else len(case["steps"])
        self.first_difference = self.first_difference or difference

    @property
    def ok(self) -> bool:
        """Every step of every driven case is equal, and there was at least one."""
        return self.first_difference is None and self.steps > 0


def missing_feature(config: Record) -> str | None:
    """The setting of a case that this version cannot drive yet, or None."""
    if config.get("async_scheduling"):
        return "async_scheduling"
    if config.get("num_speculative_tokens"):
        return "speculative decoding"
    return None


def read_cases(path: Path) -> Iterator[Record]:
    """The cases of a JSON lines file, gzipped or not. Raises InputError with the line."""
    line_number = 0
    try:
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
            for line_number, line in enumerate(lines, start=1):
                yield _parse_case(line, path, line_number)
    except (EOFError, UnicodeDecodeError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(
            f"not a file of recorded cases: {error}", file=path, line=line_number + 1, expected=_EXPECTED_LINE
        ) from error
    if line_number == 0:
        raise InputError("no cases in this file", file=path, expected=_EXPECTED_LINE)


def _parse_case(line: str, path: Path, line_number: int) -> Record:
    try:
        case = json.loads(line)
    except ValueError as error:
        raise InputError(
            f"not a recorded case: {error}", file=path, line=line_number, expected=_EXPECTED_LINE
        ) from error
    if not isinstance(case, dict):
        raise InputError("not a recorded case", file=path, line=line_number, expected=_EXPECTED_LINE)
    missing = [key for key in ("case", "config", "requests", "steps") if key not in case]
    if missing:
        raise InputError("a key is missing", file=path, line=line_number, field=missing[0])
    return case


def compare(case: Record, make_scheduler: Callable[[SchedulerConfig], Scheduler] = Scheduler) -> Difference | None:
    """Drive one case; the first difference, or None when every step is equal."""
    driver = _Driver(case, make_scheduler)
    recorded = case["steps"]
    for index, (decided, state_before) in enumerate(driver.run()):
        if index == len(recorded):
            return Difference(case["case"], index, "steps", None, decided, state_before)
        expected = recorded[index]
        # A case that was cut has an incomplete last `finished`.
        cut = case.get("truncated", False) and index == len(recorded) - 1
        for key in COMPARED[:-1] if cut else COMPARED:
            want = expected.get(key, {} if key in ("n", "admitted") else [])
            got = decided[key]
            if want != got or (key == "n" and list(want) != list(got)):
                return Difference(case["case"], index, key, want, got, state_before)
        if index == len(recorded) - 1 and case.get("truncated", False):
            return None
    if len(driver.steps) < len(recorded):
        return Difference(case["case"], len(driver.steps), "steps", recorded[len(driver.steps)], None, driver.state())
    return None


class _Driver:
    """The recording loop, around our scheduler (depth 1: synchronous)."""

    def __init__(self, case: Record, make_scheduler: Callable[[SchedulerConfig], Scheduler]) -> None:
        config = {"enable_prefix_caching": False} | case["config"]
        known = SchedulerConfig.__dataclass_fields__
        self.scheduler = make_scheduler(SchedulerConfig(**{k: v for k, v in config.items() if k in known}))
        self.specs = case["requests"]
        self.pending = deque(range(len(self.specs)))
        self.requests: dict[int, Request] = {}
        self.index: dict[str, int] = {spec["id"]: i for i, spec in enumerate(self.specs)}
        self.abort_at = {i: spec["abort_step"] for i, spec in enumerate(self.specs) if "abort_step" in spec}
        self.stop_at = {spec["id"]: spec["stop_at"] for spec in self.specs if "stop_at" in spec}
        self.steps: list[Record] = []

    def run(self) -> Iterator[tuple[Record, Record]]:
        """Every recorded step with the state before it."""
        scheduler, idle = self.scheduler, 0
        while idle <= 3000:  # the recorder drops a case that waits for ever
            self._arrivals_and_aborts()
            if not scheduler.num_unfinished:
                if not self.pending:
                    return
                self._add_next()
                continue
            state_before = self.state()
            plan = scheduler.schedule()
            record = self._record(plan)
            record["finished"] = self._in_order(scheduler.commit(plan, self._outcome(plan)))
            if not plan.requests and not plan.preempted:
                idle += 1
                continue
            idle = 0
            self.steps.append(record)
            yield record, state_before

    def _add_next(self) -> None:
        index = self.pending.popleft()
        spec = self.specs[index]
        pieces = tuple((content_id, n) for content_id, n in spec["prompt"])
        request = Request(
            spec["id"],
            sum(n for _, n in pieces),
            spec["max_tokens"],
            BlockHasher(pieces, OUTPUT_CONTENT + index, self.scheduler.config.block_size),
            arrival_time=spec["arrival_time"],
            priority=spec["priority"],
        )
        self.requests[index] = request
        self.scheduler.add_request(request)

    def _arrivals_and_aborts(self) -> None:
        now = len(self.steps)
        while self.pending and self.specs[self.pending[0]]["arrival_step"] <= now:
            self._add_next()
        for index, step in self.abort_at.items():
            if step <= now and index in self.requests:
                self.scheduler.abort(self.requests[index])

    def _outcome(self, plan: StepPlan) -> StepOutcome:
        sampled = [1] * len(plan.requests)
        for position in plan.partial:
            sampled[position] = 0
        stopped = frozenset(
            position
            for position, request in enumerate(plan.requests)
            if sampled[position] and self.stop_at.get(request.request_id) == request.num_output_tokens
        )
        return StepOutcome(sampled, stopped)

    def _record(self, plan: StepPlan) -> Record:
        return {
            "n": {r.request_id: n for r, n in zip(plan.requests, plan.num_scheduled_tokens, strict=True)},
            "admitted": {r.request_id: hit for r, hit in plan.admitted},
            "preempted": self._in_order(plan.preempted),
            "free": plan.num_free_blocks,
            "waiting": [r.request_id for r in self.scheduler.waiting],
        }

    def _in_order(self, requests: Iterable[Request]) -> list[str]:
        return sorted((r.request_id for r in requests), key=self.index.__getitem__)

    def state(self) -> Record:
        """Where everybody is, for the report of a difference."""
        return {
            "running": [
                {
                    "id": r.request_id,
                    "computed": r.num_computed_tokens,
                    "known": r.num_tokens,
                    "blocks": len(r.blocks),
                }
                for r in self.scheduler.running
            ],
            "waiting": [r.request_id for r in self.scheduler.waiting],
            "free": self.scheduler.kv_cache_manager.num_free_blocks,
        }
