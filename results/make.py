"""Makes every study under results/sweeps/ again: `make results`, or `python results/make.py STUDY...` for some.

Not for results of measuring (results/calibration). The one idea: a study's page is its program. The commands in its
first block are run, their tables and pictures lie beside it under the names after `--out`, and the page's own tables
are filled in from those; so `git diff` shows what has changed, and what the prose has to be held against.

Runs that are done are kept in results/.runs/, and a make that was stopped goes on there. A command with a variable,
`$ELPASE_MOONCAKE_CONV`, needs a file that does not ship: it is skipped, and said to be, where that names none.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd

from sim.report.units import signed_percent

ROOT = Path(__file__).parents[1]
SWEEPS = ROOT / "results/sweeps"
RUNS = ROOT / "results/.runs"
VARIABLE = re.compile(r"\$(\w+)")
MADE = ("sweep", "preemption")
"""What the verbs call their tables and pictures."""
STRICT = {"PYTHONWARNINGS": "error"}
TABLE = re.compile(r"(<!-- table (\S+)\n(.*?)-->\n)(.*?)(<!-- end -->)", re.DOTALL)


def commands(page: str) -> list[list[str]]:
    """Of a page's first block, each as words."""
    block = re.search(r"^```bash\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert block is not None, "a page without commands"
    lines = block[1].replace("\\\n", " ").splitlines()
    return [words for words in (shlex.split(line, comments=True) for line in lines) if words]


def missing(words: list[str]) -> str | None:
    """Why a command cannot run here: a file that does not ship, and which no variable names."""
    for name in VARIABLE.findall(" ".join(words)):
        path = os.environ.get(name, "")
        if not path:
            return f"${name} is not set"
        if not Path(path).is_file():
            return f"${name} names no file: {path}"
    return None


def carry_out(words: list[str], home: Path) -> None:
    """Run one command from the repository's root; put the table and picture that it makes into the page's folder."""
    print(f"$ {shlex.join(words)}", flush=True)
    run = [str(Path(sys.executable).with_name(words[0])), *map(expanded, words[1:])]
    name = words[words.index("--out") + 1] if "--out" in words else ""
    out = RUNS / home.name / name
    if name:
        run[words.index("--out") + 1] = str(out)
    done = subprocess.run(run, cwd=ROOT, stdout=subprocess.DEVNULL, check=False, env=os.environ | STRICT)
    if done.returncode:
        sys.exit(f"results/make.py: exit code {done.returncode} of {shlex.join(words)}")
    for file in (out / f"{made}{kind}" for made in MADE for kind in (".csv", ".png") if name):
        if file.exists():
            shutil.copyfile(file, home / f"{name}{file.suffix}")


def expanded(word: str) -> str:
    """A word of a command, with the file that a variable names; a relative one counts from where `make` was called."""
    return VARIABLE.sub(lambda found: str(Path(os.environ[found[1]]).absolute()), word)


def filled(page: str, home: Path) -> str:
    """The page, with its tables made anew."""
    return TABLE.sub(lambda found: found[1] + table(home / found[2], found[3]) + found[5], page)


def table(file: Path, wanted: str) -> str:
    """A table of a sweep in Markdown: a line for each of `rows` and figure, a column for each value of `across`.

    `wanted` has lines `rows: KNOB, KNOB`, `across: KNOB`, perhaps `where: KNOB=VALUE, ...`, and for each figure
    `NAME: COLUMN FORMAT`, with ` ±` for its confidence interval, or ` change` for the change from the first column;
    `COLUMN/1000` is in other units.
    """
    said = dict(line.split(": ", 1) for line in wanted.splitlines())
    rows, across = said.pop("rows").split(", "), said.pop("across")
    frame = pd.read_csv(file)
    for knob, value in (pair.split("=") for pair in said.pop("where", "").split(", ") if pair):
        frame = frame[frame[knob].map(told) == value]
    values = list({told(value): value for value in frame[across]}.values())
    lines = [[*rows, *([across] if len(said) > 1 else []), *map(told, values)]]
    lines.append(["---"] * (len(lines[0]) - len(values)) + ["---:"] * len(values))
    for place, group in frame.groupby(rows, sort=False, dropna=False):
        names = [told(value) for value in place]
        for figure, column in said.items():
            lines.append(
                [*names, *([figure] if len(said) > 1 else []), *cells(group.set_index(across), column, values)]
            )
            names = [""] * len(rows)
    return "".join(re.sub(r"\|  (?=\|)", "| ", f"| {' | '.join(line)} |\n") for line in lines)


def cells(group: pd.DataFrame, column: str, values: list[object]) -> list[str]:
    """A line's figures; nothing where nothing ran."""
    scaled, form, *how = column.split()
    name, _, unit = scaled.partition("/")
    line = []
    for value in values:
        here = group[group.index.isna()] if value != value else group[group.index == value]
        if here.empty:
            line.append("")
        elif how == ["change"] and value != values[0]:
            line.append(signed_percent(here[name].iloc[0] / group[name].iloc[0] - 1))
        else:
            shown = [name, f"{name}_ci95"] if how == ["±"] else [name]
            line.append(" ± ".join(figure(here[one].iloc[0] / float(unit or 1), form) for one in shown))
    return line


def figure(number: float, form: str) -> str:
    """A number as Python formats it, but with elpase's space before the percent sign."""
    return f"{number:{form}}".replace("%", " %")


def told(value: object) -> str:
    """A knob's value as people write it."""
    if isinstance(value, float):
        return "-" if value != value else f"{value:g}"
    return str(value)


def main() -> None:
    """All of them, or those that are named."""
    studies = {page.parent.name: page for page in sorted(SWEEPS.glob("*/README.md"))}
    for unknown in [name for name in sys.argv[1:] if name not in studies]:
        sys.exit(f"results/make.py: study: got {unknown!r}, expected one of {', '.join(studies)}")
    for page in [studies[name] for name in sorted(sys.argv[1:] or studies)]:
        home = page.parent
        for words in commands(page.read_text(encoding="utf-8")):
            if why := missing(words):
                print(f"skipped, {why}; {page.relative_to(ROOT)} says what it is: {shlex.join(words)}", flush=True)
            else:
                carry_out(words, home)
        page.write_text(filled(page.read_text(encoding="utf-8"), home), encoding="utf-8")


if __name__ == "__main__":
    main()
