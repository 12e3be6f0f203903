"""Where tasks run: in processes of this machine, or on a Ray cluster (`ray_cluster`). Results come in any order.

Not for keeping them. The one idea: a task is a value and its result is a text, so it does not matter who runs it; one
whose process died is given to another, and one that kills each process it gets is told as failed.
"""

from __future__ import annotations

import json
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cache

import joblib
from joblib.externals.loky.process_executor import TerminatedWorkerError

from sim.errors import InputError
from sim.sweeps.task import Task, run, run_in_worker

Backend = Callable[[Sequence[Task]], Iterator[tuple[Task, str]]]

MOST_JOBS = 1024
"""More would take longer to start than they could save, and all of a machine's memory."""

ATTEMPTS = 3
"""How often a task's process may die before the task is given up."""

DIED = json.dumps({"error": f"its process was killed {ATTEMPTS} times (out of memory?)"})


_LOOKS_EVERY_S = 1.0
"""How often a process of the pool looks whether the sweep is still there."""


def local(jobs: int) -> Backend:
    """`jobs` processes of this machine; with one, this very process. Raises InputError for more than it could hold."""
    if not 1 <= jobs <= MOST_JOBS:
        raise InputError(field="jobs", value=jobs, expected=f"from 1 to {MOST_JOBS} processes")

    def each(tasks: Sequence[Task]) -> Iterator[tuple[Task, str]]:
        if jobs == 1 or len(tasks) == 1:
            yield from ((task, run(task)) for task in tasks)
        else:
            yield from _in_pool(tasks, jobs)

    return each


def all_cores() -> int:
    """Cores that this process may use, as far as `local` takes so many."""
    return min(int(joblib.cpu_count()), MOST_JOBS)


def _in_pool(tasks: Sequence[Task], jobs: int) -> Iterator[tuple[Task, str]]:
    """All at once. A process that dies takes the pool with it, and which task it had cannot be told: all that is left
    starts again. When that does not help, the next few are run one by one, and after those all at once as before.
    """
    left = list(range(len(tasks)))
    deaths = 0
    while left:
        try:
            for index, text in _pooled(tasks, left, jobs):
                left.remove(index)
                yield tasks[index], text
        except TerminatedWorkerError:
            deaths += 1
        if deaths == ATTEMPTS - 1:
            deaths = 0
            # Tasks are handed out in order, so whoever it was is among the first; two for each process, to be sure.
            for index in left[: 2 * jobs]:
                left.remove(index)
                yield tasks[index], _alone(tasks[index])


def _alone(task: Task) -> str:
    try:
        # Two jobs, as joblib runs a single job in this process, which would die with it.
        [(_, text)] = _pooled([task], [0], jobs=2)
    except TerminatedWorkerError:
        return DIED
    return text


def _pooled(tasks: Sequence[Task], indices: Sequence[int], jobs: int) -> Iterator[tuple[int, str]]:
    # One task per message: they take long enough, and a bar wants to hear of each.
    pool = joblib.Parallel(n_jobs=jobs, backend="loky", batch_size=1, return_as="generator_unordered")
    results = pool([joblib.delayed(_numbered)(os.getpid(), index, tasks[index]) for index in indices])
    try:
        for result in results:  # noqa: UP028  # `yield from` would close it outside of the silence below
            yield result
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that tasks were cancelled, where the sweep was stopped
            results.close()


def _numbered(sweep_pid: int, index: int, task: Task) -> tuple[int, str]:
    _end_with(sweep_pid)
    return index, run_in_worker(task)


@cache
def _end_with(sweep_pid: int) -> None:
    """Have this process of the pool end when the one that started it does: killed, that cannot say so, and the pool
    would compute on, and then wait for minutes.
    """
    threading.Thread(target=_look_for, args=(sweep_pid,), daemon=True).start()


def _look_for(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOKS_EVERY_S)
    os._exit(1)
