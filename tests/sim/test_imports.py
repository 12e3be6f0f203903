"""What an import costs, and what the core may lean on."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import sim

HEAVY = {"torch", "vllm", "ray", "matplotlib", "pandas", "pyarrow", "scipy", "simpy", "numpy", "click", "rich"}
NOT_FOR_A_SUMMARY = {
    "pandas",
    "matplotlib",
    "rich",
    "statistics",
    "sim.cli.bars",
    "workloads.readers.dialects",
}
CORE = sorted((Path(sim.__file__).parent / "core").glob("*.py"))


def test_import_sim_loads_nothing_heavy() -> None:
    code = f"import sys, sim; print(*sorted({HEAVY!r} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout.split() == []


def test_a_run_that_keeps_no_steps_loads_what_it_needs_and_no_more(tmp_path: Path) -> None:
    """pandas alone takes as long to load as a thousand requests to simulate, and rich as some hundred."""
    args = ["replay", "azure-conv", "--limit", "5", "--no-keep-steps", "--out", str(tmp_path / "out")]
    end = f"atexit.register(lambda: print(*sorted({HEAVY | NOT_FOR_A_SUMMARY!r} & set(sys.modules))))"
    code = f"import atexit, sys; from sim.cli.start import main; sys.argv[1:] = {args!r}; {end}; main()"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout.split("\n")[-2].split() == ["click", "numpy", "pyarrow", "simpy"]


@pytest.mark.parametrize("path", CORE, ids=lambda p: p.name)
def test_core_leans_on_the_standard_library_alone(path: Path) -> None:
    """The linter's contract lists what is forbidden; this lists what is allowed, so that a new library is caught too.
    No clock and no randomness: the same requests must give the same decisions."""
    imported = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            imported.add(node.module or "")
    ours = {name for name in imported if name.split(".")[0] == "sim"}
    assert {name.split(".")[0] for name in imported - ours} <= sys.stdlib_module_names - {"time", "random", "datetime"}
    assert all(name.startswith("sim.core") or name == "sim.errors" for name in ours)


def test_exported_names() -> None:
    assert sorted(sim.__all__) == [
        "ElpaseError",
        "EngineConfig",
        "ExtrapolationWarning",
        "InputError",
        "PreemptionComparison",
        "Profile",
        "Result",
        "Sweep",
        "compare_preemption",
        "simulate",
        "sweep",
    ]


@pytest.mark.parametrize("name", sim.__all__)
def test_every_public_name_is_found_and_says_what_it_is(name: str) -> None:
    assert getattr(sim, name).__doc__
    assert name in dir(sim)


def test_an_unknown_public_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'simulat'"):
        sim.simulat  # noqa: B018  # looking it up is the test
