"""Puts the parts of a simulated service together and lets them run: a client and one replica.

Not for what they do (`client`, `replica`) nor for what a run means (`sim.experiment`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simpy.core import StopSimulation

from sim.core.check import Invariants
from sim.engine.client import Client
from sim.engine.clock import Clock
from sim.engine.replica import Replica
from sim.interrupt import handling_ctrl_c

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import simpy

    from sim.core.config import SchedulerConfig
    from sim.engine.link import Link
    from sim.engine.pricing import Pricing
    from sim.engine.sampler import Sampler
    from sim.report.log import RunLog
    from workloads import Request


def serve(
    requests: Iterable[Request],
    config: SchedulerConfig,
    pricing: Pricing,
    sampler: Sampler,
    log: RunLog,
    link: Link,
    max_in_flight: int | None,
    *,
    check: bool,
    leap: bool,
    on_progress: Callable[[float, int], None] | None,
) -> bool:
    """Send `requests` to a replica until all are answered; False when Ctrl-C ended it early."""
    env = Clock()

    leap = leap and not check
    client = Client(env, requests, pricing.profile.client, log, max_in_flight)
    replica = Replica(env, config, pricing, sampler, log, link, client, leap=leap, on_progress=on_progress)
    if check:
        replica.observe = Invariants(replica.scheduler).plan_made
    client.send_to(replica.submit)
    finished = _run(env)
    if not finished:
        replica.finish_steps()
    assert not finished or not replica.scheduler.num_unfinished, "somebody waits, and nothing will happen any more"
    replica.scheduler.cohort.settle()  # the log says how far everybody has come
    return finished


def _run(env: simpy.Environment) -> bool:
    """Run to the end; False when Ctrl-C came. It takes effect between two events, where no record is half written.

    A second Ctrl-C does not wait for that: KeyboardInterrupt.
    """
    stop = env.event()
    stop.callbacks.append(StopSimulation.callback)

    def on_ctrl_c() -> None:
        if stop.triggered:
            raise KeyboardInterrupt
        stop.succeed()

    try:
        with handling_ctrl_c(on_ctrl_c):
            env.run()
    except KeyboardInterrupt:
        if stop.triggered:
            raise
        return False  # raised by somebody who looks on, or where signals are not ours to handle
    return not stop.triggered
