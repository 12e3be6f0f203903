"""What the compiled build is worth: the same runs by plain Python and by what `make compiled` has made, in turn.

`python -m benchmarks.compiled`. The one idea: each run is a process of its own and prints a hash of all that it made,
so the ratio compares equal work. Prints nothing where there is no compiled build.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from benchmarks.leaps import PROFILE, command, poisson
from benchmarks.measure import require, timed
from benchmarks.replay import BUILTIN, REQUESTS
from sim.config import EngineConfig
from sim.experiment import Result, simulate
from sim.sweeps.code import code_digest
from workloads import open_workload

if TYPE_CHECKING:
    from collections.abc import Callable

Record = dict[str, Any]

ROOT = Path(__file__).parents[1]
BUILDS = {"plain": sys.executable, "compiled": str(ROOT / ".venv-compiled/bin/python")}
POISSON_REQUESTS = 20_000
TRIES = 4
"""In turn, so that the machine's changes of speed meet both alike; the mean counts."""


def azure() -> Result:
    """The built-in workload that the other benchmarks replay."""
    return simulate(open_workload(BUILTIN))


def poisson_8() -> Result:
    """20,000 requests, of which no step is kept."""
    return simulate(poisson(POISSON_REQUESTS), EngineConfig(), PROFILE, keep_steps=False)


RUNS = {
    f"{BUILTIN}, with all steps": (azure, REQUESTS),
    "Poisson, 8/s, 1000 in, 200 out, summary only": (poisson_8, POISSON_REQUESTS),
}


def main() -> None:
    """Print one JSON object per workload, and one for the command that draws the last."""
    if not Path(BUILDS["compiled"]).exists():
        return
    for what, (_, count) in RUNS.items():
        runs = _in_turn(lambda python, what=what: _run(python, what))
        plain, compiled = runs["plain"], runs["compiled"]
        require("which build runs", (plain["compiled"], compiled["compiled"]), (False, True))
        require("sources of the compiled build (make compiled)", compiled["code"], plain["code"])
        require(f"requests finished, {what}", compiled["finished"], count)
        require(f"hash of the results, {what}", compiled["hash"], plain["hash"])
        print(json.dumps({"what": what, "requests": count, "steps": plain["steps"], **runs}))
    commands = _in_turn(lambda python: command(str(Path(python).with_name("elpase")), tries=1))
    require("hash of the command's result", commands["compiled"]["hash"], commands["plain"]["hash"])
    counts = {name: commands["plain"][name] for name in ("requests", "steps")}
    print(json.dumps({"what": "elpase replay, the same as a whole command", **counts, **commands}))


def _in_turn(run: Callable[[str], Record]) -> dict[str, Record]:
    """By build, what `run` of its Python tells, with the mean CPU seconds."""
    tries = [{build: run(python) for build, python in BUILDS.items()} for _ in range(TRIES)]
    return {build: {**tries[0][build], "cpu_s": fmean(each[build]["cpu_s"] for each in tries)} for build in BUILDS}


def one(what: str) -> None:
    """Do the run in this process, and print what it took and what came out."""
    run, _ = RUNS[what]
    (result, _), timing = timed(lambda: _to_the_figures(run))
    summary = result.summary()
    made = json.dumps(summary, sort_keys=True) + result.requests.to_json()
    sim = summary["sim"]
    assert isinstance(sim, dict)
    work = {"finished": summary["completed"], "steps": sim["steps"], "hash": hashlib.sha256(made.encode()).hexdigest()}
    compiled = not str(sys.modules["sim.engine.replica"].__file__).endswith(".py")
    print(json.dumps({**asdict(timing), **work, "code": code_digest(), "compiled": compiled}))


def _to_the_figures(run: Callable[[], Result]) -> tuple[Result, object]:
    """As `benchmarks.replay` does: from the workload to the figures of `vllm bench serve`."""
    result = run()
    return result, result.summary(detailed=False)


def _run(python: str, what: str) -> Record:
    """By one of the builds. -P, and appended: the compiled one meets its own modules before the sources here."""
    code = "import sys; sys.path.append(sys.argv[1]); from benchmarks import compiled; compiled.one(sys.argv[2])"
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if python == BUILDS["plain"]:
        variables["PYTHONPATH"] = str(ROOT)
    command = [python, "-P", "-c", code, str(ROOT), what]
    record: Record = json.loads(subprocess.run(command, check=True, capture_output=True, env=variables).stdout)
    return record


if __name__ == "__main__":
    main()
