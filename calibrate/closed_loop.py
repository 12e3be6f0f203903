"""Serves a workload for real: the project's own scheduler decides, a forward pass computes, the wall clock says when.

Not for how the pass is computed (harness) nor for figures (sim.report). The one idea: the loop writes the same log as
the simulator does, so both runs are summed up by the same formulas, and nothing but the seconds differs.
Synchronous: a step's output is known before the next one is decided.
"""

from __future__ import annotations

import math
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from calibrate.harness.inputs import InputBatch, Piece
from sim.core.block_hash import BlockHasher
from sim.core.make import make_scheduler
from sim.core.request import Request as CoreRequest
from sim.core.servable import RequestRejected, why_never
from sim.core.step import StepOutcome
from sim.errors import InputError
from sim.latency.graphs import GraphMode, GraphRun
from sim.latency.model import StepPrice
from sim.latency.shape import StepShape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from calibrate.harness.inputs import StepInputs
    from sim.core.config import SchedulerConfig
    from sim.core.step import StepPlan
    from sim.report.log import RunLog
    from workloads import Request

    Ints = NDArray[np.int64]


class Forward(Protocol):
    """What computes a step."""

    vocab_size: int
    """Token ids are below this."""

    def run(self, inputs: StepInputs) -> tuple[Ints, float]:
        """Compute a step, wait for it; the sampled tokens, in the order of `inputs.sampled`, and the device's seconds.

        Seconds from the first byte that is handed to the device until the sampled tokens are back.
        """


class Clock(Protocol):
    """Where the time comes from: the wall, or a test."""

    def now_s(self) -> float:
        """Seconds since some moment."""

    def wait_until(self, due_s: float) -> None:
        """Return at that time."""


class WallClock:
    """Real time, from the moment it is made."""

    def __init__(self) -> None:
        self._start_s = time.perf_counter()

    def now_s(self) -> float:
        """Seconds since it was made."""
        return time.perf_counter() - self._start_s

    def wait_until(self, due_s: float) -> None:
        """Sleep until then."""
        time.sleep(max(0.0, due_s - self.now_s()))


@dataclass(frozen=True, slots=True)
class RealStep:
    """A step as it was run."""

    plan: StepPlan
    inputs: StepInputs
    host_s: float
    device_s: float


@dataclass(slots=True)
class _Live:
    row: int
    request: Request
    known: Ints
    """Prompt, then room for all that will be generated."""
    batch_row: int | None = None
    """Its row among the inputs while it runs."""


