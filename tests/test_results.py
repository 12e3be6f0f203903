"""The pages of results/sweeps: their tables are those of the files beside them, which their commands make."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAKE = runpy.run_path(str(ROOT / "results/make.py"))
PAGES = sorted((ROOT / "results/sweeps").glob("*/README.md"))
BY_NAME = [page.parent.name for page in PAGES]

CSV = """profile,budget,link,tokens,tokens_ci95,ms
a,1,,100,5,1500
a,2,8,150,5,2500
b,1,,80,4,1000
"""


@pytest.fixture
def frame(tmp_path) -> Path:
    path = tmp_path / "made.csv"
    path.write_text(CSV)
    return path


@pytest.mark.parametrize(
    ("wanted", "lines"),
    [
        (
            "rows: profile\nacross: budget\ntokens/s: tokens ,.0f change\nlatency, s: ms/1000 .1f",
            [
                "| profile | budget | 1 | 2 |",
                "| --- | --- | ---: | ---: |",
                "| a | tokens/s | 100 | +50.0 % |",
                "| | latency, s | 1.5 | 2.5 |",
                "| b | tokens/s | 80 | |",
                "| | latency, s | 1.0 | |",
            ],
        ),
        (
            "where: profile=a\nrows: profile\nacross: link\ntokens/s: tokens .0f ±",
            ["| profile | - | 8 |", "| --- | ---: | ---: |", "| a | 100 ± 5 | 150 ± 5 |"],
        ),
    ],
)
def test_a_table_is_of_the_file(frame: Path, wanted: str, lines: list[str]) -> None:
    assert MAKE["table"](frame, wanted + "\n").splitlines() == lines


@pytest.mark.parametrize("page", PAGES, ids=BY_NAME)
def test_a_page_s_tables_are_those_of_its_files(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "<!-- table " in text
    assert MAKE["filled"](text, page.parent) == text


@pytest.mark.parametrize("page", PAGES, ids=BY_NAME)
def test_its_commands_make_what_lies_beside_it(page: Path) -> None:
    made = {f"{words[-1]}{kind}" for words in MAKE["commands"](page.read_text(encoding="utf-8"))
            if "--out" in words for kind in (".csv", ".png")}  # fmt: skip
    assert made == {path.name for path in page.parent.iterdir() if path.suffix in (".csv", ".png")}
    assert f"[{page.parent.name}]({page.parent.name}/)" in (ROOT / "results/sweeps/README.md").read_text("utf-8")


VARIABLES = ("ELPASE_MOONCAKE_CONV", "ELPASE_MOONCAKE_SYNTHETIC")


def test_a_study_of_files_that_do_not_ship_is_left_out_without_them(tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in (ROOT / "results/sweeps/mooncake").iterdir()}
    done = subprocess.run(
        [sys.executable, ROOT / "results/make.py", "mooncake"],
        env={name: value for name, value in os.environ.items() if name not in VARIABLES}
        | {VARIABLES[1]: str(tmp_path / "none")},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) == len(MAKE["commands"](before[ROOT / "results/sweeps/mooncake/README.md"].decode()))
    assert all("; results/sweeps/mooncake/README.md says what it is: " in line for line in lines)
    assert lines[1].startswith("skipped, $ELPASE_MOONCAKE_CONV is not set; ")
    assert lines[2].startswith(f"skipped, $ELPASE_MOONCAKE_SYNTHETIC names no file: {tmp_path / 'none'}; ")
    assert {path: path.read_bytes() for path in before} == before


def make(*studies: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "results/make.py", *studies], cwd=cwd, capture_output=True, text=True,
                          timeout=60, check=False)  # fmt: skip


def test_a_study_that_does_not_exist_is_one_line() -> None:
    done = make("thrush")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("results/make.py: study: got 'thrush', expected one of async, azure, mooncake, ")
    assert done.stderr.count("\n") == 1


def test_a_command_that_fails_is_named_and_ends_it(tmp_path: Path) -> None:
    home = tmp_path / "results/sweeps/broken"
    home.mkdir(parents=True)
    (home / "README.md").write_text("```bash\nelpase sweep random --vary max_num_sequences=1,2 --out none\n```\n")
    (tmp_path / "results/make.py").write_bytes((ROOT / "results/make.py").read_bytes())
    done = make("broken", cwd=tmp_path)
    assert done.returncode == 1
    error, last = done.stderr.splitlines()
    assert error.startswith("elpase: error: knob: got 'max_num_sequences'")
    assert last == "results/make.py: exit code 2 of elpase sweep random --vary max_num_sequences=1,2 --out none"


def test_a_variable_names_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ELPASE_MOONCAKE_CONV", "mine.jsonl")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.jsonl").touch()
    assert MAKE["missing"](["elpase", "sweep", "$ELPASE_MOONCAKE_CONV"]) is None
    assert MAKE["expanded"]("$ELPASE_MOONCAKE_CONV") == str(tmp_path / "mine.jsonl")
    assert MAKE["expanded"]("--vary") == "--vary"


@pytest.mark.parametrize("page", PAGES, ids=BY_NAME)
def test_files_that_do_not_ship_are_told_where_studies_are(page: Path) -> None:
    found = set(MAKE["VARIABLE"].findall(page.read_text(encoding="utf-8")))
    assert found <= set(VARIABLES)
    assert all(name in (ROOT / "results/sweeps/README.md").read_text("utf-8") for name in found)


def test_made_again_it_is_the_same_bytes(tmp_path: Path) -> None:
    """One study from its first command to its page, in a copy of results/."""
    home = tmp_path / "results/sweeps/token-budget"
    kept = [path for path in (ROOT / "results/sweeps/token-budget").rglob("*") if path.suffix != ".png"]
    for path in kept:
        if path.is_file():
            copy = tmp_path / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    page = (home / "README.md").read_text(encoding="utf-8")
    (home / "README.md").write_text(page.replace("elpase sweep --experiment results/sweeps/token-budget/poisson", "#"))
    (home / "even.csv").unlink()
    (tmp_path / "results/make.py").write_bytes((ROOT / "results/make.py").read_bytes())
    done = subprocess.run(
        [sys.executable, "results/make.py", "token-budget"],
        cwd=tmp_path, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for name in ("even.csv", "even.png", "law.json", "bursts/poisson-1.0-3.csv"):
        assert (home / name).read_bytes() == (ROOT / "results/sweeps/token-budget" / name).read_bytes(), name
