"""What the README says is so: its commands run, their output is the output, its files and flags exist.

`python tests/test_readme.py` writes the outputs anew, for when they have changed for a good reason.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import click
import pandas as pd
import pytest

from sim.cli.main import VERBS, cli
from sim.config import EngineConfig
from sim.latency.profile import DEFAULT_PROFILE, Profile
from sim.report.step_rows import LIMITS, MODES
from workloads import FORMATS, read_trace

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
TEXT = README.read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)

MEASURED = "arrival_s,send_s,prompt_tokens,output_tokens,ttft_s,e2e_s\n" + "".join(
    f"{i}.0,{i}.0,{900 + i},32,0.06,0.45\n" for i in range(20)
)
"""Stands for a run that somebody measured."""
FILES = {
    "AzureLLMInferenceTrace_conv.csv": (ROOT / "tests/workloads/data/azure_2023.csv").read_text(encoding="utf-8"),
    "open_8rps.csv": MEASURED,
}
"""Files of the user's own, small, under the names that the README gives them."""

FOREIGN_FLAGS = {"--ignore-eos", "--save-result", "--save-detailed", "--enable-logging-iteration-details"}
"""Of vLLM's own commands, named for comparison."""


def commands(block: str) -> list[tuple[str, str]]:
    """A console block's commands (after `$ `, going on after `> `), each with the output below it."""
    parts = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    split = [re.match(r"((?:[^\n]*\n)(?:> [^\n]*\n)*)(.*)", part, re.DOTALL).groups() for part in parts]
    return [(command.replace("\n> ", "\n"), output) for command, output in split]


CONSOLE = [pair for kind, block in BLOCKS if kind == "console" for pair in commands(block)]
SCRIPTS = [block for kind, block in BLOCKS if kind == "bash" and "elpase" in block.split()]
PYTHON = [block for kind, block in BLOCKS if kind == "python"]


def run(command: str, folder: Path) -> tuple[int, str]:
    """Exit code, and output as a terminal shows it: both streams, without blanks at the ends of lines."""
    (folder / "tests").symlink_to(ROOT / "tests")
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    echo = ""
    if command.startswith("make "):
        echo, command = recipe(command.split()[1])
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f"exec 2>&1\n{command}"],
        cwd=folder,
        env=os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "100"},
        capture_output=True,
        text=True,
        timeout=900,  # seconds; a busy machine is no failure
        check=False,
    )
    return done.returncode, "".join(f"{line.rstrip()}\n" for line in (echo + done.stdout).splitlines())


def recipe(target: str) -> tuple[str, str]:
    """What make prints when it starts a target's one command, and the command."""
    line = re.search(rf"^{target}: .*\n\t(.*)$", MAKEFILE, re.MULTILINE)[1]
    return line.replace("$(BIN)", ".venv/bin") + "\n", line.replace("$(BIN)/", "")


def first_line(command: str) -> str:
    return command.splitlines()[0]


@pytest.mark.parametrize(("command", "shown"), CONSOLE, ids=[first_line(command) for command, _ in CONSOLE])
def test_what_stands_under_a_command_is_its_output(command: str, shown: str, tmp_path: Path) -> None:
    code, output = run(command, tmp_path)
    assert output == shown
    assert code == (2 if "elpase: error:" in output else 0)


@pytest.mark.parametrize("script", SCRIPTS, ids=[first_line(script) for script in SCRIPTS])
def test_a_script_runs(script: str, tmp_path: Path) -> None:
    code, output = run(script, tmp_path)
    assert code == 0, output


@pytest.mark.parametrize("code", PYTHON, ids=[first_line(code) for code in PYTHON])
def test_python_runs(code: str, tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_every_block_is_of_a_kind_that_is_tested() -> None:
    assert {kind for kind, _ in BLOCKS} == {"console", "bash", "python"}
    assert len(CONSOLE) >= 6
    assert SCRIPTS
    assert PYTHON


@pytest.mark.parametrize("target", re.findall(r"\bmake ([a-z]+)\b(?= *#|`|$)", TEXT, re.MULTILINE))
def test_make_targets_exist(target: str) -> None:
    assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE)


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)]+)\)", TEXT))
def test_links_lead_somewhere(link: str) -> None:
    if link.startswith("https://"):
        return
    path, _, fragment = link.partition("#")
    page = ROOT / path if path else README
    assert page.exists()
    if fragment:
        headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert fragment in {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", re.findall(r"`(?:[^`\n]*pytest )?((?:tests|sim|calibrate|docs)/[\w./]+)`", TEXT))
def test_files_named_exist(path: str) -> None:
    assert (ROOT / path).exists()


def test_flags_named_exist() -> None:
    context = cli.make_context("elpase", ["replay"])
    verbs = [cli, *(cli.get_command(context, name) for name in VERBS)]
    groups = [verb for verb in verbs[1:] if isinstance(verb, click.Group)]
    verbs += [group.get_command(context, name) for group in groups for name in group.list_commands(context)]
    known = {option for verb in verbs for param in verb.params for option in (*param.opts, *param.secondary_opts)} | {
        "--help"
    }
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", re.sub(r"^elpase: error.*$", "", TEXT, flags=re.MULTILINE)))
    assert named - known == FOREIGN_FLAGS


def test_every_knob_of_the_tables_is_one_of_vllm() -> None:
    knobs = [
        flag for row in re.findall(r"^\| (`--[^|]*)\|", TEXT, re.MULTILINE) for flag in re.findall(r"--[\w-]+", row)
    ]
    # Ten rows, one of which names a threshold and its adaptive form; the KV cache; drafts and graphs.
    assert len(knobs) == len(set(knobs)) == 11 + 7 + 11
    assert {flag[2:].replace("-", "_") for flag in knobs} <= set(EngineConfig.__dataclass_fields__)


