"""A finished run as `explain` looks at it: tables as arrays, settings as numbers, and the door that checks them.

Not for drawing conclusions. The one idea: whatever cannot be explained is refused here, in one line.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from sim import __version__
from sim.core.config import SchedulerConfig
from sim.core.step import Limit
from sim.errors import InputError
from sim.report.insight import held_at_client, kv_usage
from sim.report.tables import REQUESTS_FILE, STEPS_FILE, read_frames

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from sim.report.frames import Frames

RESULT_FILE = "result.json"
_REQUEST_COLUMNS = {
    "request_id", "arrival_s", "send_s", "queued_s", "scheduled_s", "first_token_s", "finish_s", "prompt_tokens",
    "output_tokens", "preemptions", "recomputed_tokens", "status", "error",
}  # fmt: skip
_STEP_COLUMNS = {
    "start_s", "end_s", "num_tokens", "num_seqs", "prefill_tokens", "decodes", "running", "waiting", "free_blocks",
    "preempted", "chunk_row", "chunk_tokens", "chunk_context", "chunk_pairs", "extrapolated", "limit",
}  # fmt: skip


@dataclass(frozen=True)
class Run:
    """Frames of a run that ended, with at least one step."""

    frames: Frames
    config: SchedulerConfig

    def column(self, name: str) -> NDArray[Any]:
        """A column of the steps."""
        return np.asarray(self.frames.steps[name].to_numpy())

    def requests(self, name: str) -> NDArray[Any]:
        """A column of the requests."""
        return np.asarray(self.frames.requests[name].to_numpy())

    @cached_property
    def step_s(self) -> NDArray[np.float64]:
        """What each step took on the device."""
        return np.asarray(self.column("end_s") - self.column("start_s"), dtype=np.float64)

    @cached_property
    def span_s(self) -> float:
        """From the first step's start to the last one's end."""
        return float(self.column("end_s").max() - self.column("start_s").min())

    @cached_property
    def limit(self) -> NDArray[np.str_]:
        """What ended admission in each step."""
        return np.asarray(self.frames.steps["limit"].astype(str).to_numpy(dtype=str))

    @cached_property
    def at_client(self) -> NDArray[np.int64]:
        """Requests that the client's cap held back at each step's start."""
        if self.max_concurrency is None:
            return np.zeros(len(self.step_s), dtype=np.int64)
        return held_at_client(self.frames)

    @cached_property
    def kv_usage(self) -> NDArray[np.float64]:
        """Share of the blocks in use."""
        return kv_usage(self.frames)

    @property
    def max_concurrency(self) -> int | None:
        """The client's cap."""
        cap = self.frames.meta.get("max_concurrency")
        return cap if isinstance(cap, int) else None

    def share(self, steps: NDArray[np.bool_]) -> float:
        """Of the run's time, what some steps took."""
        return float(self.step_s[steps].sum()) / self.span_s if self.span_s > 0 else 0.0

    def mean(self, name: str, steps: NDArray[np.bool_]) -> float:
        """A column's mean over some steps' time; 0 of none."""
        weights = self.step_s[steps]
        return float(np.average(self.column(name)[steps], weights=weights)) if weights.sum() > 0 else 0.0


def of_frames(frames: Frames, *, told: str = "this run") -> Run:
    """Check frames and their settings. Raises InputError for what cannot be explained."""
    meta, requests = frames.meta, frames.requests
    version = str(meta.get("elpase_version"))
    if version.split(".")[:2] != __version__.split(".")[:2]:
        raise InputError(f"{told}: made by elpase {version}, this is {__version__}: replay it again")
    for name, table, columns in (("requests", requests, _REQUEST_COLUMNS), ("steps", frames.steps, _STEP_COLUMNS)):
        missing = sorted(columns - set(table.columns))
        if missing:
            raise InputError(f"{told}: {name} have no {missing[0]}: another version's run, replay it again")
    unknown = set(frames.steps["limit"].astype(str)) - {limit.value for limit in Limit}
    if unknown:
        raise InputError(f"{told}: limit: got {min(unknown)!r}, expected one of {', '.join(x.value for x in Limit)}")
    if meta.get("partial"):
        raise InputError(f"{told}: was cut short (partial), so its end would look like a cause: replay it to the end")
    if not len(requests):
        raise InputError(f"{told}: there are no requests to explain")
    if not len(frames.steps):
        why = next(iter(requests["error"][requests["error"].astype(str) != ""]), "none was sent")
        raise InputError(f"{told}: no step was run: {why}")
    return Run(frames, _config(meta.get("config"), told))


def of_folder(folder: Path) -> Run:
    """What `elpase replay --out` wrote. Raises InputError; OSError for what cannot be read."""
    if not folder.is_dir():
        found = "is a file" if folder.exists() else "there is no such folder"
        raise InputError(f"{folder}: {found}: explain takes the folder of a run, as elpase replay --out writes it")
    for name in (RESULT_FILE, REQUESTS_FILE, STEPS_FILE):
        if not (folder / name).is_file():
            raise InputError(f"{folder}: has no {name}: is it what elpase replay --out wrote?")
    said = _result(folder / RESULT_FILE)
    run = of_frames(read_frames(folder), told=str(folder))
    if said.get("num_prompts") != len(run.frames.requests):
        raise InputError(
            f"{folder}: {RESULT_FILE} is of {said.get('num_prompts')} requests, {REQUESTS_FILE} of"
            f" {len(run.frames.requests)}: they are of different runs"
        )
    return run


def _result(path: Path) -> dict[str, Any]:
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise InputError(file=path, expected="the JSON of a run") from None
    if not isinstance(said, dict) or not isinstance(said.get("sim"), dict):
        raise InputError(file=path, field="sim", expected="what elpase replay says of the server's inside")
    return said


def _config(said: object, told: str) -> SchedulerConfig:
    if not isinstance(said, dict):
        raise InputError(f"{told}: does not say its config: replay it again with this version")
    try:
        return SchedulerConfig(**said)
    except TypeError:
        raise InputError(f"{told}: its config is of another version: replay it again with this one") from None
