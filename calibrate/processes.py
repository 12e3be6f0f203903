"""Runs a real vLLM server and its benchmark beside it: started, waited for, and stopped by their own ids.

Not for what to run (live.py). The one idea: whoever starts a process owns it; it lives no longer than the `with` block,
is limited in time, and its output is in a file that an error can point at.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast
from urllib.error import URLError
from urllib.request import urlopen

from calibrate.harness.interpreter import clean_environment, last_words
from sim.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from calibrate.harness.interpreter import Interpreter

SCRIPTS = Path(__file__).parent / "harness" / "vllm_scripts"

START_LIMIT_S = 300.0
_STOP_LIMIT_S = 20.0
_POLL_S = 0.25

LOG_PREFIX = "%(created).6f "
"""Put before every line of the server's log: when it was written, exactly. vLLM puts it into a format string."""


def free_port() -> int:
    """A port of the loopback interface that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(slots=True)
class Server:
    """A running `vllm serve`."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def metrics(self) -> str:
        """Its Prometheus page."""
        return _get(f"{self.url}/metrics")

    def log_size(self) -> int:
        """Bytes logged so far."""
        return self.log.stat().st_size

    def log_part(self, start: int) -> str:
        """What was logged from a byte on."""
        with self.log.open("rb") as file:
            file.seek(start)
            return file.read().decode("utf-8", errors="replace")


def start_server(
    vllm: Interpreter, model: Path, flags: Sequence[str], log: Path, environment: Mapping[str, str]
) -> Server:
    """Start `vllm serve` on a free loopback port; see `wait_ready`."""
    port = free_port()
    command = [str(vllm.command), "serve", str(model), *flags, "--host", "127.0.0.1", "--port", str(port)]
    env = clean_environment(**{**environment, "VLLM_LOGGING_PREFIX": LOG_PREFIX})
    with log.open("wb") as output:
        process = subprocess.Popen(
            # A group of its own, so that what the server starts can be stopped with it; the session stays ours.
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=env, process_group=0,
        )  # fmt: skip
    return Server(process, port, log)


def wait_ready(server: Server, limit_s: float = START_LIMIT_S) -> None:
    """Wait until the server answers. Raises InputError where it ends first or takes too long."""
    end_s = time.monotonic() + limit_s
    while time.monotonic() < end_s:
        if server.process.poll() is not None:
            raise InputError(f"vllm serve ended while starting: {last_words(server.log)}", file=server.log)
        try:
            _get(f"{server.url}/health")
        except (URLError, OSError):
            time.sleep(_POLL_S)
            continue
        return
    raise InputError(f"vllm serve was not ready within {limit_s:.0f} s", file=server.log)


def pin(process: subprocess.Popen[bytes], cores: Collection[int]) -> None:
    """Keep a process, and all that it started, on some cores; but for those that chose cores themselves.

    Those are the model's. Without this the operating system puts the others next to them, now and then, and the model's
    steps take longer by chance. Does nothing where there is no /proc, and for no cores.
    """
    everywhere = os.sched_getaffinity(0) if cores else set()
    for pid in _family(process.pid) if cores else ():
        threads = _threads(pid)
        with suppress(OSError):
            if all(os.sched_getaffinity(thread) == everywhere for thread in threads):
                for thread in threads:
                    os.sched_setaffinity(thread, cores)


def _threads(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()]
    return []


def _family(pid: int) -> list[int]:
    """A process and its descendants."""
    children: list[str] = []
    for thread in _threads(pid):
        with suppress(OSError):
            children += Path(f"/proc/{pid}/task/{thread}/children").read_text(encoding="ascii").split()
    return [pid, *(member for child in children for member in _family(int(child)))]


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process: asked first, then with all that it started."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.terminate()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


@dataclass(slots=True)
class Bench:
    """A process that has `vllm bench serve` loaded and runs it when told."""

    process: subprocess.Popen[bytes]
    log: Path

    def run(self, args: Sequence[str], log: Path, limit_s: float) -> None:
        """One benchmark. Raises InputError where it fails or takes too long."""
        order = {"args": list(args), "log": str(log), "timeout_s": limit_s}
        cast("IO[bytes]", self.process.stdin).write(json.dumps(order).encode() + b"\n")
        cast("IO[bytes]", self.process.stdin).flush()
        code = self.answer()["code"]
        if code is None:
            raise InputError(f"vllm bench serve did not end within {limit_s:.0f} s", file=log)
        if code:
            raise InputError(f"vllm bench serve failed: {last_words(log)}", file=log)

    def answer(self) -> dict[str, Any]:
        """Its next word."""
        for line in cast("IO[bytes]", self.process.stdout):
            if line.startswith(b"{"):
                return cast("dict[str, Any]", json.loads(line))
        raise InputError(f"vllm bench serve ended: {last_words(self.log)}", file=self.log)


@contextmanager
def bench_process(vllm: Interpreter, log: Path) -> Iterator[Bench]:
    """A `Bench`, ready; gone after the block."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [vllm.python, SCRIPTS / "bench_serve.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output,
            env=clean_environment(OMP_NUM_THREADS="1"), process_group=0,
        )  # fmt: skip
    try:
        bench = Bench(process, log)
        bench.answer()
        yield bench
    finally:
        stop(process)


_LABELS = re.compile(r'(\w+)="([^"]*)"')


def counter(metrics: str, name: str) -> float:
    """The sum of a counter over its labels on a Prometheus page; 0 where it is not there."""
    lines = [line for line in metrics.splitlines() if line.startswith((f"{name}{{", f"{name} "))]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def labels(metrics: str, name: str) -> dict[str, str]:
    """The labels of the first line of a metric. Raises InputError where there is none."""
    for line in metrics.splitlines():
        if line.startswith(f"{name}{{"):
            return dict(_LABELS.findall(line))
    raise InputError(f"the server's /metrics has no {name}")


def _get(url: str) -> str:
    with urlopen(url, timeout=10.0) as answer:
        return cast("str", answer.read().decode())