def test_every_format_has_a_row_whose_example_is_read(tmp_path: Path) -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| (`.*?`.*?) \|", TEXT, re.MULTILINE)
    assert [name for name, _ in rows] == list(FORMATS)
    for name, cell in rows:
        line, *header = re.findall(r"`([^`]+)`", cell)
        path = tmp_path / name
        path.write_text("\n".join([*header, line.replace("{..., ", "{").replace("..., ", "")]), encoding="utf-8")
        trace = read_trace(path)
        assert len(list(trace)) >= 1
        assert trace.format == name


def test_result_files_and_keys_are_those_written(tmp_path: Path) -> None:
    code, output = run("elpase replay azure-conv --limit 3 --out out --timeline", tmp_path)
    assert code == 0, output
    section = TEXT.split("## Results")[1].split("\n## ")[0]
    files = set(re.findall(r"`([\w.]+\.(?:json|parquet|png|json\.gz))`", section))
    assert files == {path.name for path in (tmp_path / "out").iterdir()}
    result = json.loads((tmp_path / "out" / "result.json").read_text(encoding="utf-8"))
    row = re.search(r"^\| `result\.json` .*formulas \((.*), \.\.\.\)", section, re.MULTILINE)[1]
    assert set(re.findall(r"`(\w+)`", row)) <= set(result)
    for name in ("requests", "steps"):
        row = re.search(rf"^\| `{name}\.parquet` \| (.*) \|$", section, re.MULTILINE)[1]
        values = {*LIMITS, *MODES} if name == "steps" else {"finished", "rejected", "unfinished"}
        columns = set(pd.read_parquet(tmp_path / "out" / f"{name}.parquet").columns)
        assert set(re.findall(r"`(\w+)`", row)) == columns | values


def test_every_key_of_the_sim_block_is_explained(tmp_path: Path) -> None:
    code, output = run("elpase replay azure-conv --limit 3 --out out --goodput ttft:100 --kv-preemption swap", tmp_path)
    assert code == 0, output
    block = json.loads((tmp_path / "out" / "result.json").read_text(encoding="utf-8"))["sim"]
    table = TEXT.split("| in the block `sim` |")[1].split("\n\n")[0]
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", table, re.MULTILINE)
    explained = {tuple(re.findall(r"`(\w+)`", keys)): set(re.findall(r"`(\w+)`", text)) for keys, text in rows}
    assert [key for keys in explained for key in keys if key not in block] == []
    assert set(block) == {key for keys in explained for key in keys}
    assert explained["ttft_split_ms",] == set(block["ttft_split_ms"])
    assert explained["load",] == set(block["load"])
    assert explained["host",] == set(block["host"])
    assert explained["workload",] - {"workload"} <= set(block["workload"])
    assert explained["server", "config"] <= set(block["server"])


def test_the_domain_is_the_profile_s() -> None:
    domain = Profile.load(DEFAULT_PROFILE).domain
    shown = re.findall(r"^\| [^|]+ \| ([\d,]+) \|$", TEXT.split("## The profile")[1], re.MULTILINE)
    highs = [domain.num_tokens[1], domain.num_seqs[1], domain.decode_context[1], domain.chunk_pairs[1]]
    assert shown == [f"{high:,.0f}" for high in highs]


def test_as_many_mutants_as_claimed() -> None:
    mutants = runpy.run_path(str(ROOT / "tests/sim/core/test_mutants.py"))["MUTANTS"]
    assert f"| {len(mutants)} of {len(mutants)} noticed" in TEXT


def refresh() -> None:
    """Write the README with the outputs that its commands have now."""
    from tempfile import TemporaryDirectory

    text = TEXT
    for kind, block in BLOCKS:
        if kind != "console":
            continue
        anew = ""
        for command, _ in commands(block):
            with TemporaryDirectory() as folder:
                anew += "$ " + command.rstrip("\n").replace("\n", "\n> ") + "\n" + run(command, Path(folder))[1]
        text = text.replace(f"```console\n{block}```", f"```console\n{anew}```")
    README.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    refresh()
