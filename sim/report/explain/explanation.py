"""What `explain` answers: frozen words, no tables of pandas, so that they can be printed, compared and written as JSON.

Not for how they are found. Shares are fractions of the run's time, from its first step's start to its last one's end.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

Cause = Literal[
    "thrash",
    "kv_blocks",
    "admission_gate",
    "watermark",
    "max_num_seqs",
    "max_concurrency",
    "budget_too_small",
    "budget_too_large",
    "long_prefill_token_threshold",
    "chunked_prefill_off",
    "overload",
    "copies",
    "full_link",
    "host",
    "drafts",
    "cuda_graphs",
]
GapCause = Literal["chunk", "decodes", "preemption", "budget", "host"]
State = Literal["stable", "backlogged", "overloaded"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that holds the run back."""

    cause: Cause
    what: str
    """What happens, in one sentence."""
    because: tuple[str, ...]
    """The arithmetic, a line each."""
    change: tuple[str, ...]
    """What to change, a line each."""
    share: float
    """Of the time that it is at work."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How often one limit ended the admission of requests in a step; `nothing`: nobody waited any more."""

    limit: str
    steps: int
    share: float


@dataclass(frozen=True, slots=True)
class Knob:
    """A setting, and whether it was at work at all."""

    name: str
    value: str
    binding: bool
    steps: int
    share: float
    why: str


@dataclass(frozen=True, slots=True)
class Gap:
    """One of the worst waits between two tokens; requests that waited for the same steps share it."""

    gap_s: float
    end_s: float
    num_requests: int
    request_id: str
    """One of those that waited."""
    cause: GapCause
    """chunk: a prompt in the step; decodes: many rows; budget: used up by others; host: not the device's time."""
    num_steps: int
    """Steps that the gap spans: 1, or the request had no place in some."""
    step: int
    """Row of the table of steps: the longest of them, whose composition follows."""
    step_s: float
    num_tokens: int
    decodes: int
    prefill_tokens: int
    chunk_request_id: str | None
    """Whose the step's largest prompt chunk was; None: no chunk."""
    chunk_tokens: int
    chunk_context: int
    chunk_prompt_tokens: int


@dataclass(frozen=True, slots=True)
class Itl:
    """All gaps between tokens in one glance."""

    num_gaps: int
    median_s: float
    p99_s: float
    max_s: float
    tail_by: dict[str, float]
    """Of the gaps above the 99th percentile: the share of each cause."""


@dataclass(frozen=True, slots=True)
class Thrash:
    """Work that preemption threw away."""

    preemptions: int
    preempted_requests: int
    recomputed_tokens: int
    useful_tokens: int
    recomputed_share: float
    """Recomputed over useful tokens."""
    cycling_requests: int
    """Preempted three times or more."""
    most_preempted: str | None
    most_preemptions: int
    thrashing: bool


@dataclass(frozen=True, slots=True)
class Saturation:
    """Load against capacity."""

    state: State
    told: str
    burst: bool
    """Requests stopped coming before the first ones were done: there is no lasting rate to speak of."""
    arrivals_per_s: float
    """0 where all requests came at once."""
    taken_per_s: float
    """Requests that got their first place in a step, per second while requests came."""
    waiting_at_last_arrival: int
    waiting_at_client: int
    """Those of them that the client's cap held back."""
    busy_share: float
    queued_share: float
    utilization: float
    """Estimated from the queue, see `sim.report.insight`."""
    ordering_only: bool


@dataclass(frozen=True, slots=True)
class TtftPart:
    """A part of the wait for the first token, counted from the arrival."""

    name: str
    mean_ms: float
    p99_ms: float
    share: float
    """Of the mean wait."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Findings first, most of the time first; none: nothing holds the run back. Then the evidence."""

    run: dict[str, object]
    findings: tuple[Finding, ...]
    endings: tuple[Ending, ...]
    knobs: tuple[Knob, ...]
    gaps: tuple[Gap, ...]
    itl: Itl
    ttft: tuple[TtftPart, ...]
    thrash: Thrash
    saturation: Saturation
    notes: tuple[str, ...]
    """What could not be told, and why."""

    def to_dict(self) -> dict[str, object]:
        """JSON values."""
        return asdict(self)
