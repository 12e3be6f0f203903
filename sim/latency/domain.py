"""Where a law was fitted: the steps that its samples span. The one idea: a box around their totals.

Not for what to do outside of it: that is `sim.engine.pricing`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sim.latency.shape import StepShape

Range = tuple[float, float]
"""Least and greatest value."""


@dataclass(frozen=True, slots=True)
class Domain:
    """Ranges [low, high] of a shape's totals that the law was fitted on."""

    num_tokens: Range
    num_seqs: Range
    decode_context: Range
    chunk_pairs: Range

    def __reduce__(self) -> tuple[type[Domain], tuple[Range, ...]]:
        """To pickle its ranges: attributes cannot be set afterwards, and compiled it has no other way."""
        return Domain, (self.num_tokens, self.num_seqs, self.decode_context, self.chunk_pairs)

    def outside(self, shape: StepShape) -> str | None:
        """The first axis on which a shape leaves the domain, with its value and range; None inside."""
        tokens, seqs, context, pairs = self.num_tokens, self.num_seqs, self.decode_context, self.chunk_pairs
        if (
            tokens[0] <= shape.num_tokens <= tokens[1]
            and seqs[0] <= shape.num_seqs <= seqs[1]
            and context[0] <= shape.decode_context <= context[1]
            and pairs[0] <= shape.chunk_pairs <= pairs[1]
        ):
            return None
        for axis in fields(self):
            value, (low, high) = getattr(shape, axis.name), getattr(self, axis.name)
            if not low <= value <= high:
                return f"{axis.name} {value:g} is outside [{low:g}, {high:g}]"
        raise AssertionError("it is inside")

    def clip(self, shape: StepShape) -> StepShape:
        """The shape with every total moved to the domain's edge."""
        edges = {axis.name: getattr(self, axis.name) for axis in fields(self)}
        moved: dict[str, Any] = {name: _between(getattr(shape, name), *edge) for name, edge in edges.items()}
        return shape._replace(**moved)


def _between(value: Any, low: float, high: float) -> Any:
    """Nearest number in a range; a count stays one."""
    return type(value)(min(max(value, low), high))
