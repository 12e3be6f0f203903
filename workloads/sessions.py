"""Conversations: each turn's prompt is all that was said before, and something new.

Not for when they start. The one idea: a turn is `after` the one before it, so its time is the server's to decide; its
`arrival_s` is the session's start, the earliest that it could be.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from workloads.content import ContentIds, Pieces, length
from workloads.errors import TraceError
from workloads.request import Request

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from workloads.lengths import LengthLaw


@dataclass(frozen=True, slots=True)
class Sessions:
    """How sessions go: `turns` is the law of their number of turns.

    Between an answer and the next turn the user thinks for a Gamma-distributed time of mean `think_s` seconds and shape
    `think_burstiness` (1: exponential, inf: always the mean; the meaning of `--burstiness`).
    """

    turns: LengthLaw
    think_s: float = 0.0
    think_burstiness: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.think_s < math.inf:
            raise TraceError(field="think_s", value=self.think_s, expected="seconds >= 0")
        if not self.think_burstiness > 0.0:
            raise TraceError(field="think_burstiness", value=self.think_burstiness, expected="a number > 0, or inf")


class Turn(NamedTuple):
    """What is new in a turn: tokens that the user adds, tokens of the answer, seconds of thought before it."""

    text_tokens: int
    output_tokens: int
    think_s: float


def session_requests(
    name: str, start_s: float, prefix: Pieces, turns: Sequence[Turn], ids: ContentIds, first: int
) -> Iterator[Request]:
    """The requests of one session: turn k is named `name.k` and is request number `first + k` of the workload."""
    said = prefix
    for k, turn in enumerate(turns):
        said = (*said, (ids.text(first + k), turn.text_tokens))
        answer = ids.answer(first + k)
        yield Request(
            request_id=f"{name}.{k}",
            arrival_s=start_s,
            prompt_tokens=length(said),
            output_tokens=turn.output_tokens,
            content=said,
            output_content=answer,
            after=f"{name}.{k - 1}" if k else None,
            think_s=turn.think_s if k else 0.0,
        )
        said = (*said, (answer, turn.output_tokens))
