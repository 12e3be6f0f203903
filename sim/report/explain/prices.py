"""What steps would take if they held something else, by the profile that the run was priced with.

Not for simulating: only steps that were there are priced again, one change at a time. The one idea: a step's context is
not in the tables, but it is what a step took beyond the law's price without context, so differences need none.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from sim.latency.shape import StepShape

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sim.latency.profile import Profile
    from sim.report.explain.run import Run

_AT_MOST = 1_000
"""Steps that are priced again: evenly spread ones where there are more."""
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Prices:
    """A run and the profile that priced it."""

    run: Run
    profile: Profile

    def explains(self) -> bool:
        """Whether this profile can have priced the run: no step was quicker than the law without any context."""
        rows = self._spread(~self.run.column("extrapolated").astype(bool))
        return bool(np.all(self._context_s(rows) >= -_ROUNDING))

    @cached_property
    def pairs_per_token(self) -> float:
        """Query-key pairs of a prompt token, averaged: cutting prompts into chunks does not change it."""
        tokens = float(self.run.column("prefill_tokens").sum())
        return float(self.run.column("chunk_pairs").sum()) / tokens if tokens else 0.0

    def with_prompts(self, row: int, prompt_tokens: int, pairs: float | None = None) -> float:
        """Seconds of a step that keeps its decodes and has so many prompt tokens instead."""
        decodes = int(self.run.column("decodes")[row])
        pairs = self.pairs_per_token * prompt_tokens if pairs is None else pairs
        seqs = decodes + (1 if prompt_tokens else 0)
        bare = StepShape(decodes + prompt_tokens, seqs, 0, prompt_tokens, pairs, seqs)
        return self.profile.step_time(bare).device_s + float(self._context_s(np.array([row]))[0])

    def throughput_gain(self, steps: NDArray[np.bool_], factor: float) -> float:
        """Throughput, relative to the run's, if `factor` times as many requests took part in these steps."""
        rows = self._spread(steps)
        if not len(rows):
            return 1.0
        before_s = float(self.run.step_s[rows].sum())
        after_s = float((self._bare_s(rows, factor) + factor * self._context_s(rows)).sum())
        return factor * before_s / after_s

    def _context_s(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.asarray(self.run.step_s[rows] - self._bare_s(rows, 1.0), dtype=np.float64)

    def _bare_s(self, rows: NDArray[np.int64], factor: float) -> NDArray[np.float64]:
        """The law's price of steps without their decodes' context, with `factor` times as much in each."""
        names = ("num_tokens", "num_seqs", "prefill_tokens", "chunk_pairs")
        columns = [(self.run.column(name)[rows] * factor).tolist() for name in names]
        price = self.profile.law.price
        return np.array(
            [
                price(StepShape(round(tokens), round(seqs), 0, round(prompts), pairs, round(seqs))).device_s
                for tokens, seqs, prompts, pairs in zip(*columns, strict=True)
            ]
        )

    def _spread(self, steps: NDArray[np.bool_]) -> NDArray[np.int64]:
        rows = np.flatnonzero(steps & (self.run.column("num_tokens") > 0))
        if len(rows) <= _AT_MOST:
            return rows
        return rows[np.linspace(0, len(rows) - 1, _AT_MOST).astype(np.int64)]
