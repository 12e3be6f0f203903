"""Processes that die, and what becomes of their tasks."""

from __future__ import annotations

import json
import os
import sys

import pytest

from sim.errors import InputError
from sim.sweeps.backends import DIED, all_cores, local
from sim.sweeps.ray_cluster import ray_cluster


class Deadly:
    """A task that kills each process that unpacks it."""

    key = "deadly"

    def __reduce__(self) -> tuple[object, tuple[int]]:
        return os._exit, (9,)


@pytest.fixture
def tasks(study):
    plan = study({"max_num_seqs": [1, 2, 3, 4, 5]})
    return [task for setting in plan.settings for task in plan.tasks(setting)]


def test_in_processes_as_in_this_one(tasks) -> None:
    here = {task.key: text for task, text in local(1)(tasks)}
    there = {task.key: text for task, text in local(2)(tasks)}
    assert here == there
    assert len(here) == 5
    assert all("summary" in json.loads(text) for text in here.values())


def test_all_cores_of_the_largest_machine_are_no_more_than_may_be_asked_for(monkeypatch) -> None:
    monkeypatch.setattr("joblib.cpu_count", lambda: 4096)
    local(all_cores())
    with pytest.raises(InputError, match="jobs: got 4096"):
        local(4096)


def test_a_task_that_kills_its_process_fails_and_all_others_are_done(tasks) -> None:
    mixed = [*tasks[:2], Deadly(), *tasks[2:]]
    done = {task.key: text for task, text in local(2)(mixed)}
    assert done.pop("deadly") == DIED
    assert "was killed" in json.loads(DIED)["error"]
    assert set(done) == {task.key for task in tasks}
    assert all("summary" in json.loads(text) for text in done.values())


def test_a_sweep_that_stops_in_the_middle_says_nothing_of_its_own(tasks) -> None:
    """As where the disk is full: joblib would warn, which is an error here, that it has cancelled the rest."""
    running = local(2)(tasks)
    next(running)
    running.close()


def test_ray_where_it_is_not_installed_says_how(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install 'elpase\[ray\]'"):
        ray_cluster()
