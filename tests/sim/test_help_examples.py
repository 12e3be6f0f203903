"""Every verb's help has an example, and it runs: its files stand in a folder as a user would have them."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import click
import pytest

from sim.cli.main import VerbGroup, cli, main

ROOT = Path(__file__).parents[2]
EXAMPLE = re.compile(r"^\s*(?:Example: )?(elpase .+)$", re.MULTILINE)
NEEDS_MORE = ("torch", "vllm", "live", "run", "tables")
"""Verbs that need torch, vLLM, or tables of measured kernels: their examples are read, not run."""

CSV = "arrival_s,send_s,prompt_tokens,output_tokens,ttft_s,e2e_s\n" + "".join(
    f"{i}.0,{i}.0,{900 + i},32,0.06,0.45\n" for i in range(20)
)
STUDY = 'trace = "random"\nnum_prompts = 10\n[vary]\nmax_num_seqs = [2, 4]\n'


def commands(group: click.Group, name: str) -> dict[str, click.Command]:
    """Each by what is typed, itself included."""
    found: dict[str, click.Command] = {name: group}
    with click.Context(group) as ctx:
        for verb in group.list_commands(ctx):
            command = group.get_command(ctx, verb)
            assert command is not None
            inner = f"{name} {verb}"
            found |= commands(command, inner) if isinstance(command, VerbGroup) else {inner: command}
    return found


COMMANDS = commands(cli, "elpase")
EXAMPLES = {name: EXAMPLE.findall(command.help or "") for name, command in COMMANDS.items()}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_has_an_example_of_its_own(name: str) -> None:
    assert EXAMPLES[name]
    assert all(example.startswith(name) for example in EXAMPLES[name])


def exit_code(words: list[str]) -> object:
    with pytest.raises(SystemExit) as end:
        main(words)
    return end.value.code


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the examples read, under the names that they give it."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "study.toml").write_text(STUDY, encoding="utf-8")
    (folder / "open_8rps.csv").write_text(CSV, encoding="utf-8")
    shutil.copy(ROOT / "tests/workloads/data/azure_2023.csv", folder / "AzureLLMInferenceTrace_conv.csv")
    (folder / "tests").symlink_to(ROOT / "tests")
    assert exit_code(["replay", "random", "--num-prompts", "20", "--out", str(folder / "run")]) == 0
    shutil.copy(folder / "run/result.json", folder / "bench.json")
    for side in ("measured", "simulated"):
        (folder / side).mkdir()
        for name in ("low.json", "high.json"):
            shutil.copy(folder / "bench.json", folder / side / name)
    data = ROOT / "tests/calibrate/data"
    shutil.copy(data / "vllm_0_32_stamped.log", folder / "server.log")
    words = ["--gpu", "h200", "--model", "llama-3.1-8b", "--out", str(folder / "torch.parquet")]
    assert exit_code(["calibrate", "log", str(folder / "server.log"), *words]) == 0
    (folder / "results/calibration").mkdir(parents=True)
    for verb, name in (("tables", "op_tables/h100_sxm"), ("vllm", "llama-8b")):
        (folder / name).mkdir(parents=True)
        assert verb in NEEDS_MORE
    return folder


@pytest.mark.parametrize("example", [example for found in EXAMPLES.values() for example in found])
def test_it_runs(example: str, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tmp_path / "here"
    shutil.copytree(files, here, symlinks=True)
    monkeypatch.chdir(here)
    words = shlex.split(example)[1:]
    if set(words[:2]) & {*NEEDS_MORE}:
        read(cli, words)
    else:
        assert exit_code(words) == 0


def read(group: click.Group, words: list[str]) -> None:
    """Take the words as the command would, without running it. Raises ClickException."""
    with click.Context(group) as ctx:
        command = group.get_command(ctx, words[0])
        assert command is not None
        if isinstance(command, VerbGroup) and words[1] in command.list_commands(ctx):
            read(command, words[1:])
        else:
            command.make_context(words[0], words[1:], parent=ctx)
