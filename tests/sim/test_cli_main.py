"""The command line's frame: help without loading anything, one line per error, exit codes."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import IO

import click
import pytest

import sim
from sim.cli.main import VERBS, Verb, main
from sim.errors import InputError
from workloads.errors import TraceError

ELPASE = str(Path(sys.executable).with_name("elpase"))


def run(*command: str, stdout: IO[str] | int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=False, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=60)


def fails(error: BaseException) -> click.Command:
    @click.command()
    @click.option("--max-num-seqs", type=int)
    def command(max_num_seqs: int | None) -> None:
        raise error

    return command


@pytest.fixture
def use_verb(monkeypatch: pytest.MonkeyPatch):
    """Put a command of the test's own in the place of the verb `replay`."""

    def use(command: click.Command) -> None:
        module = ModuleType("a_verb_of_the_test")
        module.command = command  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "a_verb_of_the_test", module)
        monkeypatch.setitem(VERBS, "replay", Verb("a_verb_of_the_test", "Test."))

    return use


def exit_code(*args: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main(args)
    assert isinstance(caught.value.code, int)
    return caught.value.code


def one_error_line(capsys: pytest.CaptureFixture[str]) -> str:
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("elpase: error: ")
    assert err.count("\n") == 1
    return err.removeprefix("elpase: error: ").rstrip("\n")


def test_help_lists_every_verb_and_imports_none() -> None:
    """`elpase --help` must stay quick however heavy the verbs become."""
    code = (
        "import sys\nfrom sim.cli.main import main, VERBS\n"
        "try: main(['--help'])\n"
        "except SystemExit as e: assert e.code == 0, e.code\n"
        "heavy = [*(v.module for v in VERBS.values()), 'numpy', 'pandas', 'matplotlib', 'simpy', 'pyarrow', 'scipy']\n"
        "assert not set(heavy) & set(sys.modules), set(heavy) & set(sys.modules)\n"
    )
    done = run(sys.executable, "-c", code)
    assert done.returncode == 0, done.stderr
    for name, verb in VERBS.items():
        assert f"  {name}" in done.stdout
        assert verb.help in " ".join(done.stdout.split())


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_of_the_table_shows_its_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(name, "--help") == 0
    assert capsys.readouterr().out.startswith(f"Usage: elpase {name} ")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """And whether it is the compiled build, whose extension modules lie beside the sources."""
    extensions = [path for path in Path(sim.__path__[0]).rglob("*.*") if path.suffix in (".so", ".pyd")]
    assert exit_code("--version") == 0
    assert capsys.readouterr().out == f"elpase {sim.__version__} (compiled: {'yes' if extensions else 'no'})\n"


def test_the_version_says_what_is_loaded(monkeypatch, capsys) -> None:
    """A module of the run itself is asked, so a build that fell back to plain Python cannot call itself compiled."""
    for file, compiled in (("block_pool.cpython-311-x86_64-linux-gnu.so", "yes"), ("block_pool.py", "no")):
        monkeypatch.setattr("sim.core.block_pool.__file__", f"/somewhere/sim/core/{file}")
        assert exit_code("--version") == 0
        assert capsys.readouterr().out.endswith(f"(compiled: {compiled})\n")


def test_no_verb_shows_the_help_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code() == 2
    assert "replay" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (InputError(file="p.json", field="schema", value=9, expected="1"), "p.json: schema: got 9, expected 1"),
        (
            TraceError(file="t.csv", line=3, field="tokens", value="x", expected="an integer"),
            "t.csv:3: tokens: got 'x', expected an integer",
        ),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "t.csv"), "t.csv: No such file or directory"),
        (PermissionError(errno.EACCES, "Permission denied", "out"), "out: Permission denied"),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
        (click.UsageError("two\nlines"), "two lines"),
    ],
)
def test_what_the_user_can_mend_is_one_line_and_exit_code_2(error, told, use_verb, capsys) -> None:
    use_verb(fails(error))
    assert exit_code("replay") == 2
    assert one_error_line(capsys) == told


def test_a_bug_of_ours_keeps_its_traceback(use_verb) -> None:
    use_verb(fails(ValueError("not about input")))
    with pytest.raises(ValueError, match="not about input"):
        main(["replay"])


def test_ctrl_c_is_exit_code_130_without_a_traceback(use_verb, capsys) -> None:
    use_verb(fails(KeyboardInterrupt()))
    assert exit_code("replay") == 130
    assert capsys.readouterr().err.strip() == "elpase: interrupted"


