"""The fused law: seconds of one step from its shape.

Not for fitting (calibrate) and not for files (profile.py). The one idea: a transformer step reads the weights once for
all of its tokens, so prompts and decodes share one roofline, and only attention is paid for apart:

    device = step + rows + soft-max(weights read, tokens computed) + decode context read + prompt attention

where a step that runs as a CUDA graph computes as many tokens as the graph was captured for (graphs.py). A mixed step
is therefore much cheaper than its prompt and its decodes one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple

from sim.errors import InputError
from sim.latency.graphs import NO_GRAPHS, GraphMode, Graphs

if TYPE_CHECKING:
    from sim.latency.graphs import GraphRun
    from sim.latency.shape import StepShape

Number = Any
"""A number, or an aligned column of them: what mypyc compiles once for both."""

TILE_TOKENS = 128
"""GEMM kernels work on tiles of this many tokens."""


class StepTime(NamedTuple):
    """Seconds of one step."""

    host_s: float
    """Scheduling and input preparation that the GPU waits for."""
    device_s: float


@dataclass(slots=True)  # not frozen: one is made for every step
class StepPrice:
    """What a step takes, and how it runs."""

    shape: StepShape
    """As it is, wherever the price was taken."""
    host_s: float
    device_s: float
    graph: GraphRun
    extrapolated: bool
    """It was outside the profile's domain."""


@dataclass(frozen=True, slots=True)
class FusedLaw:
    """Coefficients, none negative, so that more work never costs less. Extrapolates like a roofline."""

    step_s: float
    """Once per step: kernel launches, norms, sampling, what no row explains."""
    row_s: float
    """Per sequence: sampling, input rows, LM head."""
    weight_read_s: float
    """Reading the weights once, for one token."""
    batch_slowdown: float
    """Weights are read T ** batch_slowdown times slower for T tokens: wider tiles, activations beside them, and in a
    mixture of experts more of these."""
    token_s: float
    """Per token where the GEMMs are bound by arithmetic, with all that goes token by token."""
    sharpness: float
    """p of (memory ** p + compute ** p) ** (1 / p): infinity would be a hard maximum, 1 a sum."""
    context_s: float
    """Per token of decode context: its K and V are read once."""
    mixed_context_s: float
    """On top of it where chunks run in the same step: one attention kernel for both suits the single rows badly."""
    pair_s: float
    """Per query-key pair of prompt attention."""
    tile_waste: float = 0.0
    """Share of the tokens missing to whole tiles that is computed all the same: 1 a staircase, 0 a straight line."""
    elementwise_s: float = 0.0
    """Per token beside the GEMMs, whatever bounds those: norms, activations, all-reduces between GPUs."""
    eager_s: float = 0.0
    """Once per step that does not run as one whole graph: its kernels are launched one by one, or piece by piece."""
    eager_row_s: float = 0.0
    """Per sequence on top in such a step: an attention kernel made for prompts gives every decode row a tile."""
    host_step_s: float = 0.0
    """Host time per step that the GPU waits for (0 where it was measured under async scheduling)."""
    host_row_s: float = 0.0
    """Host time per sequence."""
    graphs: Graphs = NO_GRAPHS
    """Which steps run as CUDA graphs: a fact of the server, not fitted."""

    def __post_init__(self) -> None:
        for name in UNITS:
            value = getattr(self, name)
            low, high = BOUNDS.get(name, (0.0, LARGEST_S))
            if not low <= value <= high:
                raise InputError(field=name, value=value, expected=f"a finite number from {low:g} to {high:g}")

    def __reduce__(self) -> tuple[type[FusedLaw], tuple[object, ...]]:
        """To pickle its fields: attributes cannot be set afterwards, and compiled it has no other way."""
        return FusedLaw, tuple(getattr(self, field.name) for field in fields(self))

    @classmethod
    def linear(cls, step_s: float, token_s: float) -> FusedLaw:
        """The two-coefficient law that many papers and posts state: so much per step, and so much for each token."""
        return cls(
            step_s=step_s,
            row_s=0.0,
            weight_read_s=0.0,
            batch_slowdown=0.0,
            token_s=token_s,
            sharpness=1.0,
            context_s=0.0,
            mixed_context_s=0.0,
            pair_s=0.0,
        )

    def price(self, shape: StepShape) -> StepTime:
        """Seconds of a step."""
        return StepTime(self.host_s(shape.num_seqs), self.device_s_of(shape))

    def host_s(self, num_seqs: int) -> float:
        """Host seconds of a step of so many sequences."""
        return self.host_step_s + self.host_row_s * num_seqs

    def device_s_of(self, shape: StepShape) -> float:
        """GPU seconds of a step of this shape, padded to its graph, with its drafts' rows."""
        seqs, context, chunk_tokens = shape.num_seqs, shape.decode_context, shape.chunk_tokens
        tokens, mode = self.graphs.run(shape.num_tokens, seqs, chunk_tokens)
        eager = 1.0 if chunk_tokens or mode is not GraphMode.FULL else 0.0
        mixed = context if chunk_tokens else 0
        device_s: float = self.device_s(tokens, seqs, context, mixed, shape.chunk_pairs, eager)
        return device_s + self.row_s * shape.num_drafts

    def device_s(
        self,
        padded_tokens: Number,
        num_seqs: Number,
        decode_context: Number,
        mixed_context: Number,
        chunk_pairs: Number,
        eager: Number = 0.0,
    ) -> Number:
        """GPU seconds of steps, given as numbers or as aligned columns.

        The totals are those of `StepShape`, but for the tokens, which include a graph's padding; `eager` is 1 for steps
        that do not run as one whole graph, else 0.
        """
        p = self.sharpness
        weights = self.weight_read_s * padded_tokens**self.batch_slowdown
        compute = self.token_s * (padded_tokens + self.tile_waste * (-padded_tokens % TILE_TOKENS))
        fused = (weights**p + compute**p) ** (1.0 / p)
        attention = self.context_s * decode_context + self.mixed_context_s * mixed_context + self.pair_s * chunk_pairs
        rows = (self.row_s + self.eager_row_s * eager) * num_seqs + self.elementwise_s * padded_tokens
        return self.step_s + self.eager_s * eager + rows + fused + attention


LARGEST_S = 1e6
"""Seconds that nothing takes: what is above was not measured."""

BOUNDS = {"sharpness": (1.0, 1e3), "tile_waste": (0.0, 1.0), "batch_slowdown": (0.0, 1.0)}
"""Least and greatest values, of coefficients that are not just any number >= 0."""

UNITS = {
    "step_s": "s",
    "row_s": "s / sequence",
    "weight_read_s": "s",
    "batch_slowdown": "1",
    "token_s": "s / token",
    "sharpness": "1",
    "context_s": "s / token of decode context",
    "mixed_context_s": "s / token of decode context",
    "pair_s": "s / query-key pair",
    "tile_waste": "1",
    "elementwise_s": "s / token",
    "eager_s": "s",
    "eager_row_s": "s / sequence",
    "host_step_s": "s",
    "host_row_s": "s / sequence",
}
"""The coefficients and their units, as a profile states them."""
