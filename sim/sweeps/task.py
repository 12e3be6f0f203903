"""One run of a sweep: all that it depends on, the key that this gives it, and its small result.

Not for what is swept nor for where it runs. The one idea: a task carries everything (the profile itself, the workload
in names and numbers), so any process can run it, and its key is the hash of what it carries: equal key, equal result.
"""

from __future__ import annotations

import hashlib
import json
import math
import signal
import threading
import traceback
import warnings
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim import __version__
from sim.errors import one_line
from sim.experiment import VLLM_SEMANTICS, settle, simulate
from sim.input_file import input_file
from sim.report.explain.knobs import knobs
from sim.report.explain.run import of_frames
from sim.report.summary import SummaryOptions, summarize
from sim.report.window import summarize_window
from sim.sweeps.code import code_digest
from sim.workload import FILE, kind_of, open_from, remarks, traffic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sim.config import EngineConfig
    from sim.engine.pricing import OutsidePolicy
    from sim.experiment import Result
    from sim.latency.profile import Profile

PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9)
METRICS = ("ttft", "tpot", "itl", "e2el")


@dataclass(frozen=True, slots=True)
class Measure:
    """What is measured of a run: bounds in ms for goodput, and seconds left out at both ends."""

    goodput_slo_ms: Mapping[str, float] = field(default_factory=dict)
    warmup_s: float = 0.0
    cooldown_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Task:
    """One run. `workload`: every flag of `sim.workload`, its `trace` as this machine finds it."""

    engine: EngineConfig
    workload: Mapping[str, Any]
    profile: Profile
    measure: Measure
    outside: OutsidePolicy
    key: str

    @classmethod
    def of(
        cls,
        engine: EngineConfig,
        workload: Mapping[str, Any],
        profile: Profile,
        measure: Measure,
        outside: OutsidePolicy = "warn",
    ) -> Task:
        """A task with its key. Raises InputError or TraceError for what cannot run at all."""
        config = settle(engine, profile)
        open_from(workload, config.max_model_len)
        said = {f.name: getattr(engine, f.name) for f in fields(engine) if getattr(engine, f.name) is not None}
        depends_on = {
            "elpase": __version__,
            "code": code_digest(),
            "vllm": VLLM_SEMANTICS,
            "config": asdict(config),
            "flags": said,
            "workload": {**workload, "trace": traffic(workload)["trace"]},
            "trace": _content(workload["trace"]),
            "profile": _digest(profile.to_json().encode()),
            "measure": asdict(measure),
            "outside": outside,
        }
        key = _digest(json.dumps(depends_on, sort_keys=True).encode())[:32]
        return cls(engine, workload, profile, measure, outside, key)


def run(task: Task) -> str:
    """The result as JSON text: `summary` (without lists per request) and `notes`, or `error`. The text is the result:
    what is kept on disk, sent by another machine or made here is the same, bit for bit.

    Whatever goes wrong is a result, too, but for Ctrl-C, which raises KeyboardInterrupt.
    """
    try:
        return json.dumps(_measured(task))
    except (ValueError, OSError) as error:
        return json.dumps({"error": one_line(str(error))})
    except Exception as error:  # a bug must not cost the other runs; its place is told
        where = traceback.extract_tb(error.__traceback__)[-1]
        told = f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno}), a bug of elpase's"
        return json.dumps({"error": one_line(told)})


def run_in_worker(task: Task) -> str:
    """`run` in a process of a pool: Ctrl-C is for the process that started it."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return run(task)


def _measured(task: Task) -> dict[str, object]:
    with _noted() as notes:
        config = settle(task.engine, task.profile)
        trace = open_from(task.workload, config.max_model_len)
        result = simulate(
            trace,
            task.engine,
            task.profile,
            max_in_flight=task.workload["max_concurrency"],
            seed=task.workload["seed"],
            outside=task.outside,
            meta=traffic(task.workload),
        )
    if result.frames.meta["partial"]:
        raise KeyboardInterrupt
    return {
        "summary": {**_summary(result, task.measure), "binding": _binding(result)},
        "notes": [*notes, *remarks(trace, config)],
    }


def _binding(result: Result) -> list[str]:
    """The settings that were at work in the run, by `explain`'s names for them."""
    if result.steps.empty:
        return []
    return [knob.name for knob in knobs(of_frames(result.frames)) if knob.binding]


def _summary(result: Result, measure: Measure) -> dict[str, object]:
    options = SummaryOptions(METRICS, PERCENTILES, measure.goodput_slo_ms)
    if measure.warmup_s or measure.cooldown_s:
        summary = summarize_window(result.frames, options, measure.warmup_s, measure.cooldown_s)
    else:
        summary = summarize(result.frames, options, detailed=False)
    return {**summary, "pace": _pace(result)}


def _pace(result: Result) -> dict[str, float | None]:
    """How fast requests came, and whether the server took them in as fast.

    `offered_rps`: requests over the time until the last one came. `kept_up`: that time over the time until the last one
    was first scheduled; 1 where no backlog was left. None where all come at once.
    """
    table = result.requests
    last_s = float(table["arrival_s"].max())
    if not last_s > 0.0:
        return {"offered_rps": None, "kept_up": None}
    taken_s = float(table["scheduled_s"].max())
    return {
        "offered_rps": len(table) / last_s,
        "kept_up": 1.0 if math.isnan(taken_s) else last_s / max(last_s, taken_s),
    }


@contextmanager
def _noted() -> Iterator[list[str]]:
    """Yields a list that has the block's warnings, each once, when it is over."""
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield notes
    notes += dict.fromkeys(one_line(str(warning.message)) for warning in caught)


def _content(trace: str) -> str | None:
    """The hash of a file's content; None for what is drawn: its flags and the code say all of it."""
    if kind_of(trace) != FILE:
        return None
    stat = input_file(trace).stat()
    return _file_digest(trace, stat.st_mtime_ns, stat.st_size)


@cache
def _file_digest(path: str, _mtime_ns: int, _size: int) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
