"""Step cycles of a server with what was in each batch, as CSV: priced one by one, nothing is replayed.

Not for `step_duration_us`, which is not GPU time. The one idea: a cycle goes from one step's start to the next one's,
so it is host and device one after the other, or whichever takes longer under async scheduling.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from sim.errors import InputError
from sim.input_file import TABLE_BYTES, input_file
from sim.latency.shape import StepShape

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from calibrate.samples import Column
    from sim.latency.profile import Profile

_COLUMNS = (
    "experiment_id", "model", "tp", "batch_num_prefill_reqs", "batch_prefill_tokens", "batch_num_decode_reqs",
    "kv_used_tokens", "cycle_us",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class StepCycles:
    """The cycles of one experiment."""

    name: str
    model: str
    tensor_parallel_size: int
    shapes: list[StepShape]
    seconds: Column

    def real(self) -> dict[str, float]:
        """Cycles in seconds."""
        return _figures(self.seconds)

    def priced(self, profile: Profile, *, async_scheduling: bool) -> Column:
        """Seconds of every cycle by a profile."""
        times = [profile.step_time(shape) for shape in self.shapes]
        return np.array([max(t.host_s, t.device_s) if async_scheduling else t.host_s + t.device_s for t in times])

    def simulated(self, priced: Column) -> dict[str, float]:
        """The same figures of priced cycles."""
        return _figures(priced)

    def step_errors(self, priced: Column) -> dict[str, float]:
        """How far single steps are off, as fractions of the measured cycle."""
        errors = priced / self.seconds - 1.0
        return {
            "step_median_abs": float(np.median(np.abs(errors))),
            "step_p90_abs": float(np.quantile(np.abs(errors), 0.9)),
            "step_median": float(np.median(errors)),
        }


def _figures(seconds: Column) -> dict[str, float]:
    p50, p99 = np.quantile(seconds, [0.5, 0.99])
    return {"cycle_mean": float(seconds.mean()), "cycle_p50": float(p50), "cycle_p99": float(p99)}


def read_cycles(path: str | os.PathLike[str]) -> Iterator[StepCycles]:
    """The experiments of a file. Raises InputError naming line and column."""
    try:
        table = pd.read_csv(input_file(path, TABLE_BYTES))
    except (pd.errors.ParserError, UnicodeDecodeError) as error:
        raise InputError(f"not a CSV file: {error}", file=path) from None
    for column in _COLUMNS:
        if column not in table:
            raise InputError("missing column", file=path, line=1, field=column)
    for column in _COLUMNS[2:]:
        values = pd.to_numeric(table[column], errors="coerce")
        low = 1 if column in ("tp", "cycle_us") else 0
        bad = np.flatnonzero(~(values >= low).to_numpy())
        if bad.size:
            row = int(bad[0])
            value, expected = str(table[column].iloc[row]), f"a number >= {low}"
            raise InputError(file=path, line=row + 2, field=column, value=value, expected=expected)
    for _, rows in table.groupby(["experiment_id", "model", "tp"], sort=False):
        busy = rows[rows["batch_num_prefill_reqs"] + rows["batch_num_decode_reqs"] > 0]
        columns = (busy[c].to_numpy(int).tolist() for c in _COLUMNS[3:7])
        shapes = [_shape(*row) for row in zip(*columns, strict=True)]
        name, model, tp = rows[["experiment_id", "model", "tp"]].iloc[0]
        yield StepCycles(str(name), str(model), int(tp), shapes, busy["cycle_us"].to_numpy(float) / 1e6)


def _shape(prompts: int, prompt_tokens: int, decodes: int, kv_tokens: int) -> StepShape:
    """A step whose sequences all have the same context: the file says how much of the cache is used, not by whom.

    A prompt of which one token is left (the rest was in the prefix cache) is computed as a decode row is.
    """
    if prompt_tokens <= prompts:
        prompts, prompt_tokens, decodes = 0, 0, decodes + prompts
    seqs = prompts + decodes
    context = kv_tokens / seqs
    per_prompt = prompt_tokens / max(prompts, 1)
    before = max(0.0, context - per_prompt)
    pairs = prompt_tokens * (before + per_prompt / 2)
    return StepShape(prompt_tokens + decodes, seqs, round(decodes * context), prompt_tokens, pairs, seqs)
