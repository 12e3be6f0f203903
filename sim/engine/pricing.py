"""What a plan costs, and what to do where the profile was not fitted. The one idea: extrapolation is never silent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from sim.drafters import NO_DRAFTER
from sim.errors import InputError
from sim.latency.drafter import drafting_s
from sim.latency.model import StepPrice, StepTime
from sim.latency.shape import StepShape

if TYPE_CHECKING:
    from sim.core.step import StepPlan
    from sim.drafters import DrafterSize
    from sim.latency.graphs import GraphRun, Graphs
    from sim.latency.profile import Profile

OutsidePolicy = Literal["warn", "raise", "clip"]


class Pricing:
    """Prices plans by a profile, under a policy for shapes outside its domain.

    warn: extrapolate, and say so at the end; raise: InputError at the first such step; clip: price the nearest shape
    that the profile was fitted on. Whichever it is, `price` tells which steps were outside. `graphs` are those of the
    simulated server: how steps run. Padding costs time where the profile's law knows graphs (`FusedLaw.graphs`).
    """

    def __init__(
        self, profile: Profile, outside: OutsidePolicy, graphs: Graphs | None = None, drafter: DrafterSize = NO_DRAFTER
    ) -> None:
        self.profile = profile
        self._outside = outside
        self._graphs = profile.law.graphs if graphs is None else graphs
        self._drafter = drafter
        self.first_outside: str | None = None
        """Where the first extrapolated step left the domain."""

    def price(self, plan: StepPlan) -> StepPrice:
        """A step's price."""
        shape = StepShape.from_plan(plan)
        graph = self._graphs.run(shape.num_tokens, shape.num_seqs, shape.chunk_tokens)
        why = self.profile.outside(shape)
        if why is not None:
            why = f"a step's {why} of profile {self.profile.name}"
            if self._outside == "raise":
                raise InputError(why)
            if self._outside == "clip":
                shape = self.profile.domain.clip(shape)
            else:
                self.first_outside = self.first_outside or why
        time = self.profile.step_time(shape)
        if self._drafter.passes:
            time = StepTime(time.host_s, time.device_s + drafting_s(self.profile.law, self._drafter, shape))
        return StepPrice(time, graph, why is not None)

    def price_decodes(self, num_seqs: int, decode_context: int, num_steps: int) -> tuple[float, list[float]] | None:
        """Host seconds, and the device seconds of each of some steps in a row that decode the same sequences.

        None where any of them is outside the domain: such steps are looked at one by one.
        """
        for context in (decode_context, decode_context + num_seqs * (num_steps - 1)):
            if self.profile.outside(StepShape(num_seqs, num_seqs, context, 0, 0.0, num_seqs)) is not None:
                return None
        return self.profile.law.price_decodes(num_seqs, decode_context, num_steps)

    def decodes_run(self, num_seqs: int) -> GraphRun:
        """How such a step runs."""
        return self._graphs.run(num_seqs, num_seqs, 0)
