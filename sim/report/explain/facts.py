"""What the findings draw on: the evidence of a run in one hand, and a few sums that several of them need."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from sim.plurals import counted
from sim.report.explain.knobs import waiting_for_blocks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sim.report.explain.explanation import Gap, Itl, Saturation, Thrash
    from sim.report.explain.prices import Prices
    from sim.report.explain.run import Run

MATTERS = 0.05
"""Share of time from which on a limit is a finding: below, it is a moment that hardly anybody felt."""
_HELPS = 1.1
"""Throughput gained by twice the requests at once, from which on concurrency is what lacks and not the GPU."""
_FACTORS = (1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
_MARGIN = 1.05


@dataclass(frozen=True)
class Facts:
    """The evidence."""

    run: Run
    prices: Prices | None
    saturation: Saturation
    thrash: Thrash
    itl: Itl
    gaps: tuple[Gap, ...]

    @property
    def overloaded(self) -> bool:
        """Whether the queue grew as long as requests came."""
        return self.saturation.state == "overloaded"

    @cached_property
    def needed(self) -> float:
        """Throughput that the load asks for, relative to what was served while it came."""
        taken = self.saturation.taken_per_s
        return self.saturation.arrivals_per_s / taken if self.overloaded and taken > 0 else 1.0

    def concurrency_helps(self, steps: NDArray[np.bool_]) -> bool:
        """Whether more requests at once would have raised the throughput of these steps; unpriced: taken to be so."""
        return self.prices is None or self.prices.throughput_gain(steps, 2.0) >= _HELPS

    def factor_that_carries(self, steps: NDArray[np.bool_]) -> float | None:
        """How many times as many requests at once would carry the load; None: none of those tried, or unpriced."""
        if self.prices is None:
            return None
        needed = _MARGIN * self.needed
        return next((x for x in _FACTORS if self.prices.throughput_gain(steps, x) >= needed), None)

    @cached_property
    def mean_tokens(self) -> float:
        """Prompt and output of a request that ran, averaged."""
        ran = np.isfinite(self.run.requests("scheduled_s"))
        total = self.run.requests("prompt_tokens") + self.run.requests("output_tokens")
        return float(total[ran].mean()) if ran.any() else 0.0

    @cached_property
    def blocks_each(self) -> int:
        """KV blocks that such a request holds at its end."""
        return max(1, ceil(self.mean_tokens / self.run.config.block_size))

    @cached_property
    def fit(self) -> int:
        """Requests that the KV cache holds to their ends."""
        return self.run.config.usable_blocks // self.blocks_each

    @cached_property
    def _running(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Prompts, outputs and weights of those that run at any moment: who generates more tokens runs longer."""
        ran = np.isfinite(self.run.requests("scheduled_s"))
        prompt, output = (self.run.requests(f"{name}_tokens")[ran].astype(np.float64) for name in ("prompt", "output"))
        return prompt, output, output / max(1.0, output.sum())

    @cached_property
    def fit_on_average(self) -> int:
        """Requests that the KV cache holds while some are young and others old: prompt and half of the output each."""
        prompt, output, weights = self._running
        held = float((weights * np.ceil((prompt + output / 2) / self.run.config.block_size)).sum())
        return int(self.run.config.usable_blocks / max(1.0, held))

    @cached_property
    def _at_end(self) -> tuple[float, float]:
        """Mean and standard deviation of the KV blocks that those who run will hold at their ends."""
        prompt, output, weights = self._running
        blocks = np.ceil((prompt + output) / self.run.config.block_size)
        mean = max(1.0, float((weights * blocks).sum()))
        return mean, float((weights * (blocks - mean) ** 2).sum()) ** 0.5

    @cached_property
    def safe(self) -> int:
        """Requests that can all reach their ends together: N x mean + 2 x deviation x sqrt(N) = usable blocks."""
        mean, deviation = self._at_end
        root = (-deviation + (deviation**2 + mean * self.run.config.usable_blocks) ** 0.5) / mean
        return int(root**2 + 1e-9)

    @property
    def safe_sum(self) -> str:
        """How that number comes about."""
        (mean, deviation), n = self._at_end, self.safe
        spread = f" + 2 x {deviation:,.0f} x sqrt({n:,}) for long ones" if deviation >= 1 else ""
        return f"{n:,} x {mean:,.0f}{spread} = {n * mean + 2 * deviation * n**0.5:,.0f} blocks at their ends"

    @cached_property
    def prompt_tokens_per_s(self) -> float:
        """Prompt tokens that the load asks for: those that came, not just those that were computed meanwhile."""
        if self.overloaded:
            return self.saturation.arrivals_per_s * float(self.run.requests("prompt_tokens").mean())
        return float(self.run.column("prefill_tokens").sum()) / self.run.span_s

    @cached_property
    def wanted(self) -> int:
        """The most requests that were there at once, running and waiting for blocks."""
        there = self.run.column("running") + self.run.column("waiting")
        return int(there[waiting_for_blocks(self.run)].max(initial=0))

    @property
    def blocks_sum(self) -> str:
        """How the blocks of one request come about."""
        size = self.run.config.block_size
        blocks = counted(self.blocks_each, "block")
        return f"{self.mean_tokens:,.0f} tokens on average (prompt + output) = {blocks} of {size}"
