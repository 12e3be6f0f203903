"""The compiled build makes the same files, to the bit, as the plain Python that it is made of.

Needs `make compiled`, and is skipped where there is none, or one of other sources.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import sim

BIN = Path(os.environ.get("ELPASE_COMPILED", Path(__file__).parents[1] / ".venv-compiled")) / "bin"
PLAIN, COMPILED = sys.executable, str(BIN / "python")
DIGEST = "from sim.sweeps.code import code_digest; print(code_digest())"
# All runs in one process, and without pictures, which take longer than all else.
RUN = """
import json, sys
import sim.report.plots, sim.report.plots_time
from sim.cli.main import main

sim.report.plots.plot_latency = sim.report.plots_time.plot_timeseries = lambda *_: None
for arguments in json.loads(sys.argv[1]):
    try:
        main(arguments)
    except SystemExit as end:
        assert not end.code, arguments
"""

# Some requests fill these KV blocks, so that others are preempted.
AZURE = ("azure-conv", "--limit", "300", "--max-model-len", "16000", "--num-gpu-blocks-override", "1100")
OFFLOAD = (*AZURE, "--kv-preemption", "offload", "--kv-offloading-size", "4")
NGRAM = ("--spec-method", "ngram", "--spec-tokens", "4", "--draft-acceptance", "0.6")
SESSIONS = ("sessions", "--num-prompts", "60", "--request-rate", "8")
RUNS = {
    # command, and the figure of result.json which shows that what the run is for did happen
    "preemption": (AZURE, "preemptions"),
    "priority": ((*AZURE, "--scheduling-policy", "priority", "--no-async-scheduling"), "preemptions"),
    "step by step": ((*AZURE, "--no-leap", "--check"), "preemptions"),
    "swap": ((*AZURE, "--kv-preemption", "swap"), "preemptions"),
    "offload": ((*OFFLOAD, "--no-async-scheduling"), "preemptions"),
    "offload, async": ((*OFFLOAD, "--async-scheduling"), "preemptions"),
    "speculation": ((*AZURE, *NGRAM), "preemptions"),
    "prefix cache": (SESSIONS, "prefix_hit_rate"),
    "no steps kept": ((*AZURE, "--no-keep-steps"), "preemptions"),
}


def output(*command: str) -> str:
    """Of one of the two, started outside of the checkout, so that the compiled one loads itself."""
    home = {"PYTHONPATH": str(Path(sim.__path__[0]).parent)} if command[0] == PLAIN else {}
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | home
    done = subprocess.run(command, cwd=BIN, capture_output=True, text=True, timeout=600, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def files_below(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module", autouse=True)
def _a_build_of_these_sources() -> None:
    if not Path(COMPILED).exists():
        pytest.skip("make compiled has not been run")
    if output(COMPILED, "-c", DIGEST) != output(PLAIN, "-c", DIGEST):
        pytest.skip("what make compiled made is of other sources: run it again")


def test_it_says_that_it_is_compiled() -> None:
    assert output(str(BIN / "elpase"), "--version").endswith("(compiled: yes)\n")


def test_the_same_files_to_the_bit(tmp_path: Path) -> None:
    for python in (PLAIN, COMPILED):
        folder = tmp_path / ("plain" if python == PLAIN else "compiled")
        commands = [["replay", *arguments, "--out", str(folder / name)] for name, (arguments, _) in RUNS.items()]
        output(python, "-c", RUN, json.dumps(commands))
    plain, compiled = (files_below(tmp_path / way) for way in ("plain", "compiled"))
    for name, (_, figure) in RUNS.items():
        assert json.loads(plain[f"{name}/result.json"])["sim"][figure] > 0, name
        assert f"{name}/requests.parquet" in plain
    assert plain.keys() == compiled.keys()
    assert [file for file in plain if plain[file] != compiled[file]] == []


def test_it_decides_as_vllm_did() -> None:
    """All recorded decisions, by the compiled block pool, requests and plans."""
    cases = [str(file) for folder in ("golden", "recorded") for file in Path(__file__).with_name(folder).glob("*.gz")]
    assert "differ" not in output(str(BIN / "elpase"), "conform", *cases)
