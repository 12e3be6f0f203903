"""One server: wait for work, schedule, let the step's time pass, commit.

    sync    | host k | device k | host k+1 | device k+1 |       commit k is known before k+1 is decided
    async   | host k | device k  | device k+1 | device k+2      k+2 is decided when k ends, while k+1 runs
                     | host k+1 |

The one idea: the core decides, the profile prices, SimPy waits, the log looks on; this file only passes plans along.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sim.core.block_hash import BlockHasher, OwnTextHasher
from sim.core.decode_run import advance, limit_of, may_be_quiet, outlook
from sim.core.make import make_scheduler
from sim.core.request import Request as CoreRequest
from sim.core.servable import RequestRejected, why_never
from sim.core.step import StepPlan
from sim.engine.leap import plan_leap
from sim.engine.sampler import tokens_without_drafts
from sim.engine.transfers import Transfers
from sim.errors import InputError
from sim.latency.model import StepPrice
from sim.report.log import QuietSteps, quiet_row

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    import simpy

    from sim.core.block_hash import BlockHashes
    from sim.core.config import SchedulerConfig
    from sim.engine.client import Client
    from sim.engine.clock import Clock
    from sim.engine.leap import Leap
    from sim.engine.link import Link
    from sim.engine.pricing import Pricing
    from sim.engine.sampler import Sampler
    from sim.report.log import RunLog, SampledTokens
    from workloads import Request

_SHORT_LEAP, _LONG_LEAP = 16, 1024
"""Rounds that a leap tries where nobody knows when the next request comes, and the most: each one that nobody shortens
doubles the next."""
_MOST_QUIET_ROWS = 8192
"""That are remembered."""
_LIVELOCK_CHECK_STEPS = 1_000
_LIVELOCK_FACTOR = 10
"""Known tokens of all live requests, computed this many times over without one new token: nobody gets anywhere."""


@dataclass(slots=True)
class _Flight:
    """A step between its decision and its output."""

    plan: StepPlan
    start_s: float
    end_s: float
    price: StepPrice
    copy_s: float = 0.0
    """Of its time, what copies take before the device can compute."""
    transferred: Sequence[int] = ()
    """Transfers that were over when it was handed to the device."""

    def is_for(self, running: list[CoreRequest]) -> bool:
        """Everybody who runs gets a token from it."""
        return not self.plan.partial and self.plan.requests == running


@dataclass(slots=True)
class _QuietFlight:
    """The same of a round of a leap: it has been written down already."""

    requests: list[CoreRequest]
    end_s: float

    def is_for(self, running: list[CoreRequest]) -> bool:
        """Everybody who runs gets a token from it."""
        return self.requests == running


class NoProgress(InputError):
    """Requests wait or run, and nothing will ever come of it."""


class Replica:
    """One engine with its scheduler, for one client.

    on_progress: called with the simulated seconds and the requests done, when some are.
    """

    def __init__(
        self,
        env: Clock,
        config: SchedulerConfig,
        pricing: Pricing,
        sampler: Sampler,
        log: RunLog,
        link: Link,
        client: Client,
        *,
        leap: bool,
        on_progress: Callable[[float, int], None] | None,
    ) -> None:
        self.scheduler = make_scheduler(config, cohorts=leap)
        self.observe: Callable[[StepPlan], None] | None = None
        """Called with every plan, for checks."""
        self._env = env
        self._pricing = pricing
        self._sampler = sampler
        self._log = log
        self._transfers = Transfers(link)
        self._unlogged: list[StepPlan] = []
        """Plans without tokens since the last step."""
        self._client = client
        self._on_progress = on_progress
        self._awaited: dict[CoreRequest, Request] = {}
        """Live requests whose answer changes what the client does next."""
        self._work: simpy.Event | None = None
        self._depth = 2 if config.async_scheduling else 1
        self._in_flight: deque[_Flight | _QuietFlight] = deque()
        self._host_free_s = self._device_free_s = 0.0
        self._arrivals = 0
        self._barren_steps = self._barren_tokens = 0
        self._leap: Leap | None = None
        self._longest_leap = _SHORT_LEAP if leap else 0
        self._quiet_rows: dict[tuple[int, int, int, int], bytes] = {}
        """What has been written down of quiet steps, by all that makes them differ."""
        self._round_s = 0.0
        """The last round of the last leap."""
        self._leap_stops: simpy.Event | None = None
        """When its next stop is due."""
        env.process(self._run())

    def submit(self, row: int, request: Request) -> None:
        """A request reaches the engine's queue."""
        core = CoreRequest(
            request.request_id,
            request.prompt_tokens,
            request.output_tokens,
            self._hasher(row, request),
            # Order of arrival, not the time: equal times would make ties, and ties can preempt each other for ever.
            arrival_time=self._arrivals,
            priority=request.priority,
        )
        self._arrivals += 1
        self._log.queued(row, core, self._env.now)
        try:
            self.scheduler.add_request(core)
        except RequestRejected as error:
            self._log.rejected(core, str(error))
            if self._client.awaits(request):
                self._answer(request)
            return
        if self._client.awaits(request):
            self._awaited[core] = request
        if self._leap is not None:
            self._shorten(self._leap)
        if self._work is not None:
            self._work.succeed()
            self._work = None

    def finish_steps(self) -> None:
        """Nothing comes any more, and nobody looks on: steps that have begun end."""
        self._on_progress = None
        leap = self._leap
        if leap is not None and leap.landed < len(leap.landed_s):
            self._land_leap(leap, min(leap.rounds_begun(self._env.now), len(leap.landed_s)))
        while self._in_flight:
            self._land(self._in_flight.popleft())

    def _hasher(self, row: int, request: Request) -> BlockHashes:
        """Names of the request's text; what nobody else sends is named for its row."""
        if request.content is None or not self.scheduler.config.shares_text:
            return OwnTextHasher(row)
        output_content = -2 - row if request.output_content is None else request.output_content
        return BlockHasher(request.content, output_content, self.scheduler.config.block_size)

    def _run(self) -> Generator[simpy.Event]:
        env = self._env
        while True:
            self._leap = self._plan_leap()
            if self._leap is not None:
                yield from self._take_leap(self._leap)
            elif len(self._in_flight) < self._depth and self._has_work() and self._launch(env.now):
                if len(self._in_flight) < self._depth:
                    yield env.at(self._host_free_s)
            elif self._in_flight:
                # The host takes an output in when it has prepared the step after it.
                yield env.at(max(self._in_flight[0].end_s, self._host_free_s))
                self._land(self._in_flight.popleft())
            else:
                yield from self._idle()

    def _has_work(self) -> bool:
        """A step is worth deciding, if only to learn that nothing can be scheduled: KV may have to go to the host."""
        scheduler = self.scheduler
        return bool(scheduler.running) or scheduler.num_held > 0 or scheduler.has_news()

    def _launch(self, now_s: float) -> bool:
        """Decide a step and hand it to the device; False when there is nothing to do before an output is back."""
        plan = self.scheduler.schedule()
        self._check_progress(plan)
        if not plan.requests and not plan.preempted:
            self._transfers.after_step(plan, max(now_s, self._device_free_s))
            self._unlogged.append(plan)
            return False
        if self.observe is not None:
            self.observe(plan)
        price = self._pricing.price(plan)
        start_s = self._host_free_s = now_s + price.host_s
        if start_s < self._device_free_s:
            start_s = self._device_free_s
        ready_s = self._transfers.before_step(plan, start_s)
        end_s = self._device_free_s = ready_s + price.device_s
        ended = self._transfers.ended_by(self._host_free_s)
        self._transfers.after_step(plan, end_s)
        if self._unlogged:
            _count_transfers_of(self._unlogged, plan)
            self._unlogged.clear()
        self._in_flight.append(_Flight(plan, start_s, end_s, price, ready_s - start_s, ended))
        return True

    def _idle(self) -> Generator[simpy.Event]:
        """Wait for work, or for a transfer that somebody waits for."""
        env, transfers = self._env, self._transfers
        transfers.start_stores(max(env.now, self._device_free_s))
        self._work = env.event()
        end_s = transfers.next_end_s()
        yield self._work if end_s is None else self._work | env.at(end_s)
        self._work = None
        self._tell(transfers.ended_by(env.now))

    def _tell(self, transferred: Sequence[int]) -> None:
        for number in transferred:
            self.scheduler.transfer_done(number)

    def _plan_leap(self) -> Leap | None:
        """Many rounds at once, if the next ones are sure to be quiet."""
        if len(self._in_flight) != self._depth - 1 or not self._longest_leap:
            return None
        scheduler, num_held = self.scheduler, self.scheduler.num_held
        if not may_be_quiet(scheduler, num_held):
            return None
        running = scheduler.running
        flying = self._in_flight[0] if self._in_flight else None
        if not (self._log.is_quiet(len(running)) if flying is None else flying.is_for(running)):
            return None
        now_s, next_submit_s = self._env.now, self._client.next_submit_s
        stretches, finishes = outlook(scheduler, num_held, self._rounds_until(next_submit_s - now_s))
        priced = self._pricing.price_decodes(stretches)
        if not priced:
            return None
        in_flight_end_s = None if flying is None else flying.end_s
        stops = finishes if self._awaited else []
        leap = plan_leap(now_s, num_held, priced, in_flight_end_s, stops)
        leap.shorten(next_submit_s)
        return leap

    def _rounds_until(self, ahead_s: float) -> int:
        """Rounds that are worth planning where somebody comes in so many seconds: not many after that."""
        if self._round_s and 0 < ahead_s < _LONG_LEAP * self._round_s:
            return int(1.05 * ahead_s / self._round_s) + 3
        return self._longest_leap

    def _take_leap(self, leap: Leap) -> Generator[simpy.Event]:
        while leap.stops:
            self._leap_stops = self._env.at(leap.landed_s[leap.stops[0] - 1])
            yield self._leap_stops
            self._land_leap(leap, leap.stops.pop(0))
        is_whole = leap.landed == len(leap.landed_s)
        self._longest_leap = min(2 * self._longest_leap, _LONG_LEAP) if is_whole else max(_SHORT_LEAP, leap.landed)

    def _shorten(self, leap: Leap) -> None:
        """Somebody comes."""
        stop = leap.stops[0]
        leap.shorten(self._env.now)
        if leap.stops[0] < stop:
            assert self._leap_stops is not None
            self._leap_stops = self._env.sooner(self._leap_stops, leap.landed_s[leap.stops[0] - 1])

    def _land_leap(self, leap: Leap, rounds: int) -> None:
        """Bring everything to where so many of a leap's rounds, one by one, would have brought it."""
        log, since, last = self._log, leap.landed, rounds - 1
        leap.landed = rounds
        if self._in_flight:
            flight = self._in_flight.popleft()
            if isinstance(flight, _Flight):
                self._write_down(flight, tokens_without_drafts(flight.plan))
        before = (log.num_steps, log.end_s)
        done = advance(self.scheduler, rounds - since)
        num_waiting, num_host_blocks = leap.num_waiting, self.scheduler.num_host_blocks
        for num_seqs, num_running, n, num_free_blocks in done.alike:
            kind = (num_seqs, num_running, num_waiting, num_host_blocks)
            row = self._quiet_rows.get(kind) or self._quiet_row(*kind)
            log.steps_alike(row, n, num_seqs, num_free_blocks)
        log.add_steps(leap.start_s[since:rounds], leap.end_s[since:rounds], done.taken)
        if self._depth > 1:
            self._in_flight.append(_QuietFlight(done.last, leap.end_s[last]))
        for after, request in done.finished:
            num_own = after + 1 - self._depth  # async, that round brought the output of the step before its own
            ended = (before[0] + num_own, leap.end_s[since + num_own - 1]) if num_own else before
            log.finished(request, ended)
        scheduled_s = leap.scheduled_s(last)
        self._round_s = leap.landed_s[last] - scheduled_s
        self._host_free_s = scheduled_s + self._pricing.decodes(len(done.last)).cost.host_s
        self._device_free_s = leap.end_s[last]
        self._barren_steps = self._barren_tokens = 0
        if done.finished:
            self._part([request for _, request in done.finished])

    def _quiet_row(self, num_seqs: int, num_running: int, num_waiting: int, num_host_blocks: int) -> bytes:
        """What is written down of rounds with so many rows."""
        cost, graph = self._pricing.decodes(num_seqs)
        limit = limit_of(self.scheduler, num_seqs, num_waiting)
        steps = QuietSteps(cost.host_s, num_seqs, num_running, num_waiting, limit, graph, num_host_blocks)
        if len(self._quiet_rows) >= _MOST_QUIET_ROWS:
            self._quiet_rows.clear()
        row = self._quiet_rows[num_seqs, num_running, num_waiting, num_host_blocks] = quiet_row(steps)
        return row

    def _land(self, flight: _Flight | _QuietFlight) -> None:
        """A step has run: write it down, commit it, answer whoever is done."""
        if isinstance(flight, _QuietFlight):
            finished = self.scheduler.commit_round(flight.requests)
        else:
            outcome, sampled = self._sampler.sample(flight.plan)
            self._write_down(flight, sampled)
            finished = self.scheduler.commit(flight.plan, outcome)
            self._tell(flight.transferred)
        for request in finished:
            self._log.finished(request)
        self._part(finished)

    def _write_down(self, flight: _Flight, sampled: SampledTokens) -> None:
        self._log.step(flight.plan, (flight.start_s, flight.end_s, flight.copy_s), flight.price, sampled)

    def _part(self, finished: list[CoreRequest]) -> None:
        """These requests are done."""
        for request in finished:
            self._sampler.forget(request)
            if request in self._awaited:
                self._answer(self._awaited.pop(request))
        if finished and self._on_progress is not None:
            self._on_progress(self._env.now, self._log.num_finished)

    def _answer(self, request: Request) -> None:
        """The client reads the answer's end a little later."""
        self._env.call(lambda _: self._client.answered(request), self._pricing.profile.client.response_s)

    def _check_progress(self, plan: StepPlan) -> None:
        """Name who is stuck instead of going round for ever."""
        is_empty = not plan.requests and not plan.preempted and not self._in_flight
        if is_empty and self.scheduler.num_held and self.scheduler.is_settled():
            raise NoProgress(why_never(self.scheduler.held()[0], self.scheduler.config, plan))
        if len(plan.partial) < len(plan.requests):
            self._barren_steps = self._barren_tokens = 0
            return
        self._barren_steps += 1
        self._barren_tokens += plan.total_num_scheduled_tokens
        if self._barren_steps % _LIVELOCK_CHECK_STEPS == 0:
            self._check_livelock(plan)

    def _check_livelock(self, plan: StepPlan) -> None:
        live = [*self.scheduler.running, *self.scheduler.held()]
        enough = _LIVELOCK_FACTOR * sum(request.num_tokens for request in live)
        if self._barren_tokens > enough or self._barren_steps > enough:
            names = ", ".join(request.request_id for request in [*plan.preempted, *plan.requests][:4])
            raise NoProgress(
                f"livelock: {self._barren_steps} steps computed {self._barren_tokens} tokens without a new one;"
                f" requests {names} preempt each other"
            )


def _count_transfers_of(earlier: Sequence[StepPlan], plan: StepPlan) -> None:
    """A plan also counts, for the log, what plans without tokens before it sent on its way."""
    plan.loads = [load for each in (*earlier, plan) for load in each.loads]
    plan.stores = [store for each in (*earlier, plan) for store in each.stores]
    plan.host_queries += sum(each.host_queries for each in earlier)
