"""The notebooks run from top to bottom on small inputs, and each ends in a decision.

Their code cells are plain Python, so they are run as a program: a Jupyter kernel, with its forty packages, would run
the same lines.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DATA = ROOT / "tests/workloads/data"

CPU_FILES = {"MODEL": "config.json", "TRACE": "requests.csv", "MEASURED": "measured.csv"}

SMALL = {
    "1_token_budget": {"LIMIT": 60, "BUDGETS": [512, 4096]},
    "2_replay_traces": {
        "TRACES": ["azure-conv", str(DATA / "mooncake_conversation.jsonl")],
        "LIMIT": 15,
        "SETTINGS": {"max_num_seqs": [2, 64]},
    },
    "3_preemption": {
        "WORKLOAD": {"num_prompts": 12, "input_len": 64, "output_len": 200},
        "KV_BLOCKS": [140],
        "PCIE_GB_PER_S": [16.0],
        "MAX_NUM_SEQS": [64],
    },
    "4_calibrate": {
        "LOG": str(ROOT / "tests/calibrate/data/vllm_0_32_stamped.log"),  # the whole one takes a minute to fit
        **{name: str(ROOT / f"tests/calibrate/data/vllm_cpu/{file}") for name, file in CPU_FILES.items()},
    },
}
"""Notebook -> what stands in place of its parameters."""


def cells(name: str, kind: str = "code") -> list[dict[str, object]]:
    document = json.loads((ROOT / f"notebooks/{name}.ipynb").read_text(encoding="utf-8"))
    assert (document["nbformat"], document["nbformat_minor"]) == (4, 5)
    return [cell for cell in document["cells"] if cell["cell_type"] == kind]


def program(name: str, values: dict[str, object]) -> str:
    """The code cells in order; the values after the cell with the tag `parameters`, as papermill puts them."""
    parts = []
    for cell in cells(name):
        parts.append("".join(cell["source"]))
        if "parameters" in cell["metadata"].get("tags", ()):
            assert all(f"{parameter} = " in parts[-1] for parameter in values)
            parts += [f"{parameter} = {value!r}" for parameter, value in values.items()]
    return "\n".join(parts)


def test_every_notebook_is_here() -> None:
    assert {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")} == set(SMALL)


@pytest.mark.parametrize("name", SMALL)
def test_outputs_are_stripped(name: str) -> None:
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells(name))
    assert cells(name, "markdown")[0]["source"][0].startswith("# ")


@pytest.mark.parametrize("name", SMALL)
def test_the_files_it_names_are_here(name: str) -> None:
    named = re.findall(r'"(\.\./[^"]+)"', program(name, {}))
    assert all((ROOT / "notebooks" / path).is_file() for path in named)
    assert named or not name.startswith(("2", "4"))


@pytest.mark.parametrize("name", SMALL)
def test_it_runs_and_ends_in_a_decision(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program(name, SMALL[name])],
        cwd=tmp_path,
        env=os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=900,  # seconds; a busy machine is no failure
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("Decision: ")
