"""Writes down what happens in a run, as append-only columns. The one idea: pay per event, not per token.

A request that gets one token in every step needs no entry for each: a *run* of steps `(first, last)` says it all, and
the gaps between its tokens are differences of step ends. Runs open at the first token and after a preemption or a
skipped step, so only such steps are looked at; the gaps are worked out once, when the request is done.
Not for deciding anything: the log only looks on.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sim.report.frames import Frames
from sim.report.gap_rows import GapRows
from sim.report.step_rows import BLOCK_STEPS, LIMIT_CODES, MODE_CODES, STEP, StepColumns, StepRows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from sim.core.request import Request as CoreRequest
    from sim.core.step import Limit, StepPlan
    from sim.latency.graphs import GraphRun
    from sim.latency.model import StepPrice
    from workloads import Request

_NAN = float("nan")
_TIMES = ("arrival_s", "send_s", "queued_s", "scheduled_s", "first_token_s", "finish_s")
_COUNTS = ("priority", "prompt_tokens", "output_tokens", "cached_tokens", "preemptions", "swaps", "recomputed_tokens")
REQUEST_COLUMNS = ("request_id", *_COUNTS, *_TIMES, "status", "error")
"""Of the table of a run of this version."""
_NO_CHUNKS = (0.0, 0, 0, 0)


class SampledTokens(NamedTuple):
    """What came out of a step."""

    num_tokens: int
    """Output tokens that requests really get: none after the last one of an answer."""
    num_draft_tokens: int = 0
    """Drafts that were verified."""
    num_accepted_tokens: int = 0


class QuietSteps(NamedTuple):
    """What steps in a row that only decode have in common."""

    host_s: float
    num_seqs: int
    num_running: int
    num_waiting: int
    limit: Limit
    graph: GraphRun
    num_host_blocks: int


class RunLog:
    """Columns of requests and of steps, filled while the run goes on. `response_s`: from a step's end to the client."""

    def __init__(self, response_s: float = 0.0) -> None:
        self._response_s = response_s
        self._ids: list[str] = []
        self._status: list[str] = []
        self._errors: dict[int, str] = {}
        self._times = {name: array("d") for name in _TIMES}
        self._counts = {name: array("q") for name in _COUNTS}
        self._gaps = GapRows()
        self._steps = StepRows()
        """Rows of the latest steps."""
        self._columns = StepColumns()
        """All steps before those."""
        self._ends = array("d")
        """End of every step, in seconds."""
        self._rows: dict[CoreRequest, int] = {}
        """Live requests -> row."""
        self._open: dict[CoreRequest, int] = {}
        """Live requests that got a token in the last step they could -> first step of that run."""
        self._closed: dict[CoreRequest, array[int]] = {}
        """Live requests -> (first, last) of their earlier runs, flat."""
        self._idle: dict[CoreRequest, None] = {}
        """Running requests without an open run, in order: prompts in flight, mostly."""
        self.num_finished = 0
        self.num_tokens = 0
        """Output tokens delivered."""

    # -- requests --------------------------------------------------------------------------------------------------

    def arrived(self, request: Request) -> None:
        """A request is there to be sent: the next row."""
        self._ids.append(request.request_id)
        self._status.append("unfinished")
        for times in self._times.values():
            times.append(_NAN)
        for counts in self._counts.values():
            counts.append(0)
        self._times["arrival_s"][-1] = request.arrival_s
        self._counts["priority"][-1] = request.priority
        self._counts["prompt_tokens"][-1] = request.prompt_tokens

    def due(self, row: int, now_s: float) -> None:
        """A follow-up turn's real arrival: its earlier turn was answered and thought about."""
        self._times["arrival_s"][row] = now_s

    def sent(self, row: int, now_s: float) -> None:
        """The client sent it."""
        self._times["send_s"][row] = now_s

    def queued(self, row: int, request: CoreRequest, now_s: float) -> None:
        """It stands in the engine's queue."""
        self._times["queued_s"][row] = now_s
        self._rows[request] = row

    def rejected(self, request: CoreRequest, error: str) -> None:
        """The engine refused it."""
        row = self._rows.pop(request)
        self._status[row] = "rejected"
        self._errors[row] = error

    def finished(self, request: CoreRequest) -> int:
        """It got its last token in the last step; returns its row."""
        row = self._rows[request]
        self._close(request, len(self._ends) - 1)
        self._settle(request)
        self._times["finish_s"][row] = self._ends[-1] + self._response_s
        self._status[row] = "finished"
        self.num_finished += 1
        return row

    # -- steps -----------------------------------------------------------------------------------------------------

    def step(
        self, plan: StepPlan, times_s: tuple[float, float, float], price: StepPrice, sampled: SampledTokens
    ) -> None:
        """A step has run: when it started and ended, and what copies took of that. Call it before its plan's commit."""
        step = len(self._ends)
        self._append_step(plan, times_s, price, sampled)
        for request, hit in plan.admitted:
            self._admitted(request, hit, times_s[0])
        for request, _ in plan.swapped_in:
            self._idle[request] = None
        for request in plan.preempted:
            self._idle.pop(request, None)
            self._close(request, step - 1)
        if len(plan.requests) < len(self._open) + len(self._idle):
            self._close_skipped(plan, step)
        if self._idle:
            self._open_started(plan, step)

    def is_quiet(self, num_running: int) -> bool:
        """Everybody who runs got a token in the last step: while that goes on there are only steps to write down."""
        return not self._idle and len(self._open) == num_running

    def quiet_steps(
        self, steps: QuietSteps, start_s: Sequence[float], end_s: Sequence[float], free_blocks: Sequence[int]
    ) -> None:
        """Several quiet steps have run: when each started and ended, and the free blocks after it was made."""
        host_s, num_seqs, num_running, num_waiting, limit, graph, num_host_blocks = steps
        row = STEP.pack(
            0.0, 0.0, host_s, 0.0, 0.0,
            num_seqs, num_seqs, 0, num_seqs, num_seqs, num_running, num_waiting, 0,
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, num_host_blocks, 0, 0, graph.num_tokens - num_seqs,
            False, LIMIT_CODES[limit], MODE_CODES[graph.mode],
        )  # fmt: skip
        self._steps.add(row, start_s, end_s, free_blocks)
        self._ends.extend(end_s)
        self.num_tokens += num_seqs * len(end_s)
        self._hand_on_blocks()

    def _hand_on_blocks(self) -> None:
        while len(self._steps) >= BLOCK_STEPS:
            self._hand_on(BLOCK_STEPS)

    def _hand_on(self, num_steps: int) -> None:
        self._columns.add(self._steps.take(num_steps))

    def _append_step(
        self, plan: StepPlan, times_s: tuple[float, float, float], price: StepPrice, sampled: SampledTokens
    ) -> None:
        start_s, end_s, copy_s = times_s
        num_tokens, num_seqs, num_chunks = plan.total_num_scheduled_tokens, len(plan.requests), len(plan.chunks)
        # A decode that verifies drafts is a decode, though it has several tokens.
        num_chunks -= len(plan.num_drafts)
        num_drafts = sum(plan.num_drafts.values()) if plan.num_drafts else 0
        pairs, *largest = self._chunks(plan) if plan.chunks else _NO_CHUNKS
        row = STEP.pack(
            start_s,
            end_s,
            price.time.host_s,
            copy_s,
            pairs,
            num_tokens,
            num_seqs,
            num_tokens - num_seqs + num_chunks - num_drafts,
            num_seqs - num_chunks,
            sampled.num_tokens,
            plan.num_running,
            plan.num_waiting,
            plan.num_free_blocks,
            len(plan.admitted),
            len(plan.preempted),
            sum([hit for _, hit in plan.admitted]),
            *largest,
            len(plan.swapped_out),
            sum([blocks for _, blocks in (*plan.swapped_out, *plan.stores)]),
            sum([blocks for _, blocks in (*plan.swapped_in, *plan.loads)]),
            plan.host_queries,
            plan.num_host_blocks,
            sampled.num_draft_tokens,
            sampled.num_accepted_tokens,
            price.graph.num_tokens - num_tokens,
            price.extrapolated,
            LIMIT_CODES[plan.limit],
            MODE_CODES[price.graph.mode],
        )
        self._steps.add(row, (start_s,), (end_s,), (plan.num_free_blocks,))
        self._ends.append(end_s)
        self.num_tokens += sampled.num_tokens
        self._hand_on_blocks()

    def _chunks(self, plan: StepPlan) -> tuple[float, int, int, int]:
        """Query-key pairs of all chunks; of the largest one of a prompt its row, tokens and context."""
        pairs, row, tokens, context = 0.0, 0, 0, 0
        for i in plan.chunks:
            if i in plan.num_drafts:
                continue
            n, before = plan.num_scheduled_tokens[i], plan.num_computed_tokens[i]
            pairs += n * (before + 0.5 * n)
            if n > tokens:
                row, tokens, context = self._rows[plan.requests[i]], n, before
        return pairs, row, tokens, context

    def _admitted(self, request: CoreRequest, hit: int, start_s: float) -> None:
        row = self._rows[request]
        self._idle[request] = None
        if self._times["scheduled_s"][row] != self._times["scheduled_s"][row]:  # NaN: the first time
            self._times["scheduled_s"][row] = start_s
            self._counts["cached_tokens"][row] = hit

    def _close_skipped(self, plan: StepPlan, step: int) -> None:
        """Some running requests got nothing in this step (the budget was used up): their runs end before it."""
        scheduled = set(map(id, plan.requests))
        for request in [request for request in self._open if id(request) not in scheduled]:
            self._close(request, step - 1)
            self._idle[request] = None

    def _open_started(self, plan: StepPlan, step: int) -> None:
        """Requests that get a token again, or their first one, in this step."""
        partial = {id(plan.requests[position]) for position in plan.partial}
        scheduled = set(map(id, plan.requests))
        for request in [r for r in self._idle if id(r) in scheduled and id(r) not in partial]:
            del self._idle[request]
            self._open[request] = step
            if request not in self._closed:
                self._closed[request] = array("q")
                self._times["first_token_s"][self._rows[request]] = self._ends[-1] + self._response_s

    def _close(self, request: CoreRequest, last: int) -> None:
        first = self._open.pop(request, None)
        if first is not None:
            self._closed[request].extend((first, last))

    def _settle(self, request: CoreRequest) -> None:
        """Work out a request's gaps and counts, and forget its runs."""
        row = self._rows.pop(request)
        self._idle.pop(request, None)
        self._counts["output_tokens"][row] = request.num_output_tokens
        self._counts["preemptions"][row] = request.num_preemptions
        self._counts["swaps"][row] = request.num_swaps
        self._counts["recomputed_tokens"][row] = request.num_recomputed_tokens
        runs = self._closed.pop(request, array("q"))
        ends = self._ends
        times = array("d")
        for first, last in zip(runs[::2], runs[1::2], strict=True):
            times += ends[first : last + 1]
        self._gaps.add(row, times)

    # -- result ----------------------------------------------------------------------------------------------------

    def frames(self, meta: Mapping[str, object]) -> Frames:
        """The tables of all that has been logged; requests still on their way are settled as they stand."""
        import pandas as pd

        for request in list(self._rows):
            self._close(request, len(self._ends) - 1)
            self._settle(request)
        requests = pd.DataFrame(
            {
                "request_id": pd.array(self._ids, dtype="str"),
                **{name: _column(values) for name, values in (self._counts | self._times).items()},
                "status": pd.Categorical(self._status, categories=["finished", "rejected", "unfinished"]),
                "error": pd.array([self._errors.get(row, "") for row in range(len(self._ids))], dtype="str"),
            }
        )
        self._hand_on(len(self._steps))
        return Frames(requests, self._gaps.itls(len(self._ids)), self._columns.frame(), dict(meta))


def _column(values: array[Any]) -> NDArray[Any]:
    return np.frombuffer(values, dtype=values.typecode) if len(values) else np.empty(0, dtype=values.typecode)
