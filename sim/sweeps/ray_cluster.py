"""Tasks on a Ray cluster: the same tasks, spread over its machines.

Not needed otherwise: Ray is an extra, and this is the only module that imports it. The one idea: nothing of this
machine's disk is there, so a trace file travels with its task, once for each machine; elpase itself is installed there,
in the same version.
"""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from sim import __version__
from sim.errors import InputError, one_line
from sim.sweeps.backends import ATTEMPTS, DIED
from sim.sweeps.code import code_digest
from sim.sweeps.task import run_in_worker
from sim.workload import FILE, kind_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sim.sweeps.backends import Backend
    from sim.sweeps.task import Task


def ray_cluster(address: str | None = None) -> Backend:
    """The cluster at `address` (`auto`: the one of this machine); None: as Ray chooses, or a new one on this machine.

    Raises InputError where Ray is not installed or the cluster cannot be reached.
    """
    try:
        import ray
    except ImportError as error:
        raise InputError("--backend ray needs Ray: pip install 'elpase[ray]'") from error
    try:
        ray.init(address=address, ignore_reinit_error=True, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError) as error:
        told = f"no Ray cluster there: {one_line(str(error))[:200]}"
        raise InputError(told, field="--ray-address", value="auto" if address is None else address) from error
    return lambda tasks: _on_cluster(ray, tasks)


def _on_cluster(ray: Any, tasks: Sequence[Task]) -> Iterator[tuple[Task, str]]:
    remote = ray.remote(num_cpus=1, max_retries=ATTEMPTS - 1)(_served)
    files = {path: ray.put(Path(path).read_bytes()) for path in sorted({_file(task) for task in tasks} - {""})}
    running = {remote.remote(task, _this_code(), files.get(_file(task))): task for task in tasks}
    try:
        while running:
            [done], _ = ray.wait(list(running), num_returns=1)
            yield running.pop(done), _result(ray, done)
    finally:
        for ref in running:
            ray.cancel(ref, force=True)


def _file(task: Task) -> str:
    """The trace's path; '' for what is drawn."""
    trace = str(task.workload["trace"])
    return trace if kind_of(trace) == FILE else ""


def _result(ray: Any, ref: Any) -> str:
    try:
        text: str = ray.get(ref)
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError, ray.exceptions.NodeDiedError):
        return DIED
    except ray.exceptions.RayError as error:
        return json.dumps({"error": f"Ray: {one_line(str(error))[-200:]}"})
    return text


def _this_code() -> str:
    return f"elpase {__version__} (sources {code_digest()})"


def _served(task: Task, code: str, trace: bytes | None) -> str:
    """Runs on the cluster."""
    if code != _this_code():
        return json.dumps({"error": f"{code} asked, the cluster's machine has {_this_code()}"})
    if trace is None:
        return run_in_worker(task)
    with TemporaryDirectory() as folder:
        path = Path(folder) / Path(_file(task)).name
        path.write_bytes(trace)
        text = run_in_worker(replace(task, workload={**task.workload, "trace": str(path)}))
    # Where it lay for a moment is nobody's business: the result names the file as it was named.
    return text.replace(json.dumps(str(path))[1:-1], json.dumps(_file(task))[1:-1])
