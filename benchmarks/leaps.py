"""What leaps are worth: the same runs with leaps and step by step; and a whole command that needs no step kept.

`python -m benchmarks.leaps`. Stepping is the plain way of the same scheduler: every step is decided, priced and written
down by itself, and each looks at all running requests. The one idea: both must have taken the same steps, to the bit,
so the ratio compares equal work.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import numpy as np

from benchmarks.measure import best_of, require, run_command, timed
from sim.config import EngineConfig
from sim.experiment import Result, simulate
from workloads import Request

PROFILE = "h100-llama-3.1-8b"
POISSON, SATURATED = "Poisson, 8/s, 1000 in, 200 out", "256 always running, 500 in, 500 out"
COMMAND_REQUESTS = 20_000
TRIES = 3
"""Of what takes little time; the best counts."""
ELPASE = str(Path(sys.executable).with_name("elpase"))


def main() -> None:
    """Print one JSON object per workload, then one for the command."""
    for what, requests, cap in ((POISSON, poisson(4_000), None), (SATURATED, saturated(1_000), 256)):
        print(json.dumps({"what": what, **compared(requests, cap)}))
    print(json.dumps({"what": "command", **command()}))


def poisson(num_requests: int) -> list[Request]:
    """Requests that come at random, 8 per second."""
    times_s = np.random.default_rng(0).exponential(1 / 8, num_requests).cumsum()
    return [Request(f"r{i}", float(time_s), 1000, 200) for i, time_s in enumerate(times_s)]


def saturated(num_requests: int) -> list[Request]:
    """Requests that are all there at once; a client's cap lets some of them through."""
    return [Request(f"r{i}", 0.0, 500, 500) for i in range(num_requests)]


def compared(requests: list[Request], cap: int | None) -> dict[str, object]:
    """Seconds with leaps and without, of which each makes the same tables."""

    def run(*, leap: bool) -> Result:
        return simulate(requests, EngineConfig(max_num_seqs=256), PROFILE, max_in_flight=cap, leap=leap)

    leaping, leap_timing = best_of(TRIES, lambda: run(leap=True))
    stepping, step_timing = timed(lambda: run(leap=False))
    require("the same requests", leaping.requests.equals(stepping.requests), expected=True)
    require("the same steps", leaping.steps.equals(stepping.steps), expected=True)
    require("requests finished", int((leaping.requests["status"] == "finished").sum()), len(requests))
    tokens = sum(request.output_tokens for request in requests)
    require("tokens sampled", int(leaping.steps["sampled"].sum()), tokens)
    counts = {"requests": len(requests), "steps": len(leaping.steps)}
    return {**counts, "leaping": asdict(leap_timing), "stepping": asdict(step_timing)}


def command(elpase: str = ELPASE, tries: int = TRIES) -> dict[str, object]:
    """The first workload, drawn by the command itself, from the shell's view: start, run, result.json, requests."""
    workload = ["random", "--num-prompts", str(COMMAND_REQUESTS), "--request-rate", "8"]
    lengths = ["--random-input-len", "1000", "--random-output-len", "200"]
    with tempfile.TemporaryDirectory() as folder:
        options = ["--profile", PROFILE, "--no-keep-steps", "--out", folder]
        line = [elpase, "replay", *workload, *lengths, *options]
        _, timing = best_of(tries, lambda: run_command(line))
        text = (Path(folder) / "result.json").read_text(encoding="utf-8")
    result = json.loads(text)
    require("requests finished by the command", result["completed"], COMMAND_REQUESTS)
    require("output tokens of the command", result["total_output_tokens"], 200 * COMMAND_REQUESTS)
    made = hashlib.sha256(text.encode()).hexdigest()
    return {"requests": COMMAND_REQUESTS, "steps": result["sim"]["steps"], "hash": made, **asdict(timing)}


if __name__ == "__main__":
    main()
