"""What a client sends: one request of a workload. The one idea: lengths and content ids stand for text.

Not for what a server makes of it: that state is `sim.core.request.Request`.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_TOKENS = 10**9
"""More than any context window will hold for long: a larger number is a mistake."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a workload.

    `content` says which text the prompt is, as pieces `(content_id, n)`: n tokens of that content from its position
    0 on, one piece after the other. Equal content at equal positions is equal text, so it can hit the prefix cache.
    None means text that nobody else sends.
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
