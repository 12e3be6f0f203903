"""How much faster than real time a trace is replayed on the default profile, and in how much memory.

`python -m benchmarks.replay [TRACE]`. TRACE is Azure's conversation trace of 2023 (AzureLLMInferenceTrace_conv.csv of
the Azure Public Dataset, not ours to ship); without it, the built-in workload of the same size. The one idea: every
output token of the trace must have been sampled in some step, and the built-in one must take exactly its steps.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from benchmarks.measure import best_of, peak_bytes, require, run_command, timed
from sim.experiment import Result, simulate
from workloads import open_workload

BUILTIN = "azure-conv"
REQUESTS = 19_366
"""Of the trace, and so of the built-in workload."""
BUILTIN_OUTPUT_TOKENS = 4_164_264
BUILTIN_STEPS = 204_400
TRIES = 3
ELPASE = str(Path(sys.executable).with_name("elpase"))


def main(trace: str = BUILTIN) -> None:
    """Print one JSON object for the run as a library call, and one for the whole command."""
    print(json.dumps({"what": "library", "trace": trace, **_library(trace)}))
    print(json.dumps({"what": "command", "trace": trace, **_command(trace)}))


def _library(trace: str) -> dict[str, object]:
    """From the file to the figures of `vllm bench serve`."""
    loaded_bytes = peak_bytes()
    (result, summary), timing = best_of(TRIES, lambda: _replay(trace))
    require("requests finished", summary["completed"], REQUESTS)
    output_tokens = sum(request.output_tokens for request in open_workload(trace))
    require("tokens sampled", int(result.steps["sampled"].sum()), output_tokens)
    if trace == BUILTIN:
        require(f"output tokens of {BUILTIN}", output_tokens, BUILTIN_OUTPUT_TOKENS)
        require(f"steps of {BUILTIN} (the profile may have changed)", len(result.steps), BUILTIN_STEPS)
    counts = {"requests": REQUESTS, "steps": len(result.steps), "simulated_s": summary["duration"]}
    return {**counts, **asdict(timing), "loaded_bytes": loaded_bytes, "peak_bytes": peak_bytes()}


def _replay(trace: str) -> tuple[Result, dict[str, object]]:
    result = simulate(open_workload(trace))
    return result, result.summary(detailed=False)


def _command(trace: str) -> dict[str, object]:
    """`elpase replay`, as a shell runs it: with its start, and with every file of a result written."""
    with tempfile.TemporaryDirectory() as folder:
        command = [ELPASE, "replay", trace, "--out", folder]
        _, timing = timed(lambda: run_command(command))
        result = json.loads((Path(folder) / "result.json").read_text(encoding="utf-8"))
    require("requests finished by the command", result["completed"], REQUESTS)
    counts = {"requests": REQUESTS, "steps": result["sim"]["steps"], "simulated_s": result["duration"]}
    return {**counts, **asdict(timing), "peak_bytes": peak_bytes(resource.RUSAGE_CHILDREN)}


if __name__ == "__main__":
    main(*sys.argv[1:2])
