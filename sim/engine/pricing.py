"""What a plan costs, and what to do where the profile was not fitted. The one idea: extrapolation is never silent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from sim.errors import InputError
from sim.latency.shape import StepShape

if TYPE_CHECKING:
    from sim.core.step import StepPlan
    from sim.latency.model import StepTime
    from sim.latency.profile import Profile

OutsidePolicy = Literal["warn", "raise", "clip"]


class Pricing:
    """Prices plans by a profile, under a policy for shapes outside its domain.

    warn: extrapolate, and say so at the end; raise: InputError at the first such step; clip: price the nearest shape
    that the profile was fitted on. Whichever it is, `price` tells which steps were outside.
    """

    def __init__(self, profile: Profile, outside: OutsidePolicy) -> None:
        self.profile = profile
        self._outside = outside
        self.first_outside: str | None = None
        """Where the first extrapolated step left the domain."""

    def price(self, plan: StepPlan) -> tuple[StepTime, bool]:
        """The step's time, and whether it was outside the profile's domain."""
        shape = StepShape.from_plan(plan)
        why = self.profile.outside(shape)
        if why is None:
            return self.profile.step_time(shape), False
        why = f"a step's {why} of profile {self.profile.name}"
        if self._outside == "raise":
            raise InputError(why)
        if self._outside == "clip":
            return self.profile.step_time(self.profile.domain.clip(shape)), True
        self.first_outside = self.first_outside or why
        return self.profile.step_time(shape), True

    def price_decodes(self, num_seqs: int, decode_context: int, num_steps: int) -> tuple[float, list[float]] | None:
        """Host seconds, and the device seconds of each of some steps in a row that decode the same sequences.

        None where any of them is outside the domain: such steps are looked at one by one.
        """
        for context in (decode_context, decode_context + num_seqs * (num_steps - 1)):
            if self.profile.outside(StepShape(num_seqs, num_seqs, context, 0, 0.0, num_seqs)) is not None:
                return None
        return self.profile.law.price_decodes(num_seqs, decode_context, num_steps)
