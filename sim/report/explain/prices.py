"""What steps would take if they held something else, by the profile that the run was priced with.

Not for simulating: only steps that were there are priced again, one change at a time. The one idea: a step's context is
not in the tables, but it is what a step took beyond the law's price without context, so differences need none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from sim.latency.drafter import drafting_s
from sim.latency.shape import StepShape

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sim.drafters import DrafterSize
    from sim.latency.model import FusedLaw
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

    @cached_property
    def law(self) -> FusedLaw:
        """The profile's, with the CUDA graphs of the run's server."""
        return self._law_with(self.run.config.num_speculative_tokens)

    def _law_with(self, num_drafts: int) -> FusedLaw:
        law, graphs = self.profile.law, self.run.graphs(num_drafts)
        return law if graphs is None or not law.graphs.sizes else replace(law, graphs=graphs)

    def explains(self) -> bool:
        """Whether this profile can have priced the run: no step was quicker than the law without any context."""
        rows = self.spread(~self.run.column("extrapolated").astype(bool))
        return bool(np.all(self._context_s(rows) >= -_ROUNDING))

    @cached_property
    def pairs_per_token(self) -> float:
        """Query-key pairs of a prompt token, averaged: cutting prompts into chunks does not change it."""
        tokens = float(self.run.column("prefill_tokens").sum())
        return float(self.run.column("chunk_pairs").sum()) / tokens if tokens else 0.0

    @cached_property
    def prompt_token_s(self) -> float:
        """Seconds that a prompt token adds to a typical step, as one of a thousand."""
        steps = self.run.column("num_tokens") - self.run.column("prefill_tokens")
        tokens, seqs = float(steps.mean()), float(self.run.column("num_seqs").mean())
        count = 1_000
        bare = StepShape(round(tokens), round(seqs), 0, 0, 0.0, round(seqs))
        with_prompt = StepShape(
            round(tokens) + count, round(seqs) + 1, 0, count, count * self.pairs_per_token, round(seqs) + 1
        )
        return (self.law.price(with_prompt).device_s - self.law.price(bare).device_s) / count

    def with_prompts(self, row: int, prompt_tokens: int, pairs: float | None = None) -> float:
        """Seconds of a step that keeps its decodes and has so many prompt tokens instead."""
        decodes, drafts = int(self.run.column("decodes")[row]), int(self.run.column("num_draft_tokens")[row])
        pairs = self.pairs_per_token * prompt_tokens if pairs is None else pairs
        seqs = decodes + (1 if prompt_tokens else 0)
        bare = StepShape(decodes + drafts + prompt_tokens, seqs, 0, prompt_tokens, pairs, seqs, drafts)
        return self._price(self.law, self.run.drafter, bare) + float(self._context_s(np.array([row]))[0])

    def throughput_gain(self, steps: NDArray[np.bool_], factor: float) -> float:
        """Throughput, relative to the run's, if `factor` times as many requests took part in these steps."""
        rows = self.spread(steps)
        if not len(rows):
            return 1.0
        before_s = float(self.run.step_s[rows].sum())
        copy_s = float(self.run.column("copy_s")[rows].sum())
        after_s = float((self._bare_s(rows, factor) + factor * self._context_s(rows)).sum()) + copy_s
        return factor * before_s / after_s

    def with_drafts(self, rows: NDArray[np.int64], count: int) -> NDArray[np.float64]:
        """Seconds of steps whose decodes verify so many drafts, instead of those of the run; without copies."""
        said, drafter = self.run.config.num_speculative_tokens, self.run.drafter
        fewer = drafter._replace(passes=min(drafter.passes, count))
        law = self._law_with(count)
        drafted = self.run.column("num_draft_tokens")[rows]
        drafts = np.rint(drafted * count / said).astype(np.int64)
        names = ("num_tokens", "num_seqs", "prefill_tokens", "chunk_pairs")
        columns = [self.run.column(name)[rows].tolist() for name in names]
        bare_s = [
            self._price(law, fewer, StepShape(tokens - before + now, seqs, 0, prompts, pairs, seqs, now))
            for tokens, seqs, prompts, pairs, before, now in zip(
                *columns, drafted.tolist(), drafts.tolist(), strict=True
            )
        ]
        # The drafter reads the context as often as it passes, its own share of the model's.
        reading = (1 + drafter.kv * fewer.passes) / (1 + drafter.kv * drafter.passes)
        return np.array(bare_s) + reading * self._context_s(rows)

    def lost_to_graphs(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Seconds that steps of decodes alone take beyond those of a whole graph of just their tokens."""
        columns = [self.run.column(name)[rows].tolist() for name in ("num_tokens", "num_seqs", "num_draft_tokens")]
        lost_s = []
        for tokens, seqs, drafts in zip(*columns, strict=True):
            as_run = self.law.price(StepShape(tokens, seqs, 0, 0, 0.0, seqs, drafts)).device_s
            lost_s.append(as_run - self.law.device_s(tokens, seqs, 0, 0, 0.0) - self.law.row_s * drafts)
        return np.array(lost_s)

    def _context_s(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        computing_s = self.run.step_s[rows] - self.run.column("copy_s")[rows]
        return np.asarray(computing_s - self._bare_s(rows, 1.0), dtype=np.float64)

    def _bare_s(self, rows: NDArray[np.int64], factor: float) -> NDArray[np.float64]:
        """The law's price of steps without their decodes' context, with `factor` times as much in each."""
        names = ("num_tokens", "num_seqs", "prefill_tokens", "chunk_pairs", "num_draft_tokens")
        columns = [(self.run.column(name)[rows] * factor).tolist() for name in names]
        shapes = (
            StepShape(round(tokens), round(seqs), 0, round(prompts), pairs, round(seqs), round(drafts))
            for tokens, seqs, prompts, pairs, drafts in zip(*columns, strict=True)
        )
        return np.array([self._price(self.law, self.run.drafter, shape) for shape in shapes])

    @staticmethod
    def _price(law: FusedLaw, drafter: DrafterSize, shape: StepShape) -> float:
        return law.price(shape).device_s + drafting_s(law, drafter, shape)

    def spread(self, steps: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Rows of these steps: evenly spread ones where there are many."""
        rows = np.flatnonzero(steps & (self.run.column("num_tokens") > 0))
        if len(rows) <= _AT_MOST:
            return rows
        return rows[np.linspace(0, len(rows) - 1, _AT_MOST).astype(np.int64)]
