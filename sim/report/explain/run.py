"""A finished run as `explain` looks at it: tables as arrays, settings as numbers, and the door that checks them.

Not for drawing conclusions. The one idea: whatever cannot be explained is refused here, in one line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from sim.core.config import SchedulerConfig
from sim.drafters import NO_DRAFTER, DrafterSize
from sim.errors import InputError
from sim.latency.fields import Fields
from sim.latency.graph_flags import graphs_of
from sim.report.finished import read_finished, require_this_version
from sim.report.insight import held_at_client, kv_usage
from sim.report.step_rows import LIMITS
from sim.report.tables import REQUESTS_FILE

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from sim.latency.graphs import Graphs
    from sim.report.frames import Frames


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
    def server(self) -> Mapping[str, Any]:
        """What the run says of its server; nothing where it was given a scheduler's numbers alone."""
        said = self.frames.meta.get("server")
        return said if isinstance(said, Mapping) else {}

    @property
    def acceptance_rates(self) -> tuple[float, ...]:
        """Of drafts, as they were said; nothing where nobody drafts."""
        speculation = self.server.get("speculation")
        return tuple(speculation["acceptance_rates"]) if speculation else ()

    @property
    def drafter(self) -> DrafterSize:
        """Who drafts."""
        speculation = self.server.get("speculation")
        return DrafterSize(**speculation["drafter"]) if speculation else NO_DRAFTER

    def graphs(self, num_drafts: int) -> Graphs | None:
        """The server's CUDA graphs, for decodes with so many drafts; None where the run does not name them."""
        mode, sizes = (self.server.get(f"cudagraph_{name}") for name in ("mode", "capture_sizes"))
        if not isinstance(mode, str) or not isinstance(sizes, list):
            return None
        return graphs_of(mode, tuple(sizes), 1 + num_drafts, self.config.max_num_seqs)

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
    require_this_version(frames, told)
    unknown = set(frames.steps["limit"].astype(str)) - set(LIMITS)
    if unknown:
        raise InputError(f"{told}: limit: got {min(unknown)!r}, expected one of {', '.join(LIMITS)}")
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
    frames = read_finished(folder).frames
    Fields(folder / REQUESTS_FILE, frames.meta).object("config")
    return of_frames(frames, told=str(folder))


def _config(said: object, told: str) -> SchedulerConfig:
    if not isinstance(said, dict):
        raise InputError(f"{told}: does not say its config: replay it again with this version")
    try:
        return SchedulerConfig(**said)
    except TypeError:
        raise InputError(f"{told}: its config is of another version: replay it again with this one") from None
