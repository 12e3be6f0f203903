"""How things are measured here: seconds beside a loop of plain Python, and memory as the system counts it.

Not for what is measured. The one idea: a plain loop, timed just before and after, says how fast this machine is at this
moment, so a cost in *loop rounds* (of CPU time, both) can be compared between machines, and on one that is busy.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Result = TypeVar("Result")

_ROUNDS = 1_000_000
_OURS = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds on the wall and of the CPU (children included), and the CPU's in rounds of the plain loop."""

    wall_s: float
    cpu_s: float
    loop_rounds: float


def loop_rounds_per_s() -> float:
    """Rounds per CPU second of a loop that adds small integers: the better of two tries."""
    return _ROUNDS / min(_loop_s(), _loop_s())


def timed(work: Callable[[], Result]) -> tuple[Result, Timing]:
    """What `work` returns, and what it took."""
    before = loop_rounds_per_s()
    wall_s, cpu_s = time.perf_counter(), _cpu_s()
    result = work()
    wall_s, cpu_s = time.perf_counter() - wall_s, _cpu_s() - cpu_s
    return result, Timing(wall_s, cpu_s, cpu_s * (before + loop_rounds_per_s()) / 2)


def best_of(tries: int, work: Callable[[], Result]) -> tuple[Result, Timing]:
    """The same, of the try that took the CPU least: others shared it, or found libraries that were still to be loaded.

    One result at a time is kept, as peak memory counts.
    """
    result, best = timed(work)
    for _ in range(tries - 1):
        del result
        result, timing = timed(work)
        best = min(best, timing, key=lambda each: each.cpu_s)
    return result, best


def run_command(command: list[str]) -> None:
    """As a shell does that lets Python keep its bytecode, as it does unless told otherwise."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=variables)


def require(name: str, got: object, expected: object) -> None:
    """Exit with one line unless the work done is the work expected."""
    if got != expected:
        sys.exit(f"benchmarks: {name}: got {got}, expected {expected}")


def peak_bytes(who: int = resource.RUSAGE_SELF) -> int:
    """Most memory that this process (or, RUSAGE_CHILDREN, the largest of its children) has had resident."""
    status = Path("/proc/self/status")
    if who == resource.RUSAGE_SELF and status.exists():  # Linux hands a parent's peak on to the usage of its child
        return int(status.read_text(encoding="ascii").split("VmHWM:")[1].split()[0]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(who).ru_maxrss * unit


def _cpu_s() -> float:
    return sum(usage.ru_utime + usage.ru_stime for usage in map(resource.getrusage, _OURS))


def _loop_s() -> float:
    start_s = _cpu_s()
    total = 0
    for i in range(_ROUNDS):
        total += i & 7
    return _cpu_s() - start_s
