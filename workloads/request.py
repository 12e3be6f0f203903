"""What a client sends: one request of a workload. The one idea: lengths and content ids stand for text.

Not for what a server makes of it: that state is `sim.core.request.Request`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from numbers import Real
from operator import index
from typing import TYPE_CHECKING, Any

from workloads.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_TOKENS = 10**9
"""More than any context window will hold for long: a larger number is a mistake."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a workload.

    `content` says which text the prompt is, as pieces `(content_id, n)`: n tokens of that content from its position
    0 on, one piece after the other. Equal content at equal positions is equal text, so it can hit the prefix cache.
    None means text that nobody else sends. Numbers of numpy's become Python's own. Raises `TraceError` for numbers that
    are none, and for times below 0 or without end.
    """

    request_id: str
    arrival_s: float
    """Seconds since the start of the workload; for a follow-up turn (`after`) the earliest time."""
    prompt_tokens: int
    output_tokens: int
    """The true output length (the server sees it as `max_tokens`)."""
    content: tuple[tuple[int, int], ...] | None = None
    output_content: int | None = None
    """Content id of the generated text, so that later turns can repeat it; None: unique."""
    priority: int = 0
    """Lower is served first under `--scheduling-policy priority`."""
    after: str | None = None
    """Request id whose answer this request waits for: an earlier turn, which has an `output_content`."""
    think_s: float = 0.0
    """Seconds between that answer's last token and this request."""

    def __post_init__(self) -> None:
        # Of a million requests nearly all are as they must be: one look at each, and no call.
        if not (
            type(self.prompt_tokens) is type(self.output_tokens) is type(self.priority) is int
            and type(self.arrival_s) is type(self.think_s) is float
            and 0.0 <= self.arrival_s < inf
            and 0.0 <= self.think_s < inf
            and type(self.request_id) is str
            and (self.output_content is None or type(self.output_content) is int)
        ):
            self._settle()

    def _settle(self) -> None:
        """Take numbers of other types as Python's own, or say which is none."""
        if not isinstance(self.request_id, str):
            raise TraceError(field="request_id", value=self.request_id, expected="a text")
        for name in ("prompt_tokens", "output_tokens", "priority", "output_content"):
            if name != "output_content" or self.output_content is not None:
                self._take(name, _whole, "a whole number")
        for name in ("arrival_s", "think_s"):
            self._take(name, _seconds, "a finite number of seconds >= 0")

    def _take(self, name: str, number: Callable[[Any], float], expected: str) -> None:
        value = getattr(self, name)
        try:
            object.__setattr__(self, name, number(value))
        except (TypeError, ValueError):
            raise TraceError(f"request {self.request_id}", field=name, value=value, expected=expected) from None


def _whole(value: Any) -> int:
    return int(index(value))


def _seconds(value: Any) -> float:
    if not isinstance(value, Real) or not 0.0 <= float(value) < inf:
        raise ValueError
    return float(value)