@pytest.mark.parametrize("args", [("replay",), ("calibrate", "fit")])
def test_a_file_that_ends_too_soon_is_not_ctrl_c(
    args: tuple[str, ...], use_verb, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """click takes an EOFError for the end of somebody's answers."""
    command = fails(EOFError("Compressed file ended before the end-of-stream marker was reached"))
    use_verb(command)
    monkeypatch.setitem(sys.modules, "calibrate.cli_fit", sys.modules["a_verb_of_the_test"])
    assert exit_code(*args) == 2
    assert "ends too soon: Compressed file ended" in one_error_line(capsys)


@pytest.mark.parametrize("code", [0, 1])
def test_a_verbs_exit_code_is_the_commands(code: int, use_verb) -> None:
    @click.command()
    @click.pass_context
    def command(ctx: click.Context) -> None:
        ctx.exit(code)

    use_verb(command)
    assert exit_code("replay") == code


def test_underscores_are_dashes(use_verb, capsys) -> None:
    """vLLM takes both."""

    @click.command()
    @click.option("--max-num-seqs", type=int)
    def command(max_num_seqs: int) -> None:
        click.echo(max_num_seqs)

    use_verb(command)
    assert exit_code("replay", "--max_num_seqs", "7") == 0
    assert exit_code("replay", "--max-num_seqs=8") == 0
    assert capsys.readouterr().out == "7\n8\n"


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["replay", "--max-num-seq", "7"], "did you mean '--max-num-seqs'?"),
        (["replay", "--max-num-seqs", "seven"], "'seven' is not a valid integer"),
        (["replay", "--max-num-seqs"], "requires an argument"),
        (["replay", "extra"], "unexpected extra argument"),
        (["reply"], "did you mean 'replay'?"),
        (["zzz"], f"expected one of: {', '.join(VERBS)}"),
        (["--verbos"], "no such option"),
    ],
)
def test_usage_errors_are_one_line(args: list[str], told: str, use_verb, capsys) -> None:
    use_verb(fails(AssertionError("the verb ran")))
    assert exit_code(*args) == 2
    assert told in one_error_line(capsys).lower()


def test_a_reader_that_leaves_is_no_error() -> None:
    """`elpase ... | head -0` ends quietly."""
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as gone:
        done = run(ELPASE, "--help", stdout=gone)
    assert done.stderr == ""
    assert done.returncode == 1


def test_a_closed_stdout_is_no_bug() -> None:
    """As of `>&-` and of some schedulers' jobs: there is nobody to tell, and nothing else is wrong."""
    done = run("bash", "-c", 'exec "$@" >&-', "bash", ELPASE, "capacity", "--model", "qwen3-14b", "--gpu", "h100")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "args",
    [
        ("--help",),
        ("--version",),
        ("profiles",),
        ("capacity", "--model", "qwen3-14b", "--gpu", "h100", "--json"),
        ("replay", "random", "--num-prompts", "3", "--max-model-len", "2k"),
    ],
    ids=lambda args: args[0],
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_behind_stdout_is_one_line(
    args: tuple[str, ...], unbuffered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    with Path("/dev/full").open("w") as full:
        done = run(ELPASE, *args, stdout=full)
    assert done.stderr == "elpase: error: stdout: No space left on device\n"
    assert done.returncode == 2


@pytest.mark.parametrize(
    ("args", "code"),
    [(("compare", "none", "none"), 2), (("replay", "random", "--num-prompts", "3", "--out", "run"), 0)],
    ids=["error", "note"],
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_behind_stderr_leaves_the_exit_code(
    args: tuple[str, ...], code: int, unbuffered: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1 would be a comparison that found a difference, and 120 is what Python makes of it."""
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([ELPASE, *args], check=False, stderr=full, timeout=60, cwd=tmp_path)
    assert done.returncode == code


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt(), 130), (InputError("bad"), 2)])
def test_what_cannot_be_said_on_stderr_changes_no_exit_code(error, code, use_verb, monkeypatch) -> None:
    use_verb(fails(error))
    with Path("/dev/full").open("w", buffering=1) as full:
        monkeypatch.setattr(sys, "stderr", full)
        assert exit_code("replay") == code


def test_a_reader_of_stderr_that_leaves_is_no_error(use_verb, monkeypatch) -> None:
    @click.command()
    def command() -> None:
        click.echo("a note", err=True)

    use_verb(command)
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w", buffering=1) as gone:
        monkeypatch.setattr(sys, "stderr", gone)
        assert exit_code("replay") == 0


def test_another_full_disk_is_not_called_stdout(use_verb, capsys) -> None:
    use_verb(fails(OSError(errno.ENOSPC, "No space left on device")))
    assert exit_code("replay") == 2
    assert one_error_line(capsys) == "No space left on device"


def test_bad_input_is_told_though_stdout_is_full() -> None:
    with Path("/dev/full").open("w") as full:
        done = run(ELPASE, "replay", "random", "--block-size", "17", stdout=full)
    assert done.stderr == "elpase: error: block_size: got 17, expected a multiple of 16\n"
    assert done.returncode == 2
