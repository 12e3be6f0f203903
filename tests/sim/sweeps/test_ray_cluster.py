"""On a real Ray cluster of two worker processes: the same bytes as here, whatever dies meanwhile."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from sim.errors import InputError
from sim.sweeps.backends import DIED, local
from sim.sweeps.files import write_sweep
from sim.sweeps.ray_cluster import ray_cluster
from sim.sweeps.store import Store
from sim.sweeps.sweep import run_study

ray = pytest.importorskip("ray")
cluster_utils = pytest.importorskip("ray.cluster_utils")
pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own

HEADER = "arrival_s,prompt_tokens,output_tokens\n"


@pytest.fixture(scope="module")
def cluster():
    made = started()
    yield ray_cluster(made.address)
    ray.shutdown()
    made.shutdown()


def started(attempts: int = 3):
    """Ray gives itself 30 s to start, which is not always enough on a busy machine."""
    try:
        return cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    except Exception as error:
        if attempts == 1 or "timed out during startup" not in str(error):
            raise
        return started(attempts - 1)


@pytest.fixture
def trace(tmp_path) -> Path:
    path = tmp_path / "a folder of mine" / "day.csv"
    path.parent.mkdir()
    path.write_text(HEADER + "".join(f"{i / 20},{100 + i},{5 + i % 7}\n" for i in range(60)))
    return path


def tasks_of(plan):
    return [task for setting in plan.settings for task in plan.tasks(setting)]


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_the_same_bytes_as_here(cluster, study, trace, tmp_path) -> None:
    """Tables, picture and each run's result; drawn workloads, and a file that the cluster's machine gets sent."""
    assert ray.cluster_resources()["CPU"] == 2
    plan = study({"max_num_seqs": [1, 2, 8], "rate_scale": [1.0, 2.0]}, replications=2)
    for name, backend in (("here", local(1)), ("there", cluster)):
        out = tmp_path / name
        write_sweep(run_study(plan, Store(out / "tasks"), backend, {"p99_ttft_ms": 500.0}), out)
    assert files(tmp_path / "here") == files(tmp_path / "there")
    assert len(files(tmp_path / "there/tasks")) > 12


def test_a_file_travels_and_is_named_as_here(cluster, study, trace) -> None:
    plan = study({"max_num_seqs": [1, 2]}, **dict.fromkeys(("num_prompts", "request_rate", "input_len", "output_len")))
    plan = type(plan)(
        **{f: getattr(plan, f) for f in plan.__slots__} | {"workload": plan.workload | {"trace": str(trace)}}
    )
    tasks = tasks_of(plan)
    here = {task.key: text for task, text in local(1)(tasks)}
    assert {task.key: text for task, text in cluster(tasks)} == here
    trace.write_text(trace.read_text() + "3.5,oh,5\n")
    [(_, text)] = cluster(tasks_of(plan)[:1])
    assert json.loads(text)["error"].startswith(f"{trace}:62: prompt_tokens: got 'oh'")


def test_a_worker_that_is_killed_is_replaced(cluster, study) -> None:
    """kill -9 of each worker process once, in the middle of its task."""
    plan = study({"max_num_seqs": [1, 2, 3, 4]}, num_prompts=3000, output_len=30)
    tasks = tasks_of(plan)
    here = {task.key: text for task, text in local(2)(tasks)}

    killed: list[int] = []

    def kill() -> None:
        while not killed:
            time.sleep(0.2)
            killed.extend(workers())
        for pid in killed:
            os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    assert {task.key: text for task, text in cluster(tasks)} == here
    assert killed


def workers() -> list[int]:
    """Process ids of workers that are in the middle of a task."""
    busy = []
    for status in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if status.read_bytes().startswith(b"ray::_served"):
                busy.append(int(status.parent.name))
        except OSError:
            continue
    return busy


class Deadly:
    """A task that kills each process that unpacks it."""

    key = "deadly"
    workload = {"trace": "random"}  # noqa: RUF012

    def __reduce__(self) -> tuple[object, tuple[int]]:
        return os._exit, (9,)


def test_a_task_that_kills_each_worker_fails_and_the_others_are_done(cluster, study) -> None:
    tasks = tasks_of(study({"max_num_seqs": [1, 2]}))
    done = {task.key: text for task, text in cluster([tasks[0], Deadly(), tasks[1]])}
    assert done.pop("deadly") == DIED
    assert set(done) == {task.key for task in tasks}


@pytest.mark.parametrize(("part", "value"), [("__version__", "99.0"), ("code_digest", lambda: "99.0")])
def test_another_version_there_is_told_and_so_are_other_sources(cluster, study, monkeypatch, part, value) -> None:
    """Their results would be kept as this code's."""
    monkeypatch.setattr(f"sim.sweeps.ray_cluster.{part}", value)
    [(_, text)] = cluster(tasks_of(study({"max_num_seqs": [1]})))
    asked, _, there = json.loads(text)["error"].partition(" asked, the cluster's machine has ")
    assert "99.0" in asked
    assert there.startswith("elpase 0.")
    assert "99.0" not in there


def test_no_cluster_there(monkeypatch) -> None:
    monkeypatch.setattr(ray, "init", lambda **_: (_ for _ in ()).throw(ConnectionError("refused")))
    with pytest.raises(InputError, match="no Ray cluster there: refused"):
        ray_cluster("127.0.0.1:1")
