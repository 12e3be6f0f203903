"""Long runs of which only the summary is kept: time per request and memory, from ten thousand requests to a million.

`python -m benchmarks.long N...`: so many requests like those of Azure's conversation trace, 5 per second. The one
idea: both must not grow with N, but for the requests' own rows. A machine's speed changes while a million take their
minutes, so runs are timed in turn: again and again the longest waits, its clock stopped, for a shorter one in a
process of its own. Every token of the workload must be among those counted.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from statistics import fmean
from typing import Any

from benchmarks.measure import peak_bytes, require
from sim.experiment import simulate
from workloads import Trace, builtin

RATE_PER_S = 5.0
EVERY = 4
"""The longest run waits for a shorter one of N requests when it has done EVERY * N more."""
WARM_UP = 200
"""Requests simulated first: what loads libraries is no time per request."""

Record = dict[str, Any]


def main(sizes: list[int]) -> None:
    """Print one JSON object per size, shortest first; of one that ran several times the mean. Each must be EVERY times
    the one before, or more.
    """
    *shorter, longest = sorted(sizes)
    simulate(_workload(WARM_UP), keep_steps=False).summary()
    turns = _Turns(shorter)
    start_s, start_cpu_s = time.perf_counter(), time.process_time()
    summary = simulate(_workload(longest), keep_steps=False, on_progress=turns).summary()
    wall_s = time.perf_counter() - start_s - turns.wall_s
    cpu_s = time.process_time() - start_cpu_s - turns.cpu_s
    peak = peak_bytes()
    require("requests finished", summary["completed"], longest)
    tokens = sum(request.output_tokens for request in _workload(longest))
    require("output tokens", summary["total_output_tokens"], tokens)
    sim = summary["sim"]
    assert isinstance(sim, dict)
    counts = {"requests": longest, "steps": sim["steps"], "simulated_s": summary["duration"]}
    last = {**counts, "wall_s": wall_s, "cpu_s": cpu_s, "peak_bytes": peak}
    for records in (*turns.records.values(), [last]):
        means = {key: fmean(record[key] for record in records) for key in ("wall_s", "cpu_s")}
        print(json.dumps({**records[0], **means, "runs": len(records)}))


class _Turns:
    """Runs the shorter ones when their turn comes, and keeps the time that this process spent waiting for them."""

    def __init__(self, sizes: list[int]) -> None:
        self.records: dict[int, list[Record]] = {size: [] for size in sizes}
        self.wall_s = 0.0
        self.cpu_s = 0.0

    def __call__(self, _: float, finished: int) -> None:
        for size, records in self.records.items():
            if finished >= EVERY * size * (len(records) + 1):
                start_s, start_cpu_s = time.perf_counter(), time.process_time()
                line = [sys.executable, "-m", __spec__.name, str(size)]
                records.append(json.loads(subprocess.run(line, check=True, stdout=subprocess.PIPE, text=True).stdout))
                self.wall_s += time.perf_counter() - start_s
                self.cpu_s += time.process_time() - start_cpu_s


def _workload(num_requests: int) -> Trace:
    return builtin("azure-conv", num_requests=num_requests, request_rate=RATE_PER_S)


if __name__ == "__main__":
    main([int(argument) for argument in sys.argv[1:]])
