"""The hash of the sources: other code, another hash; another place, the same."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import sim
import workloads
from sim.sweeps.code import code_digest, digest_of


@pytest.fixture
def packages(tmp_path) -> list[Path]:
    """A copy of this project's own, elsewhere."""
    homes = [Path(package.__file__).parent for package in (sim, workloads)]
    ignored = shutil.ignore_patterns("__pycache__")
    return [Path(shutil.copytree(home, tmp_path / home.name, ignore=ignored)) for home in homes]


def test_a_copy_elsewhere_is_the_same_code(packages) -> None:
    assert digest_of(packages) == code_digest()


def test_what_no_result_comes_from_does_not_count(packages) -> None:
    (packages[0] / "__pycache__").mkdir()
    (packages[0] / "__pycache__/config.cpython-311.pyc").write_bytes(b"compiled")
    (packages[0] / "notes.txt").write_text("to do")
    assert digest_of(packages) == code_digest()


@pytest.mark.parametrize("file", ["sim/core/scheduler.py", "sim/catalog/gpus.json", "workloads/synthetic.py"])
def test_a_changed_a_new_and_a_missing_file_are_other_code(packages, tmp_path, file) -> None:
    path = tmp_path / file
    text = path.read_text()
    path.write_text(text + "\n")
    changed = digest_of(packages)
    path.write_text(text)
    assert digest_of(packages) == code_digest()
    path.rename(path.with_name("renamed" + path.suffix))
    renamed = digest_of(packages)
    (path.with_name("renamed" + path.suffix)).unlink()
    assert len({code_digest(), changed, renamed, digest_of(packages)}) == 4
