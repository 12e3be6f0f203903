"""Writes down what happens in a run, as append-only columns. The one idea: pay per event, not per token.

A request that gets one token in every step needs no entry for each: a *run* of steps, from its first to its last one,
says it all. Runs open at the first token and after a preemption or a skipped step, so only such steps are looked at.
Not for deciding anything: the log only looks on. Nor for what becomes of steps and runs: all of it is `kept`, or only
its `totals` are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sim.core.step import Limit
from sim.latency.graphs import GraphRun
from sim.report.frames import Digest, Frames
from sim.report.kept import Kept
from sim.report.request_rows import FINISHED, REJECTED, RequestRows
from sim.report.step_rows import BLOCK_STEPS, LIMIT_CODES, MODE_CODES, STEP, StepRows
from sim.report.totals import Totals

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sim.core.request import Request as CoreRequest
    from sim.core.step import StepPlan
    from sim.latency.model import StepPrice
    from workloads import Request


SampledTokens = tuple[int, int, int]
"""What came out of a step: output tokens that requests really get (none after the last one of an answer), drafts that
were verified, and how many of them were accepted."""


class QuietSteps(NamedTuple):
    """What steps in a row that only decode have in common."""

    host_s: float
    num_seqs: int
    num_running: int
    num_waiting: int
    limit: Limit | None
    graph: GraphRun
    num_host_blocks: int


def quiet_row(steps: QuietSteps) -> bytes:
    """What is written down of them, but for their times and free blocks."""
    host_s, num_seqs, num_running, num_waiting, limit, graph, num_host_blocks = steps
    return STEP.pack(
        0.0, 0.0, host_s, 0.0, 0.0,
        num_seqs, num_seqs, 0, num_seqs, num_seqs, num_running, num_waiting, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, num_host_blocks, 0, 0, graph.num_tokens - num_seqs,
        num_seqs, num_seqs, False, LIMIT_CODES[limit], MODE_CODES[graph.mode],
    )  # fmt: skip


class RunLog:
    """Rows of requests and of steps, filled while the run goes on.

    response_s: from a step's end to the client. keep_steps: for `frames`; without, for `digest`.
    """

    def __init__(self, response_s: float = 0.0, *, keep_steps: bool = True) -> None:
        self._response_s = response_s
        self._requests = RequestRows()
        self._times, self._counts = self._requests.times, self._requests.counts
        self._steps = StepRows()
        """The latest steps."""
        self._before: Kept | Totals = Kept() if keep_steps else Totals(response_s)
        """What became of the steps before those, and of tokens."""
        self.num_steps = 0
        """That have been written down."""
        self.end_s = 0.0
        """Of the last of them."""
        self._rows: dict[CoreRequest, int] = {}
        """Live requests -> row."""
        self._open: dict[CoreRequest, int] = {}
        """Live requests that got a token in the last step they could -> first step of that run."""
        self._idle: dict[CoreRequest, None] = {}
        """Running requests without an open run, in order: prompts in flight, mostly."""
        self.num_finished = 0
        self.num_tokens = 0
        """Output tokens delivered."""

    # -- requests --------------------------------------------------------------------------------------------------

    def arrived(self, request: Request) -> None:
        """A request is there to be sent: the next row."""
        self._requests.add(request)
        if request.after is None:
            self._before.arrived(request.arrival_s)

    def due(self, row: int, now_s: float) -> None:
        """A follow-up turn's real arrival: its earlier turn was answered and thought about."""
        self._times["arrival_s"][row] = now_s
        self._before.due(now_s)

    def sent(self, row: int, now_s: float) -> None:
        """The client sent it."""
        self._times["send_s"][row] = now_s
        self._before.sent(now_s)

    def queued(self, row: int, request: CoreRequest, now_s: float) -> None:
        """It stands in the engine's queue."""
        self._times["queued_s"][row] = now_s
        self._rows[request] = row

    def rejected(self, request: CoreRequest, error: str) -> None:
        """The engine refused it."""
        row = self._rows.pop(request)
        self._requests.status[row] = REJECTED
        self._requests.errors[row] = error

    def finished(self, request: CoreRequest, ended: tuple[int, float] | None = None) -> None:
        """It got its last token in the last step; or `ended`: the number of steps up to that one, and its end."""
        num_steps, end_s = ended or (self.num_steps, self.end_s)
        row = self._rows[request]
        self._settle(request, num_steps)
        self._times["finish_s"][row] = end_s + self._response_s
        self._requests.status[row] = FINISHED
        self.num_finished += 1

    # -- steps -----------------------------------------------------------------------------------------------------

    def step(
        self, plan: StepPlan, times_s: tuple[float, float, float], price: StepPrice, sampled: SampledTokens
    ) -> None:
        """A step has run: when it started and ended, and what copies took of that. Call it before its plan's commit."""
        for request, hit in plan.admitted:
            self._admitted(request, hit, times_s[0])
        for request, _ in plan.swapped_in:
            self._idle[request] = None
        for request in plan.preempted:
            self._idle.pop(request, None)
            self._close(request, self.num_steps)
        if len(plan.requests) < len(self._open) + len(self._idle):
            self._close_skipped(plan)
        num_continued = len(self._open)
        if self._idle:
            self._open_started(plan, times_s[1])
        self._append_step(plan, times_s, price, sampled, num_continued)

    def is_quiet(self, num_running: int) -> bool:
        """Everybody who runs got a token in the last step: while that goes on there are only steps to write down."""
        return not self._idle and len(self._open) == num_running

    def steps_alike(self, row: bytes, num_steps: int, num_tokens: int, num_free_blocks: int) -> None:
        """A row that is the same for so many steps, each with so many tokens: the next ones that are added.

        num_free_blocks: before the first of them.
        """
        self._steps.add_alike(row, num_steps, num_free_blocks)
        self.num_tokens += num_tokens * num_steps

    def add_steps(self, start_s: list[float], end_s: list[float], taken_blocks: list[int]) -> None:
        """Steps of `steps_alike` have run: when each started and ended, and the blocks that it took."""
        held = self._steps.add(start_s, end_s, taken_blocks)
        self.num_steps += len(end_s)
        self.end_s = end_s[-1]
        while held >= BLOCK_STEPS:
            self._hand_on(BLOCK_STEPS)
            held -= BLOCK_STEPS

    def _hand_on(self, num_steps: int) -> None:
        self._before.add(self._steps.take(num_steps), self._requests)

    def _append_step(
        self,
        plan: StepPlan,
        times_s: tuple[float, float, float],
        price: StepPrice,
        sampled: SampledTokens,
        num_continued: int,
    ) -> None:
        start_s, end_s, copy_s = times_s
        shape = price.shape
        num_sampled, num_draft_tokens, num_accepted_tokens = sampled
        num_tokens, num_seqs = shape.num_tokens, shape.num_seqs
        hit_tokens = 0
        for _, hit in plan.admitted:
            hit_tokens += hit
        row = STEP.pack(
            start_s,
            end_s,
            price.host_s,
            copy_s,
            shape.chunk_pairs,
            num_tokens,
            num_seqs,
            shape.chunk_tokens,
            # A decode that verifies drafts is a decode, though it has several tokens.
            num_seqs - len(plan.chunks) + len(plan.num_drafts),
            num_sampled,
            plan.num_running,
            plan.num_waiting,
            plan.num_free_blocks,
            len(plan.admitted),
            len(plan.preempted),
            hit_tokens,
            *self._largest_chunk(plan),
            len(plan.swapped_out),
            _num_blocks(plan.swapped_out, plan.stores) if plan.swapped_out or plan.stores else 0,
            _num_blocks(plan.swapped_in, plan.loads) if plan.swapped_in or plan.loads else 0,
            plan.host_queries,
            plan.num_host_blocks,
            num_draft_tokens,
            num_accepted_tokens,
            price.graph.num_tokens - num_tokens,
            len(self._open),
            num_continued,
            price.extrapolated,
            LIMIT_CODES[plan.limit],
            MODE_CODES[price.graph.mode],
        )
        self.steps_alike(row, 1, num_sampled, plan.num_free_blocks)
        self.add_steps([start_s], [end_s], [0])  # those are free when it has been made: it takes no more

    def _largest_chunk(self, plan: StepPlan) -> tuple[int, int, int]:
        """Of a prompt, the first of equals: its row, tokens and context; zeros where there is none."""
        at, most = 0, 0
        for i in plan.chunks:
            if plan.num_scheduled_tokens[i] > most and i not in plan.num_drafts:
                at, most = i, plan.num_scheduled_tokens[i]
        return (self._rows[plan.requests[at]], most, plan.num_computed_tokens[at]) if most else (0, 0, 0)

    def _admitted(self, request: CoreRequest, hit: int, start_s: float) -> None:
        row = self._rows[request]
        self._idle[request] = None
        if self._times["scheduled_s"][row] != self._times["scheduled_s"][row]:  # NaN: the first time
            self._times["scheduled_s"][row] = start_s
            self._counts["cached_tokens"][row] = hit

    def _close_skipped(self, plan: StepPlan) -> None:
        """Some running requests got nothing in this step (the budget was used up): their runs end before it."""
        scheduled = set(map(id, plan.requests))
        for request in [request for request in self._open if id(request) not in scheduled]:
            self._close(request, self.num_steps)
            self._idle[request] = None

    def _open_started(self, plan: StepPlan, end_s: float) -> None:
        """Requests that get a token again, or their first one, in this step."""
        started = list(self._idle)
        if plan.partial or len(plan.requests) < len(self._open) + len(started):
            partial = {id(plan.requests[position]) for position in plan.partial}
            scheduled = set(map(id, plan.requests))
            started = [request for request in started if id(request) in scheduled and id(request) not in partial]
        first_token_s = self._times["first_token_s"]
        for request in started:
            del self._idle[request]
            self._open[request] = self.num_steps
            row = self._rows[request]
            if first_token_s[row] == first_token_s[row]:
                self._before.resumed(request, end_s)
            else:  # NaN: the first one
                first_token_s[row] = end_s + self._response_s

    def _close(self, request: CoreRequest, num_steps: int) -> None:
        """Its run, if there is one, ended with the last of so many steps."""
        first = self._open.pop(request, None)
        if first is not None:
            self._before.run_over(request, first, num_steps, self.end_s)

    def _settle(self, request: CoreRequest, num_steps: int) -> None:
        """It gets no more tokens after so many steps: write its counts, and forget it."""
        self._close(request, num_steps)
        row = self._rows.pop(request)
        self._idle.pop(request, None)
        self._counts["output_tokens"][row] = request.num_output_tokens
        if request.num_preemptions:
            self._counts["preemptions"][row] = request.num_preemptions
            self._counts["swaps"][row] = request.num_swaps
            self._counts["recomputed_tokens"][row] = request.num_recomputed_tokens
        self._before.settled(request, row)

    # -- result ----------------------------------------------------------------------------------------------------

    def frames(self, meta: Mapping[str, object]) -> Frames:
        """The tables of all that has been logged; requests still on their way are settled as they stand."""
        kept = self._before
        assert isinstance(kept, Kept), "steps are kept"
        self._settle_all()
        return Frames(self._requests.frame(), kept.itls(len(self._requests)), kept.steps(), dict(meta))

    def digest(self, meta: Mapping[str, object]) -> Digest:
        """What is left of a run whose steps were not kept."""
        totals = self._before
        assert isinstance(totals, Totals), "steps are not kept"
        self._settle_all()
        totals.close()
        peak = totals.most_tokens_per_s()
        return Digest(self._requests, totals.gaps, totals.steps, peak, dict(meta))

    def _settle_all(self) -> None:
        for request in list(self._rows):
            self._settle(request, self.num_steps)
        self._hand_on(len(self._steps))


def _num_blocks(*moved: Sequence[tuple[object, int]]) -> int:
    return sum([blocks for each in moved for _, blocks in each])
