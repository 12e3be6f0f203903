"""Which text prompts share: content pieces `(content_id, n)` for `Request.content`.

Not for how blocks are hashed: that is the server's. The one idea: ids are handed out so that equal ids are equal text,
first the prefix groups', then two for each request: its own text and its answer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from workloads.errors import TraceError
from workloads.request import MAX_TOKENS

if TYPE_CHECKING:
    from numpy.typing import NDArray

Pieces = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class SharedPrefixes:
    """Groups of requests that start with the same text, such as a system prompt.

    Group g puts `lengths[g]` tokens (0: nothing) before a prompt, and is drawn with probability `weights[g]` over their
    sum (None: all alike). The prefix comes on top of the prompt's own length, as in vLLM's `prefix_repetition`.
    `evenly`: every group comes equally often, in random order, as there; `weights` are not used.
    """

    lengths: tuple[int, ...]
    weights: tuple[float, ...] | None = None
    evenly: bool = False

    def __post_init__(self) -> None:
        if not self.lengths or not all(0 <= n <= MAX_TOKENS for n in self.lengths):
            raise TraceError(field="lengths", value=self.lengths, expected="numbers of tokens >= 0, at least one")
        weights = self.weights
        if weights is None:
            return
        if len(weights) != len(self.lengths) or not all(0.0 <= w < math.inf for w in weights) or not any(weights):
            raise TraceError(field="weights", value=weights, expected=f"{len(self.lengths)} numbers >= 0, not all 0")

    def groups(self, u: NDArray[np.float64]) -> NDArray[np.int64]:
        """The group for each uniform draw in (0, 1); shape (n,), as `u`."""
        if self.evenly:
            ranks = np.argsort(np.argsort(u, kind="stable"), kind="stable")
            return (ranks * len(self.lengths) // len(u)).astype(np.int64)
        weights = np.ones(len(self.lengths)) if self.weights is None else np.array(self.weights)
        upto = np.cumsum(weights)
        return np.searchsorted(upto / upto[-1], u, side="right").astype(np.int64)

    def pieces(self, group: int) -> Pieces:
        """The prefix of a group; its content id is the group's number."""
        return ((group, self.lengths[group]),) if self.lengths[group] else ()


class ContentIds(NamedTuple):
    """Ids for what each request adds, above those of `groups` prefixes."""

    groups: int

    def text(self, request: int) -> int:
        """Content id of the text that request number `request` (from 0) adds to its prompt."""
        return self.groups + 2 * request

    def answer(self, request: int) -> int:
        """Content id of its answer."""
        return self.groups + 2 * request + 1


def length(pieces: Pieces) -> int:
    """Tokens in `pieces`."""
    return sum(n for _, n in pieces)
