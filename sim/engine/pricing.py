"""What a plan costs, and what to do where the profile was not fitted. The one idea: extrapolation is never silent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from sim.drafters import NO_DRAFTER
from sim.errors import InputError
from sim.latency.drafter import drafting_s
from sim.latency.graphs import GraphRun
from sim.latency.model import StepPrice
from sim.latency.profile import DecodeCost
from sim.latency.shape import StepShape

if TYPE_CHECKING:
    from sim.core.cohort import Stretch
    from sim.core.step import StepPlan
    from sim.drafters import DrafterSize
    from sim.latency.graphs import Graphs
    from sim.latency.profile import Profile

OutsidePolicy = Literal["warn", "raise", "clip"]


class Decodes(NamedTuple):
    """Of steps with nothing but so many decodes."""

    cost: DecodeCost
    graph: GraphRun


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
        self._decodes: dict[int, Decodes] = {}
        """By the number of sequences."""
        self.first_outside: str | None = None
        """Where the first extrapolated step left the domain."""

    def price(self, plan: StepPlan) -> StepPrice:
        """A step's price."""
        shape = StepShape.from_plan(plan)
        graph = self._graphs.run(shape.num_tokens, shape.num_seqs, shape.chunk_tokens)
        priced = shape
        why = self.profile.domain.outside(shape)
        if why is not None:
            why = f"a step's {why} of profile {self.profile.name}"
            if self._outside == "raise":
                raise InputError(why)
            if self._outside == "clip":
                priced = self.profile.domain.clip(shape)
            else:
                self.first_outside = self.first_outside or why
        law = self.profile.law
        device_s = law.device_s_of(priced)
        if self._drafter.passes:
            device_s += drafting_s(law, self._drafter, priced)
        return StepPrice(shape, law.host_s(priced.num_seqs), device_s, graph, why is not None)

    def price_decodes(self, stretches: list[Stretch]) -> list[tuple[DecodeCost, range]]:
        """What stretches cost, and their context in each round; up to the first that leaves the domain."""
        priced: list[tuple[DecodeCost, range]] = []
        for num_seqs, contexts in stretches:
            cost = self.decodes(num_seqs).cost
            if contexts[0] < cost.least_context or contexts[-1] > cost.most_context:
                break
            priced.append((cost, contexts))
        return priced

    def decodes(self, num_seqs: int) -> Decodes:
        """What steps of so many decodes cost, and how they run."""
        known = self._decodes.get(num_seqs)
        if known is None:
            cost, graph = self.profile.decode_cost(num_seqs), self._graphs.run(num_seqs, num_seqs, 0)
            known = self._decodes[num_seqs] = Decodes(cost, graph)
        return known
