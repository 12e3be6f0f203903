"""Makes the real runs of a live validation, each once: what a folder holds already is read, not run again.

Not for what the runs mean (live.py). The one idea: a run is named by everything that goes into it, so a validation that
was interrupted, or asked again with one more budget, makes only what is missing; and each run's file appears when it is
whole.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from calibrate.live import Load
from calibrate.processes import Bench, bench_process, counter, labels, pin, start_server, stop, wait_ready
from sim.errors import InputError
from sim.output import write_text_atomic
from sim.plurals import counted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

    from calibrate.harness.interpreter import Interpreter
    from calibrate.live import Bed, Cell, Setting
    from calibrate.processes import Server

_RUN_LIMIT_S = 180.0
_WARM_UP = Load(num_prompts=8)
_LOG_SETTLES_S = 0.3
"""A server's last lines reach its log a little after the client's last token."""


@dataclass(frozen=True, slots=True)
class Run:
    """One finished real run."""

    folder: Path
    facts: dict[str, Any]
    """preemptions, num_gpu_blocks, and what it was run with."""

    @property
    def result(self) -> dict[str, Any]:
        """What `vllm bench serve` said."""
        return cast("dict[str, Any]", json.loads(self.bench.read_text(encoding="utf-8")))

    @property
    def bench(self) -> Path:
        """The file it said it in."""
        return self.folder / "bench.json"

    @property
    def log(self) -> Path:
        """The server's log of this run."""
        return self.folder / "server.log"


class LiveRuns:
    """The real runs of one bed, in a folder. A context manager: servers stay up between runs, and go with it."""

    def __init__(
        self, vllm: Interpreter, bed: Bed, model: Path, folder: Path, *, lock: Path | None = None, servers: int = 1
    ) -> None:
        self._vllm, self._bed, self._model, self._folder = vllm, bed, model, folder
        self._lock, self._most_servers = lock, servers
        self._servers: dict[Setting, Server] = {}
        self._bench: Bench | None = None
        self._bench_context = bench_process(vllm, folder / "bench_driver.log")

    def __enter__(self) -> LiveRuns:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in self._servers.values():
            stop(server.process)
        self._servers.clear()
        if self._bench is not None:
            self._bench = None
            self._bench_context.__exit__(kind, error, trace)

    def finished(self, cell: Cell, repeat: int) -> Run | None:
        """A run that was made before, else None."""
        folder = self._place(cell, repeat)
        facts = folder / "run.json"
        return Run(folder, json.loads(facts.read_text(encoding="utf-8"))) if facts.exists() else None

    def run(self, cell: Cell, repeat: int) -> Run:
        """The run's files, made now unless they are there. Raises InputError where server or benchmark fail."""
        found = self.finished(cell, repeat)
        if found is not None:
            return found
        folder = self._place(cell, repeat)
        folder.mkdir(parents=True, exist_ok=True)
        server, bench = self._server(cell.setting), self._client()
        with _locked(self._lock):
            before = server.metrics()
            logged = server.log_size()
            started = datetime.now(tz=UTC).isoformat(timespec="seconds")
            self._load(server, bench, cell.load, folder)
            time.sleep(_LOG_SETTLES_S)
        after = server.metrics()
        (folder / "server.log").write_text(server.log_part(logged), encoding="utf-8")
        name = "vllm:num_preemptions_total"
        facts = {
            **self._identity(cell, repeat),
            "date": started,
            "load_average": os.getloadavg()[0],
            "preemptions": round(counter(after, name) - counter(before, name)),
            "num_gpu_blocks": int(labels(after, "vllm:cache_config_info")["num_gpu_blocks"]),
        }
        write_text_atomic(folder / "run.json", json.dumps(facts, indent=2) + "\n")
        return Run(folder, facts)

    def _identity(self, cell: Cell, repeat: int) -> dict[str, Any]:
        config = json.loads((self._model / "config.json").read_text(encoding="utf-8"))
        said = json.loads(json.dumps(asdict(cell)))
        return {"vllm": self._vllm.version, "model": config, "bed": asdict(self._bed), **said, "repeat": repeat}

    def _place(self, cell: Cell, repeat: int) -> Path:
        text = json.dumps(self._identity(cell, repeat), sort_keys=True)
        mark = hashlib.sha256(text.encode()).hexdigest()[:8]
        return self._folder / "runs" / f"{cell.name}_{repeat}_{mark}"

    def _client(self) -> Bench:
        if self._bench is None:
            self._bench = self._bench_context.__enter__()
            pin(self._bench.process, self._cores[1])
        return self._bench

    @property
    def _cores(self) -> tuple[list[int], list[int]]:
        """Cores of the model, and of everything else; the latter are none where all are the model's."""
        cores = sorted(os.sched_getaffinity(0))
        return cores[: self._bed.threads], cores[self._bed.threads :]

    def _server(self, setting: Setting) -> Server:
        if setting in self._servers:
            return self._servers[setting]
        while len(self._servers) >= self._most_servers:
            stop(self._servers.pop(next(iter(self._servers))).process)
        environment = {
            "VLLM_CPU_KVCACHE_SPACE": str(self._bed.kv_gib),
            # The model's threads have cores of their own, so that client and API server do not slow them down.
            "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, self._cores[0])),
            "OMP_NUM_THREADS": "1",
        }
        log = self._folder / f"server_{setting.name}.log"
        server = start_server(self._vllm, self._model, self._bed.server_flags(setting), log, environment)
        self._servers[setting] = server
        wait_ready(server)
        pin(server.process, self._cores[1])
        self._load(server, self._client(), _WARM_UP, self._folder)
        return server

    def _load(self, server: Server, bench: Bench, load: Load, folder: Path) -> None:
        (folder / "bench.json").unlink(missing_ok=True)
        args = [
            *self._bed.bench_flags(load), "--base-url", server.url, "--model", str(self._model),
            "--result-dir", str(folder), "--result-filename", "bench.json",
        ]  # fmt: skip
        bench.run(args, folder / "bench.log", _RUN_LIMIT_S)
        result = json.loads((folder / "bench.json").read_text(encoding="utf-8"))
        if result["failed"]:
            raise InputError(
                f"{result['failed']} of {counted(load.num_prompts, 'request')} failed", file=folder / "bench.log"
            )


@contextmanager
def _locked(lock: Path | None) -> Iterator[None]:
    """Hold a file's lock, as `flock` does: one timed run at a time on a machine that several jobs share."""
    if lock is None:
        yield
        return
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
