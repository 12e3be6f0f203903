"""What a reader may count on in every file; the linters cannot say these."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("sim", "calibrate", "workloads")
FILES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
IDS = [str(path.relative_to(ROOT)) for path in FILES]

LONGEST_FUNCTION = 50
LONGEST_FILE = 400
LONGEST_CORE_FILE = 300


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_files_and_functions_are_short(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    core = path.is_relative_to(ROOT / "sim" / "core")
    assert text.count("\n") <= (LONGEST_CORE_FILE if core else LONGEST_FILE)
    functions = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    assert [f.name for f in functions if (f.end_lineno or 0) - f.lineno + 1 > LONGEST_FUNCTION] == []


def test_no_package_file_below_tests() -> None:
    """A tests/sim/__init__.py would be imported as `sim`."""
    assert list((ROOT / "tests").rglob("__init__.py")) == []


def test_test_files_have_unique_names() -> None:
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted({name for name in names if names.count(name) > 1}) == []
