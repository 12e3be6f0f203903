"""What a client sends: one request of a workload. The one idea: lengths and content ids stand for text.

Not for what a server makes of it: that state is `sim.core.request.Request`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import inf
from numbers import Real
from operator import index
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from workloads.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAX_TOKENS = 10**9
"""More than any context window will hold for long: a larger number is a mistake."""
MAX_ID = 2**63 - 1
"""Of texts, and either way of priorities: what a column of a table holds."""

_RANGES: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        "prompt_tokens": (0, MAX_TOKENS),
        "output_tokens": (0, MAX_TOKENS),
        "priority": (-MAX_ID, MAX_ID),
        "output_content": (0, MAX_ID),
    }
)
"""Whole numbers of a request: the least and the most that each may be."""


@dataclass(slots=True, unsafe_hash=True)  # a frozen one takes three times as long to make, and there are millions
class Request:
    """One request of a workload. A value: nobody changes one, and where another is meant there is `replace`.

    `content` says which text the prompt is, as pieces `(content_id, n)`: n tokens of that content from its position
    0 on, one piece after the other, `prompt_tokens` together. Equal content at equal positions is equal text, so it can
    hit the prefix cache. None means text that nobody else sends. Numbers of numpy's become Python's own, and lists of
    pieces tuples. Raises `TraceError` for what is of another type, out of range, or not as long as the prompt.
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
        prompt_tokens, output_tokens, priority = self.prompt_tokens, self.output_tokens, self.priority
        if not (
            type(prompt_tokens) is type(output_tokens) is type(priority) is int
            and type(self.arrival_s) is type(self.think_s) is float
            and 0.0 <= self.arrival_s < inf
            and 0.0 <= self.think_s < inf
            and 0 <= prompt_tokens <= MAX_TOKENS
            and 0 <= output_tokens <= MAX_TOKENS
            and -MAX_ID <= priority <= MAX_ID
            and type(self.request_id) is str
            and self.request_id.isascii()
            and (self.content is None or _are_pieces(self.content, prompt_tokens))
            and (self.output_content is None or _is_id(self.output_content))
            and (self.after is None or type(self.after) is str)
        ):
            self._settle()

    def _settle(self) -> None:
        """Take numbers of other types as Python's own, or say which is none."""
        if not is_text(self.request_id):
            raise TraceError(field="request_id", value=self.request_id, expected="a text")
        for name, (least, most) in _RANGES.items():
            if name != "output_content" or self.output_content is not None:
                self._take(name, partial(_whole, least=least, most=most), f"a whole number from {least} to {most}")
        for name in ("arrival_s", "think_s"):
            self._take(name, _seconds, "a finite number of seconds >= 0")
        if self.content is not None:
            total = self.prompt_tokens
            expected = f"pieces (content_id, n), ids from 0 to {MAX_ID}, whose n are 1 or more and sum to {total}"
            self._take("content", partial(_pieces, total=total), expected)
        if not isinstance(self.after, str | None):
            raise self._wrong("after", "the request_id of an earlier request, a text")

    def _take(self, name: str, settled: Callable[[Any], object], expected: str) -> None:
        try:
            setattr(self, name, settled(getattr(self, name)))
        except (TypeError, ValueError):
            raise self._wrong(name, expected) from None

    def _wrong(self, name: str, expected: str) -> TraceError:
        return TraceError(f"request {self.request_id}", field=name, value=getattr(self, name), expected=expected)


def is_text(value: object) -> bool:
    """Whether it is a text that a file can hold: JSON's escapes can say halves of characters."""
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


def _are_pieces(content: Any, total: int) -> bool:
    """Whether they need no settling."""
    if type(content) is not tuple:
        return False
    for piece in content:
        if type(piece) is not tuple or len(piece) != 2:
            return False
        content_id, n = piece
        if type(content_id) is not int or type(n) is not int or not 0 <= content_id <= MAX_ID or n < 1:
            return False
        total -= n
    return total == 0


def _is_id(value: int) -> bool:
    return type(value) is int and 0 <= value <= MAX_ID


def _whole(value: Any, least: int, most: int) -> int:
    if not least <= index(value) <= most:
        raise ValueError
    return int(index(value))


def _pieces(value: Any, total: int) -> tuple[tuple[int, int], ...]:
    pieces = tuple((_whole(content_id, 0, MAX_ID), _whole(n, 1, total)) for content_id, n in value)
    if sum(n for _, n in pieces) != total:
        raise ValueError
    return pieces


def _seconds(value: Any) -> float:
    if not isinstance(value, Real) or not 0.0 <= float(value) < inf:
        raise ValueError
    return float(value)
