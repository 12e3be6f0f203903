"""Measuring on a bench in as many goes as one likes: each goes on in the grid, then serves a few bursts.

Not for flags or files' names. The one idea: one runner serves them all, so that what a machine's changing moods do to
the samples they do to the runs between them as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from calibrate.grid import GridLimits, grid
from calibrate.measure import Effort, measure
from calibrate.served_steps import Bursts, padded_by
from sim.cli.progress import counting

if TYPE_CHECKING:
    from calibrate.measure import Table
    from calibrate.torch_options import Bench

GRID_STEPS = 2000
_SERVED_SHARE = 0.4
"""Of a go's time, for steps of real serving: one pass gives a sample there, and the grid warms up and repeats."""


@dataclass(slots=True)
class Session:
    """What is measured, and where it goes."""

    bench: Bench
    table: Table
    limits: GridLimits
    repeats: int = 7
    per_step_s: float = 1.0
    served: bool = True
    steps: int = GRID_STEPS
    bursts: Bursts = field(init=False)

    def __post_init__(self) -> None:
        runner = self.bench.runner
        self.bursts = Bursts(runner, self.limits, runner.block_size, padded_by(runner), seed=len(self.table.steps))

    @classmethod
    def reaching(cls, bench: Bench, table: Table, *, max_tokens: int, max_seqs: int, max_context: int) -> Session:
        """With limits that the bench's cache and model allow."""
        reach = (max_tokens, max_seqs, max_context)
        return cls(bench, table, GridLimits(*reach, bench.runner.kv_tokens, bench.shape.max_model_len))

    def go(self, budget_s: float, title: str = "calibrate") -> None:
        """Measure for so many seconds. What is in the table is not measured again."""
        runner, table = self.bench.runner, self.table
        served_s = _SERVED_SHARE * budget_s if self.served else 0.0
        effort = Effort(budget_s - served_s, self.repeats, self.per_step_s)
        steps = grid(self.limits, self.steps)
        with counting(f"{title}: grid", "step", len(steps)) as advance:
            measure(steps, runner, table, effort, memory_error=self.bench.memory_error, on_step=lambda _step: advance())
        if not served_s:
            return
        with counting(f"{title}: serving", "burst") as advance:
            table.steps += self.bursts.go(served_s, lambda _size: advance())
        table.save()
