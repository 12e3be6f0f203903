"""What `pip install elpase` brings."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("sim", "calibrate", "workloads")


def shipped_files() -> set[str]:
    """Every file of the packages but what Python itself leaves there."""
    files = (path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file())
    return {path.relative_to(ROOT).as_posix() for path in files if "__pycache__" not in path.parts}


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    for target in ("wheel", "sdist"):
        command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    return folder


def test_the_wheel_holds_the_packages_with_their_data_and_nothing_else(dist: Path) -> None:
    """Profiles, catalogue and built-in workloads are data files: no ignore pattern may swallow them."""
    (wheel,) = dist.glob("*.whl")
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == shipped_files()
    assert {f"{package}/py.typed" for package in PACKAGES} <= names


def test_what_is_compiled_is_there() -> None:
    """A module that was renamed would silently no longer be compiled."""
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]
    include = build["targets"]["wheel"]["hooks"]["mypyc"]["include"]
    assert [file for file in include if not (ROOT / file.removeprefix("/")).is_file()] == []
    assert include == sorted(set(include))


def test_the_sdist_holds_all_that_the_tests_need(dist: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert shipped_files() <= names
    assert {"Makefile", "LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", "tests/test_packaging.py"} <= names
