"""The proof of conformance works: break one rule of the core, and the recorded decisions notice.

A mutant is a copy of the core with one line of its source changed. One that no recorded case notices would mean that
the recorded cases do not cover that rule.
"""

from __future__ import annotations

import importlib
import sys
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

import sim.core
from sim.conformance import compare, read_cases

CORE = Path(sim.core.__file__).parent
TESTS = Path(__file__).parents[2]
GOLDEN, RECORDED = TESTS / "golden", TESTS / "recorded"

MUTANTS = tomllib.loads((Path(__file__).parent / "mutants.toml").read_text())


def mutate(folder: Path, monkeypatch, module: str, old: str, new: str):
    """Make `conformance` drive a copy of the core in which `old` reads `new`; returns its way to make a scheduler."""
    name = "mutant_core"
    for source in CORE.glob("*.py"):
        text = source.read_text()
        if source.stem == module:
            assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {source.name}: the list is stale"
            text = text.replace(old, new)
        target = folder / name / source.name
        target.parent.mkdir(exist_ok=True)
        target.write_text(text.replace("sim.core", name))
    for loaded in [loaded for loaded in sys.modules if loaded.split(".")[0] == name]:
        del sys.modules[loaded]
    monkeypatch.syspath_prepend(str(folder))
    core = {part: importlib.import_module(f"{name}.{part}") for part in ("make", "config", "request", "block_hash")}
    monkeypatch.setattr("sim.conformance.Request", core["request"].Request)
    monkeypatch.setattr("sim.conformance.BlockHasher", core["block_hash"].BlockHasher)

    def make_scheduler(settings):
        own = core["config"].SchedulerConfig(
            **{field.name: getattr(settings, field.name) for field in fields(settings)}
        )
        return core["make"].make_scheduler(own)

    return make_scheduler


def is_noticed(make_scheduler, files: str) -> bool:
    for family in files.split():
        folder = GOLDEN if (GOLDEN / f"{family}.jsonl.gz").exists() else RECORDED
        for case in read_cases(folder / f"{family}.jsonl.gz"):
            try:
                difference = compare(case, make_scheduler)
            except AssertionError:  # the core itself has noticed
                return True
            if difference:
                return True
    return False


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_rule_is_noticed(name, tmp_path, monkeypatch):
    mutant = MUTANTS[name]
    make_scheduler = mutate(tmp_path, monkeypatch, mutant["in"], mutant["old"], mutant["new"])
    assert is_noticed(make_scheduler, mutant["noticed_by"])


def test_an_unbroken_copy_is_not_noticed(tmp_path, monkeypatch):
    """The harness itself changes nothing: a mutant that says the same decides the same."""
    line = "return self.running[-1]"
    assert not is_noticed(mutate(tmp_path, monkeypatch, "scheduler", line, line), "same_step_victim ties")
