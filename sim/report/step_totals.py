"""What is told of all steps together: counts, peaks, and how near to its capacity the run was.

Not for a step by itself (`step_rows`). The one idea: blocks of steps are added up one after the other, so that the sums
are the same, to the last bit, whether the steps are kept or forgotten.
"""

from __future__ import annotations

from math import nan
from typing import TYPE_CHECKING, Any

import numpy as np

from sim.report.step_rows import BLOCK_STEPS, LIMITS, MODES, StepBlock

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pandas as pd
    from numpy.typing import NDArray

SUMS = (
    "num_seqs", "num_tokens", "extrapolated", "num_paddings", "preempted", "swapped", "blocks_out", "blocks_in",
    "host_queries",
)  # fmt: skip
PEAKS = ("running", "waiting", "host_blocks")
_LOAD = ("start_s", "end_s", "waiting", "limit")


class StepTotals:
    """Of the steps added so far."""

    def __init__(self) -> None:
        self.steps = 0
        self.start_s, self.end_s = nan, nan
        """Of the first and of the last one."""
        self.copy_s = 0.0
        self.sums = dict.fromkeys(SUMS, 0)
        self.peaks = dict.fromkeys(PEAKS, 0)
        self.least_free_blocks: int | None = None
        self.modes = dict.fromkeys(MODES, 0)
        self.load = LoadTotals()

    @classmethod
    def of(cls, steps: pd.DataFrame, at_client: NDArray[np.int64]) -> StepTotals:
        """Of the table `Frames.steps`; see `LoadTotals.add`."""
        totals = cls()
        columns = _columns(steps)
        for at in range(0, len(steps), BLOCK_STEPS):
            part = {name: values[at : at + BLOCK_STEPS] for name, values in columns.items()}
            totals.add(StepBlock(part, np.ones(len(part["end_s"]), dtype=np.int64), own=part))
            totals.load.add(part, at_client[at : at + BLOCK_STEPS])
        return totals

    def add(self, block: StepBlock) -> None:
        """The next steps (of a run that knew nothing of some column: without that); not yet their load."""
        ends_s = block["end_s"]
        if not self.steps:
            self.start_s = float(block["start_s"][0])
        self.end_s = float(ends_s[-1])
        self.steps += len(ends_s)
        for name in self.sums:
            if name in block:
                self.sums[name] += block.sum(name)
        for name in self.peaks:
            if name in block:
                self.peaks[name] = max(self.peaks[name], block.max(name))
        if "copy_s" in block:
            self.copy_s += float(block["copy_s"].sum())
        if "runtime_mode" in block:
            for mode, count in zip(MODES, block.occurrences("runtime_mode", len(MODES)), strict=True):
                self.modes[mode] += count
        least = int(block["free_blocks"].min())
        self.least_free_blocks = least if self.least_free_blocks is None else min(least, self.least_free_blocks)

    @property
    def span_s(self) -> float:
        """From the first step's start to the last one's end."""
        return self.end_s - self.start_s if self.steps else 0.0


class LoadTotals:
    """Seconds of steps: all, those in which somebody waited, and by what; and requests waiting, times seconds."""

    def __init__(self) -> None:
        self.busy_s = self.held_s = self.queue_s = self.client_s = 0.0
        self.limit_s = dict.fromkeys(LIMITS, 0.0)

    def add(self, rows: Mapping[str, NDArray[Any]], at_client: NDArray[np.int64]) -> None:
        """The next steps, and how many requests the client's own cap held back when each started."""
        step_s, at_server = rows["end_s"] - rows["start_s"], rows["waiting"]
        queue = at_client + at_server
        self.busy_s += float(step_s.sum())
        self.held_s += float(step_s[queue > 0].sum())
        self.queue_s += float((queue * step_s).sum())
        self.client_s += float(step_s[at_client > 0].sum())
        is_waiting = at_server > 0
        waited_s, limits = step_s[is_waiting], rows["limit"][is_waiting]
        for code, name in enumerate(LIMITS):
            self.limit_s[name] += float(waited_s[limits == code].sum())


def load_columns(steps: StepBlock) -> dict[str, NDArray[Any]]:
    """What `LoadTotals.add` reads of steps, for later."""
    return {name: steps[name] for name in _LOAD}


def _columns(steps: pd.DataFrame) -> dict[str, NDArray[Any]]:
    import pandas as pd

    def items() -> Iterator[tuple[str, NDArray[Any]]]:
        for name in ("start_s", "end_s", "free_blocks", "copy_s", *SUMS, *PEAKS):
            if name in steps:
                yield name, steps[name].to_numpy()
        for name, values in (("limit", LIMITS), ("runtime_mode", MODES)):
            if name in steps:
                yield name, np.asarray(pd.Categorical(steps[name], categories=values).codes)

    return dict(items())
