"""One server: wait for work, schedule, let the step's time pass, commit. Synchronous scheduling: no step overlaps another.

The one idea: the core decides, the profile prices, SimPy waits, the log looks on; this file only passes plans along.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.core.scheduler import RequestRejected, Scheduler
from sim.engine.sampler import sample
from sim.errors import InputError
from sim.latency.shape import StepShape

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    import simpy

    from sim.core.config import SchedulerConfig
    from sim.core.step import StepPlan
    from sim.latency.profile import Profile
    from sim.report.log import RunLog
    from workloads import Request

_LIVELOCK_CHECK_STEPS = 1_000
_LIVELOCK_FACTOR = 10
"""Known tokens of all live requests, computed this many times over without one new token: nobody gets anywhere."""


class NoProgress(InputError):
    """Requests wait or run, and nothing will ever come of it."""


class Replica:
    """One engine with its scheduler, priced by a profile. `on_answer(row)` is called when a client has its answer."""

    def __init__(
        self,
        env: simpy.Environment,
        config: SchedulerConfig,
        profile: Profile,
        log: RunLog,
        on_answer: Callable[[str], None],
        observe: Callable[[Scheduler, StepPlan], None] | None = None,
    ) -> None:
        self.scheduler = Scheduler(config)
        self._env = env
        self._profile = profile
        self._log = log
        self._on_answer = on_answer
        self._observe = observe
        self._work: simpy.Event | None = None
        self._arrivals = 0
        self._barren_steps = self._barren_tokens = 0
        env.process(self._run())

    def submit(self, row: int, request: Request) -> None:
        """A request reaches the engine's queue, or is refused."""
        # Text that occurs once gets ids of its own: -3, -4 for the first row, -5, -6 for the next.
        own = -3 - 2 * row
        core = self.scheduler.make_request(
            request.request_id,
            request.content if request.content is not None else ((own, request.prompt_tokens),),
            own - 1 if request.output_content is None else request.output_content,
            request.output_tokens,
            # Order of arrival, not the time: equal times would make ties, and ties can preempt each other for ever.
            arrival_time=self._arrivals,
            priority=request.priority,
        )
        self._arrivals += 1
        try:
            self.scheduler.add_request(core)
        except RequestRejected as error:
            self._log.rejected(row, self._env.now, str(error))
            self._answer(request.request_id)
            return
        self._log.queued(row, core, self._env.now)
        if self._work is not None:
            self._work.succeed()
            self._work = None

    def _run(self) -> Generator[simpy.Event]:
        env, scheduler, profile, log = self._env, self.scheduler, self._profile, self._log
        while True:
            if not scheduler.num_unfinished:
                self._work = env.event()
                yield self._work
            start_s = env.now
            plan = scheduler.schedule()
            self._check_progress(plan)
            shape = StepShape.from_plan(plan)
            time = profile.step_time(shape)
            if self._observe is not None:
                self._observe(scheduler, plan)
            yield env.timeout(time.host_s + time.device_s)
            log.step(plan, start_s, env.now, time.host_s, extrapolated=profile.outside(shape) is not None)
            for request in scheduler.commit(plan, sample(plan)):
                log.finished(request)
                self._answer(request.request_id)

    def _answer(self, request_id: str) -> None:
        """The client reads the answer a little later."""
        delay = self._env.timeout(self._profile.client.response_s)
        delay.callbacks.append(lambda _: self._on_answer(request_id))

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
