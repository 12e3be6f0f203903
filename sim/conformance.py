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
from typing import TYPE_CHECKING, Any, get_args

from sim.core.block_hash import BlockHasher
from sim.core.config import SchedulerConfig, SpecMethod
from sim.core.make import make_scheduler
from sim.core.request import Request
from sim.core.step import StepOutcome
from sim.errors import InputError
from sim.input_file import read_lines
from sim.json_file import NOT_JSON

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from sim.core.scheduler import Scheduler
    from sim.core.step import StepPlan

    MakeScheduler = Callable[[SchedulerConfig], Scheduler]
    Found = tuple[int, str, Any, Any]
    """Step, key, what was recorded, what was decided."""

Record = dict[str, Any]
Parts = dict[str, type | tuple[type, ...]]
"""Key -> what kind of value it has."""

OUTPUT_CONTENT = 1_000_003
"""Output token p of the i-th request is content `OUTPUT_CONTENT + i` at position p."""
_EXPECTED_LINE = "one JSON object per line"
_NOBODY: Record = {
    "n": {},
    "admitted": {},
    "drafts": {},
    "preempted": [],
    "free": None,
    "waiting": [],
    "loads": {},
    "stores": {},
}
"""What an absent key of a recorded step stands for."""
_PATIENCE = 3000
"""schedule() calls in a row that decide nothing, after which a case counts as waiting for ever."""


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
    """Setting that this version does not know -> cases left out."""
    first_difference: Difference | None = None

    def add(self, case: Record, make_scheduler: MakeScheduler = make_scheduler) -> None:
        """Drive one case, or skip it by name."""
        feature = unknown_setting(case["config"])
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


def unknown_setting(config: Record) -> str | None:
    """A setting of a case that this version cannot drive, or None."""
    known = SchedulerConfig.__dataclass_fields__
    method = config.get("spec_method", "ngram")
    return (
        f"spec_method {method}"
        if method not in get_args(SpecMethod)
        else next((k for k in config if k not in known), None)
    )


def read_cases(path: Path) -> Iterator[Record]:
    """The cases of a JSON lines file, gzipped or not. Raises InputError with the line."""
    line_number = 0
    try:
        for line_number, line in enumerate(read_lines(path), start=1):
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
    except NOT_JSON as error:
        raise InputError(
            f"not a recorded case: {error}", file=path, line=line_number, expected=_EXPECTED_LINE
        ) from error
    if not isinstance(case, dict):
        raise InputError("not a recorded case", file=path, line=line_number, expected=_EXPECTED_LINE)
    try:
        _require_parts(case, _PARTS)
        for part, parts in (("requests", _REQUEST_PARTS), ("steps", _STEP_PARTS)):
            for entry in case[part]:
                _require_parts(entry, parts, f"{part}: ")
        for request in case["requests"]:
            _require_parts(request, {name: int for name in _REQUEST_CHOICES if name in request}, "requests: ")
            if not all(isinstance(piece, list) and [*map(type, piece)] == [int, int] for piece in request["prompt"]):
                raise InputError(
                    field="requests: prompt", value=request["prompt"], expected="pairs [content id, tokens]"
                )
        if unknown_setting(case["config"]) is None:
            _config(case)
    except InputError as error:
        raise InputError(
            error.message, file=path, line=line_number, field=error.field, value=error.value, expected=error.expected
        ) from None
    return case


_PARTS: Parts = {"case": str, "config": dict, "requests": list, "steps": list}
_REQUEST_PARTS: Parts = {
    "id": str, "arrival_step": int, "arrival_time": (int, float), "prompt": list, "max_tokens": int, "priority": int,
}  # fmt: skip
_REQUEST_CHOICES = ("abort_step", "stop_at")
_STEP_PARTS: Parts = {"finished": list}


def _require_parts(entry: object, parts: Parts, at: str = "") -> None:
    """Raise InputError for the first part that an entry lacks, or that is of another kind."""
    if not isinstance(entry, dict):
        raise InputError(value=entry, expected=f"{at}an object")
    for name, kind in parts.items():
        if name not in entry:
            raise InputError("a key is missing", field=f"{at}{name}")
        if not isinstance(entry[name], kind):
            raise InputError("not what is recorded there", field=f"{at}{name}", value=entry[name])


