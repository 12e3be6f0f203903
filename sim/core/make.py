"""The scheduler that a config asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.core.async_offloading import AsyncOffloadingScheduler
from sim.core.async_scheduler import AsyncScheduler
from sim.core.offloading import OffloadingScheduler
from sim.core.scheduler import Scheduler

if TYPE_CHECKING:
    from sim.core.config import SchedulerConfig


def make_scheduler(config: SchedulerConfig, *, cohorts: bool = True) -> Scheduler:
    """Async or sync, as `config.async_scheduling` says; with a host tier where `config.kv_preemption` asks for one."""
    if config.kv_preemption == "offload":
        return (AsyncOffloadingScheduler if config.async_scheduling else OffloadingScheduler)(config, cohorts=cohorts)
    return (AsyncScheduler if config.async_scheduling else Scheduler)(config, cohorts=cohorts)
