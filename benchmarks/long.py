"""A long run of which only the summary is kept: time per request and memory, from ten thousand requests to a million.

`python -m benchmarks.long N`: N requests like those of Azure's conversation trace, 5 per second. The one idea: both
must not grow with N, but for the requests' own rows; every token of the workload must be among those counted.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from benchmarks.measure import Timing, peak_bytes, require, timed
from sim.experiment import simulate
from workloads import Trace, builtin

RATE_PER_S = 5.0
TRIES = 3
SHORT = 50_000
"""Fewer requests than that are tried several times, and the middle one counts: a long run is no lucky one either."""


def main(num_requests: int) -> None:
    """Print one JSON object."""
    tries = TRIES if num_requests < SHORT else 1
    runs = sorted((_run(num_requests) for _ in range(tries)), key=lambda run: run[1].loop_rounds)
    summary, timing = runs[tries // 2]
    peak = peak_bytes()
    require("requests finished", summary["completed"], num_requests)
    tokens = sum(request.output_tokens for request in _workload(num_requests))
    require("output tokens", summary["total_output_tokens"], tokens)
    sim = summary["sim"]
    assert isinstance(sim, dict)
    counts = {"requests": num_requests, "steps": sim["steps"], "simulated_s": summary["duration"]}
    print(json.dumps({**counts, **asdict(timing), "peak_bytes": peak}))


def _run(num_requests: int) -> tuple[dict[str, object], Timing]:
    return timed(lambda: simulate(_workload(num_requests), keep_steps=False).summary())


def _workload(num_requests: int) -> Trace:
    return builtin("azure-conv", num_requests=num_requests, request_rate=RATE_PER_S)


if __name__ == "__main__":
    main(int(sys.argv[1]))
