"""The `elpase` command: finds the verb, and turns whatever the user got wrong into one line and exit code 2.

Not for the verbs themselves (one file each). The one idea: the table below is all that `elpase --help` needs, so a
verb's module, and the libraries behind it, are loaded only when the verb is used.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from typing import TYPE_CHECKING, Any, NamedTuple

import click

import sim
from sim.cli.start import EXIT_INTERRUPTED
from sim.cli.streams import flush_stdout, streams
from sim.errors import InputError, did_you_mean, one_line
from sim.interrupt import exiting_on

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

EXIT_INPUT_ERROR = 2


class Verb(NamedTuple):
    """Where a verb's `command` lives, and its line in `elpase --help`."""

    module: str
    help: str


VERBS = {
    "replay": Verb("sim.cli.replay", "Replay a trace or a built-in workload through vLLM's scheduler."),
    "sweep": Verb("sim.cli.sweep", "Try many settings: the table, the front, the best within bounds."),
    "preemption": Verb(
        "sim.cli.preemption", "Recompute, swap, offload: which is best, at which KV size and PCIe bandwidth."
    ),
    "explain": Verb("sim.cli.explain", "Why a run is as slow as it is: binding knobs, worst gaps, what to change."),
    "capacity": Verb("sim.cli.capacity", "The KV blocks that fit a GPU, and the requests that run in them."),
    "report": Verb("sim.cli.report", "A finished run as one HTML page that works offline."),
    "compare": Verb("sim.cli.compare", "Two benchmark results side by side: vLLM's, GuideLLM's, AIPerf's, elpase's."),
    "profiles": Verb("sim.cli.profiles", "The latency profiles that ship: device, domain, held-out error."),
    "calibrate": Verb("calibrate.cli", "Make a latency profile: time steps, then fit."),
    "validate": Verb("calibrate.cli_validate", "Replay a measured run; compare simulated with real times."),
    "conform": Verb("sim.cli.conform", "Compare the scheduler with vLLM's own recorded decisions."),
}


class VerbGroup(click.Group):
    """A click group over a table of verbs that imports a verb's module only to run it or to show its own help."""

    def __init__(self, *args: Any, verbs: Mapping[str, Verb], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._verbs = verbs

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        """Verbs in the table's order: the main job first."""
        return list(self._verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the verb's module and hand out its `command`."""
        if cmd_name not in self._verbs:
            hint = did_you_mean(cmd_name, self._verbs) or f"; expected one of: {', '.join(self._verbs)}"
            ctx.fail(f"No such command {cmd_name!r}{hint}")
        module = self._verbs[cmd_name].module
        if module.startswith(sim.__name__):
            # Loaded with numpy, OpenBLAS starts a thread per core, and these spin before they sleep: a tenth of a short
            # run, which has no large matrices. What measures a server or a model does not change its threads.
            os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        command: click.Command = import_module(module).command
        return command

    def invoke(self, ctx: click.Context) -> object:
        """Run the verb. No verb asks anything, so an EOFError, which click takes for Ctrl-C, is a file cut short."""
        try:
            return super().invoke(ctx)
        except EOFError as error:
            raise InputError(f"a file ends too soon: {error}") from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """One line per verb, from the table: click would import every module to ask for it."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.help) for name, verb in self._verbs.items()])


def _show_version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    """The version, and whether the hot modules are loaded as C: where one of them lies, which no flag can belie."""
    if value:
        file = import_module("sim.core.block_pool").__file__ or ""
        compiled = "yes" if file.endswith(tuple(EXTENSION_SUFFIXES)) else "no"
        click.echo(f"elpase {sim.__version__} (compiled: {compiled})")
        ctx.exit()


def _dashed(name: str) -> str:
    return name.replace("_", "-")


@click.group(
    cls=VerbGroup,
    verbs=VERBS,
    # vLLM takes `--max_num_seqs` for `--max-num-seqs`, so do we.
    context_settings={"token_normalize_func": _dashed, "help_option_names": ["-h", "--help"]},
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show the version."
)
def cli() -> None:
    """Simulate vLLM serving: the V1 scheduler's decisions, a profile's times, no GPU.

    Example: elpase replay azure-conv --limit 200 --out run
    """


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 a comparison found a difference, 2 bad input, 130 Ctrl-C.

    What the user can mend is one line on stderr. A bug of ours keeps its traceback: it is what a report needs.
    """
    # What was written aside is removed.
    with exiting_on(signal.SIGTERM, signal.SIGHUP), streams():
        sys.exit(_exit_code(args))


def _exit_code(args: Sequence[str] | None) -> int:
    try:
        code = cli.main(args, prog_name="elpase", standalone_mode=False)
        flush_stdout()
    except click.Abort:
        click.echo("elpase: interrupted", err=True)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return 1
    except (click.ClickException, ValueError, OSError) as error:
        click.echo(_told(error), err=True)
        with suppress(OSError):
            flush_stdout()
        return EXIT_INPUT_ERROR
    # A verb ends by `ctx.exit(code)`, which click hands out here; what a verb returns otherwise is not an exit code.
    return code if isinstance(code, int) else 0


def _told(error: Exception) -> str:
    """One line for what the user got wrong (or the help that was asked for); any other error is raised again."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return error.format_message()
    return f"elpase: error: {one_line(_what_is_wrong(error))}"


def _what_is_wrong(error: Exception) -> str:
    from workloads.errors import TraceError

    if isinstance(error, click.NoSuchOption):
        return f"No such option '{error.option_name}'{_instead(error)}"
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, InputError | TraceError):
        return str(error)
    if isinstance(error, OSError):
        told = error.strerror or str(error)
        return told if error.filename is None else f"{error.filename}: {told}"
    raise error


_MODEL = ("--profile", "model, GPU and times are those of the latency profile: see --profile, and `elpase profiles`")
_RESULT = ("--out", "results go to the folder that --out names")
_HOST = ("--host-memory", "--host-memory says how much swap and offload may fill")
_ELSEWHERE = {
    "kv-preemption": ("--modes", "the modes to compare are --modes"), "swap-space": _HOST, "kv-offloading-size": _HOST,
    "model": _MODEL, "gpu": _MODEL, "result-dir": _RESULT, "result-filename": _RESULT, "save-result": _RESULT,
    "save-detailed": _RESULT,
}  # fmt: skip
"""Flags of other verbs and of `vllm bench serve`: the flag that has their place where there is one, and how."""


def _instead(error: click.NoSuchOption) -> str:
    """What to say instead of an option: what has its place, else one that is spelt nearly the same."""
    names = [name for param in error.ctx.command.params for name in param.opts] if error.ctx else []
    flag, told = _ELSEWHERE.get(error.option_name.lstrip("-").replace("_", "-"), ("", ""))
    if flag in names:
        return f"; {told}"
    return did_you_mean(error.option_name, [name for name in names if name.startswith("--")])
