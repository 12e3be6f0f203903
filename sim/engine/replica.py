"""One server: wait for work, schedule, let the step's time pass, commit. Synchronous: no step overlaps another.

The one idea: the core decides, the profile prices, SimPy waits, the log looks on; this file only passes plans along.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from sim.core.block_hash import BlockHasher, OwnTextHasher
from sim.core.request import Request as CoreRequest
from sim.core.scheduler import RequestRejected, Scheduler
from sim.engine.sampler import sample
from sim.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    import simpy

    from sim.core.block_hash import BlockHashes
    from sim.core.config import SchedulerConfig
    from sim.core.step import StepPlan
    from sim.engine.pricing import Pricing
    from sim.report.log import RunLog
    from workloads import Request

_LIVELOCK_CHECK_STEPS = 1_000
_LIVELOCK_FACTOR = 10
"""Known tokens of all live requests, computed this many times over without one new token: nobody gets anywhere."""


class NoProgress(InputError):
    """Requests wait or run, and nothing will ever come of it."""


class Replica:
    """One engine with its scheduler. `on_answer` is called when the client has read an answer's end."""

    def __init__(
        self,
        env: simpy.Environment,
        config: SchedulerConfig,
        pricing: Pricing,
        log: RunLog,
        on_answer: Callable[[Request], None],
    ) -> None:
        self.scheduler = Scheduler(config)
        self.observe: Callable[[StepPlan], None] | None = None
        """Called with every plan, for checks."""
        self._env = env
        self._pricing = pricing
        self._log = log
        self._on_answer = on_answer
        self._live: dict[CoreRequest, Request] = {}
        self._work: simpy.Event | None = None
        self._inbox: deque[tuple[int, CoreRequest]] = deque()
        """What has arrived and the core does not know yet, with the number of schedule() calls before it came."""
        self._arrivals = self._schedule_calls = 0
        self._barren_steps = self._barren_tokens = 0
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
        self._live[core] = request
        self._inbox.append((self._schedule_calls, core))
        if self._work is not None:
            self._work.succeed()
            self._work = None

    def _take_in(self) -> None:
        """Hand the core what has arrived, as late as the measured server would."""
        scheduler, inbox, lag = self.scheduler, self._inbox, self._pricing.profile.admission_lag_steps
        # An idle server has no step in the making that a request could come too late for.
        idle = not scheduler.num_unfinished
        while inbox and (idle or inbox[0][0] + lag <= self._schedule_calls):
            _, core = inbox.popleft()
            try:
                scheduler.add_request(core)
            except RequestRejected as error:
                self._log.rejected(core, str(error))
                self._answer(self._live.pop(core))

    def _hasher(self, row: int, request: Request) -> BlockHashes:
        """Names of the request's text; what nobody else sends is named for its row."""
        if request.content is None:
            return OwnTextHasher(row)
        output_content = -2 - row if request.output_content is None else request.output_content
        return BlockHasher(request.content, output_content, self.scheduler.config.block_size)

    def _run(self) -> Generator[simpy.Event]:
        env, scheduler, price, log = self._env, self.scheduler, self._pricing.price, self._log
        while True:
            self._take_in()
            if not scheduler.num_unfinished:
                self._work = env.event()
                yield self._work
                continue
            start_s = env.now
            plan = scheduler.schedule()
            self._schedule_calls += 1
            self._check_progress(plan)
            if self.observe is not None:
                self.observe(plan)
            time, extrapolated = price(plan)
            yield env.timeout(time.host_s + time.device_s)
            log.step(plan, start_s, env.now, time.host_s, extrapolated=extrapolated)
            for request in scheduler.commit(plan, sample(plan)):
                log.finished(request)
                self._answer(self._live.pop(request))

    def _answer(self, request: Request) -> None:
        """The client reads the answer's end a little later."""
        delay = self._env.timeout(self._pricing.profile.client.response_s)
        delay.callbacks.append(lambda _: self._on_answer(request))

    def _check_progress(self, plan: StepPlan) -> None:
        """Name who is stuck instead of going round for ever."""
        if not plan.requests and not plan.preempted:
            head = self.scheduler.waiting.peek()
            raise NoProgress(
                f"request {head.request_id} can never be scheduled: {head.num_tokens} tokens,"
                f" {plan.num_free_blocks} free KV blocks, nothing runs, held back by {plan.limit.value}"
            )
        if len(plan.partial) < len(plan.requests):
            self._barren_steps = self._barren_tokens = 0
            return
        self._barren_steps += 1
        self._barren_tokens += plan.total_num_scheduled_tokens
        if self._barren_steps % _LIVELOCK_CHECK_STEPS == 0:
            self._check_livelock(plan)

    def _check_livelock(self, plan: StepPlan) -> None:
        live = [*self.scheduler.running, *self.scheduler.waiting]
        enough = _LIVELOCK_FACTOR * sum(request.num_tokens for request in live)
        if self._barren_tokens > enough or self._barren_steps > enough:
            names = ", ".join(request.request_id for request in [*plan.preempted, *plan.requests][:4])
            raise NoProgress(
                f"livelock: {self._barren_steps} steps computed {self._barren_tokens} tokens without a new one;"
                f" requests {names} preempt each other"
            )