class ClosedLoop:
    """One real server of one run. `on_step` is told every step, `on_done` the seconds and the requests done."""

    def __init__(
        self,
        config: SchedulerConfig,
        forward: Forward,
        log: RunLog,
        clock: Clock,
        *,
        max_in_flight: int | None = None,
        on_step: Callable[[RealStep], None] = lambda _step: None,
        on_done: Callable[[float, int], None] = lambda _seconds, _done: None,
    ) -> None:
        if config.async_scheduling or config.num_speculative_tokens:
            raise InputError("real steps run one after the other: --no-async-scheduling, without speculation")
        if config.kv_preemption != "recompute":
            raise InputError("real passes copy no KV to the host: --kv-preemption recompute")
        self._scheduler = make_scheduler(config)
        self._config = config
        self._forward = forward
        self._log = log
        self._clock = clock
        self._cap = math.inf if max_in_flight is None else max_in_flight
        self._on_step = on_step
        self._on_done = on_done
        self._batch = InputBatch(config.max_num_seqs, config.max_model_len, config.block_size)
        self._to_send: deque[_Live] = deque()
        self._slots = math.inf if max_in_flight is None else max_in_flight
        """Free ones while the last step ran."""
        self._sent: list[tuple[_Live, float]] = []
        """What was sent when the last step ended, with that time."""
        self._live: dict[CoreRequest, _Live] = {}

    def serve(self, requests: Iterable[Request]) -> None:
        """Send the requests at their times and serve them until all are answered.

        Raises InputError for follow-up turns, and where a request can get nowhere.
        """
        self._to_send = deque(self._prepared(row, request) for row, request in enumerate(requests))
        busy_since_s = self._clock.now_s()
        while self._take_in(busy_since_s) or self._to_send:
            if not self._scheduler.num_unfinished:
                self._clock.wait_until(self._to_send[0].request.arrival_s)
                busy_since_s = self._clock.now_s()
                continue
            busy_since_s = self._step(busy_since_s)

    def _prepared(self, row: int, request: Request) -> _Live:
        """A request with its text, made before the clock matters."""
        if request.after is not None:
            raise InputError(f"request {request.request_id}: follow-up turns are not served for real")
        self._log.arrived(request)
        longest = min(request.prompt_tokens + request.output_tokens, self._config.max_model_len)
        known = np.zeros(longest, dtype=np.int64)
        prompt = prompt_tokens(row, request, self._forward.vocab_size)[:longest]
        known[: prompt.size] = prompt
        return _Live(row, request, known)

    def _take_in(self, now_s: float) -> int:
        """Queue what has arrived by now; the number of requests that the server has.

        A client whose slot was freed by the step that has just ended cannot be quicker than the server's next
        decision: its request stands in the queue one step later, as in the simulator.
        """
        self._queue_sent()
        while self._to_send and self._to_send[0].request.arrival_s <= now_s and self._in_flight < self._cap:
            live = self._to_send.popleft()
            if self._slots > 0:  # while the last step ran
                self._submit(live, live.request.arrival_s)
            else:
                self._sent.append((live, now_s))
            self._slots -= 1
        self._slots = self._cap - self._in_flight
        if not self._live:  # an idle server decides when something comes
            self._queue_sent()
        return len(self._live)

    @property
    def _in_flight(self) -> int:
        return len(self._live) + len(self._sent)

    def _queue_sent(self) -> None:
        for live, send_s in self._sent:
            self._submit(live, send_s)
        self._sent.clear()

    def _submit(self, live: _Live, send_s: float) -> None:
        request = live.request
        core = CoreRequest(
            request.request_id,
            request.prompt_tokens,
            request.output_tokens,
            _hasher(live.row, request, self._config.block_size),
            arrival_time=live.row,
            priority=request.priority,
        )
        self._log.sent(live.row, send_s)
        self._log.queued(live.row, core, send_s)
        try:
            self._scheduler.add_request(core)
        except RequestRejected as error:
            self._log.rejected(core, str(error))
            return
        self._live[core] = live

    def _step(self, since_s: float) -> float:
        """Decide, compute and commit one step; `since_s` is when the last one ended. When this one has ended."""
        plan = self._scheduler.schedule()
        for request in plan.preempted:
            self._leave_batch(self._live[request])
        if not plan.requests:
            self._require_progress(plan)
            self._scheduler.commit(plan, StepOutcome([]))
            return since_s
        inputs = self._batch.inputs(self._pieces(plan))
        tokens, device_s = self._forward.run(inputs)
        end_s = self._clock.now_s()
        for piece, token in zip(inputs.sampling, tokens.tolist(), strict=True):
            self._batch.append(piece.row, piece.start + piece.num_tokens, token)
        host_s = max(0.0, end_s - since_s - device_s)
        as_it_was = GraphRun(plan.total_num_scheduled_tokens, GraphMode.NONE)  # padding is the forward pass's business
        price = StepPrice(StepShape.from_plan(plan), host_s, device_s, as_it_was, extrapolated=False)
        self._log.step(plan, (since_s, end_s, 0.0), price, (inputs.sampled.size, 0, 0))
        self._commit(plan, end_s)
        self._on_step(RealStep(plan, inputs, host_s, device_s))
        return end_s

    def _pieces(self, plan: StepPlan) -> list[Piece]:
        """What each request computes; its row of the inputs learns of new blocks."""
        batch, live, partial = self._batch, self._live, set(plan.partial)
        pieces = []
        for at, request in enumerate(plan.requests):
            state = live[request]
            row, total = state.batch_row, len(request.blocks)
            if row is None:
                row = state.batch_row = batch.add(state.known[: request.num_tokens])
            held = batch.num_blocks(row)
            if held < total:
                batch.hold(row, [block.block_id for block in request.blocks[held:]], total)
            computed, count = plan.num_computed_tokens[at], plan.num_scheduled_tokens[at]
            pieces.append(Piece(row, computed, count, at not in partial))
        return pieces

    def _commit(self, plan: StepPlan, end_s: float) -> None:
        sampled = [1] * len(plan.requests)
        for at in plan.partial:
            sampled[at] = 0
        for request in self._scheduler.commit(plan, StepOutcome(sampled)):
            self._log.finished(request)
            self._leave_batch(self._live.pop(request))
            self._on_done(end_s, self._log.num_finished)

    def _leave_batch(self, live: _Live) -> None:
        """Free its row; what it has generated is kept with it, as a preempted request computes it again."""
        if live.batch_row is None:
            return
        live.known[:] = self._batch.tokens(live.batch_row, live.known.size)
        self._batch.drop(live.batch_row)
        live.batch_row = None

    def _require_progress(self, plan: StepPlan) -> None:
        if not plan.preempted:
            raise InputError(why_never(self._scheduler.waiting.peek(), self._scheduler.config, plan))


def prompt_tokens(row: int, request: Request, vocab_size: int) -> Ints:
    """Token ids of a prompt: random, but the same for the same content, so that shared prefixes really are."""
    drawn = [_tokens(content_id, vocab_size, count) for content_id, count in _content(row, request)]
    return np.concatenate(drawn)[: request.prompt_tokens]


def _content(row: int, request: Request) -> tuple[tuple[int, int], ...]:
    """A prompt's pieces; text that nobody else has is named for its row, since its blocks are real ones, with ids."""
    return request.content or ((-2 - row, request.prompt_tokens),)


def _tokens(content_id: int, vocab_size: int, count: int) -> Ints:
    """The first `count` tokens of a content; seeds are not negative, so own texts get odd ones and shared ones even."""
    seed = 2 * content_id if content_id >= 0 else -2 * content_id + 1
    return np.random.default_rng(seed).integers(0, vocab_size, count)


def _hasher(row: int, request: Request, block_size: int) -> BlockHasher:
    output_content = -2 - row if request.output_content is None else request.output_content
    return BlockHasher(_content(row, request), output_content, block_size)