def _config(case: Record) -> SchedulerConfig:
    try:
        return SchedulerConfig(**({"enable_prefix_caching": False} | case["config"]))
    except TypeError:
        raise InputError("not the settings of a scheduler", field="config", value=case["config"]) from None


def compare(case: Record, make_scheduler: MakeScheduler = make_scheduler) -> Difference | None:
    """Drive one case; the first difference, or None when every step is equal."""
    found = _Driver(case, make_scheduler).run()
    if found is None:
        return None
    step, key, recorded, decided = found
    state_before = _Driver(case, make_scheduler).state_before(step)
    return Difference(case["case"], step, key, recorded, decided, state_before)


class _Driver:
    """The recording loop, around our scheduler, with a look at the record after every move."""

    def __init__(self, case: Record, make_scheduler: MakeScheduler) -> None:
        self.config = _config(case)
        self.scheduler = make_scheduler(self.config)
        self.recorded: list[Record] = case["steps"]
        self.truncated = bool(case.get("truncated", False))
        self.specs = case["requests"]
        self.pending = deque(range(len(self.specs)))
        self.requests: dict[int, Request] = {}
        self.index: dict[str, int] = {spec["id"]: i for i, spec in enumerate(self.specs)}
        self.abort_at = {i: spec["abort_step"] for i, spec in enumerate(self.specs) if "abort_step" in spec}
        self.produced = [0] * len(self.specs)
        """Output tokens that the made-up model has yielded, trimmed ones included."""
        self.steps = 0
        self.in_flight: deque[tuple[int | None, StepPlan]] = deque()
        """Plans whose output is not processed, with the step that they were recorded as."""
        self.open: dict[int, int] = {}
        """Transfer to or from host memory -> answers until the one that reports it."""
        self.unreported = False
        """Somebody left since the last schedule() call: vLLM calls it once more to report that."""

    def run(self) -> Found | None:
        """Drive the case to its end or to the first difference."""
        depth = 2 if self.config.async_scheduling else 1
        idle = 0
        while idle <= _PATIENCE:
            if not self._arrivals_and_aborts():
                break
            if self.scheduler.num_unfinished or self.unreported or self.open:
                if self.steps == len(self.recorded) and self.truncated:
                    return None
                step, found = self._schedule()
                if found:
                    return found
                idle = 0 if step is not None else idle + 1
                plan = self.in_flight[-1][1]
                if len(self.in_flight) < depth and (plan.requests or self.scheduler.num_unfinished or self.open):
                    continue
            if self.in_flight:
                found = self._process(*self.in_flight.popleft())
                if found:
                    return found
        if self.steps < len(self.recorded):
            return self.steps, "steps", self.recorded[self.steps], None
        return None

    def state_before(self, step: int) -> Record:
        """Where everybody is right before the schedule() call that is recorded as `step`."""
        self.recorded = self.recorded[:step]
        self.truncated = True
        self.run()
        self.scheduler.cohort.settle()
        return {
            "running": [
                {"id": r.request_id, "computed": r.num_computed_tokens, "known": r.num_tokens, "blocks": r.num_blocks}
                for r in self.scheduler.running
            ],
            "waiting": [r.request_id for r in self.scheduler.waiting],
            "free": self.scheduler.kv_cache_manager.block_pool.num_free_blocks,
        }

    def _arrivals_and_aborts(self) -> bool:
        """What clients do before the next move; False when nothing is left to do."""
        while self.pending and self.specs[self.pending[0]]["arrival_step"] <= self.steps:
            self._add_next()
        for index, step in self.abort_at.items():
            request = self.requests.get(index)
            if step <= self.steps and request is not None and not request.is_finished:
                self.scheduler.abort(request)
                self.unreported = True
        if not self.scheduler.num_unfinished and not self.in_flight:
            if not self.pending:
                return False
            self._add_next()
        return True

    def _add_next(self) -> None:
        index = self.pending.popleft()
        spec = self.specs[index]
        pieces = tuple((content_id, n) for content_id, n in spec["prompt"])
        request = Request(
            spec["id"],
            sum(n for _, n in pieces),
            spec["max_tokens"],
            BlockHasher(pieces, OUTPUT_CONTENT + index, self.config.block_size),
            arrival_time=spec["arrival_time"],
            priority=spec["priority"],
        )
        self.requests[index] = request
        self.scheduler.add_request(request)

    def _schedule(self) -> tuple[int | None, Found | None]:
        """One schedule() call; the step that it is recorded as (None: nothing was decided), and a difference."""
        plan = self.scheduler.schedule()
        self.unreported = False
        transfers = {load.number: load.num_blocks for load in (*plan.loads, *plan.stores)}
        self.open |= {number: _draw("transfer", number, 0) % 5 for number in transfers}
        if not plan.requests and not plan.preempted and not transfers:
            self.in_flight.append((None, plan))
            return None, None
        step = self.steps
        self.in_flight.append((step, plan))
        decided: Record = {
            "n": {r.request_id: n for r, n in zip(plan.requests, plan.num_scheduled_tokens, strict=True)},
            "admitted": {r.request_id: hit for r, hit in plan.admitted},
            "drafts": {plan.requests[i].request_id: n for i, n in plan.num_drafts.items()},
            "preempted": self._in_order(plan.preempted),
            "free": plan.num_free_blocks,
            "waiting": [r.request_id for r in self.scheduler.waiting],
            "loads": {str(load.number): load.num_blocks for load in plan.loads},
            "stores": {str(store.number): store.num_blocks for store in plan.stores},
        }
        if step == len(self.recorded):
            return step, (step, "steps", None, decided)
        self.steps += 1
        for key, got in decided.items():
            want = self.recorded[step].get(key, _NOBODY[key])
            if want != got or (key == "n" and list(want) != list(got)):
                return step, (step, key, want, got)
        return step, None

    def _process(self, step: int | None, plan: StepPlan) -> Found | None:
        """Hand the made-up model's output to the scheduler; a difference in who finished."""
        finished = self._in_order(self.scheduler.commit(plan, self._outcome(plan)))
        self.unreported |= bool(finished)
        self._transfers_over()
        # A case that was cut has an incomplete last `finished`.
        if step is None or (self.truncated and step == len(self.recorded) - 1):
            return None
        want = self.recorded[step]["finished"]
        return None if want == finished else (step, "finished", want, finished)

    def _transfers_over(self) -> None:
        """The recorder's made-up worker: how long a transfer takes depends on its number."""
        for number in [number for number, answers in self.open.items() if not answers]:
            self.scheduler.transfer_done(number)
        self.open = {number: answers - 1 for number, answers in self.open.items() if answers}

    def _outcome(self, plan: StepPlan) -> StepOutcome:
        """What the recorder's made-up model samples, accepts and drafts."""
        partial = set(plan.partial)
        sampled, stopped = [], {}
        indices = [self.index[request.request_id] for request in plan.requests]
        for position, index in enumerate(indices):
            if position in partial:
                sampled.append(0)
                continue
            drafts = plan.num_drafts.get(position, 0)
            n = 1 + _draw("accept", index, self.produced[index]) % (drafts + 1)
            stop_at = self.specs[index].get("stop_at", -1) - self.produced[index]
            if 0 <= stop_at < n:
                stopped[position] = stop_at + 1
            sampled.append(n)
            self.produced[index] += n
        num_speculative = self.config.num_speculative_tokens
        drafts_next = None
        if num_speculative and not self.config.async_scheduling:
            drafts_next = [_draw("draft", index, self.produced[index]) % (num_speculative + 1) for index in indices]
        return StepOutcome(sampled, stopped, drafts_next)

    def _in_order(self, requests: Iterable[Request]) -> list[str]:
        return sorted((r.request_id for r in requests), key=self.index.__getitem__)


def _draw(*key: object) -> int:
    """A number that depends on nothing but the key."""
    return zlib.crc32("/".join(map(str, key)).encode())
