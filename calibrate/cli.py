"""`elpase calibrate`: the group of verbs that lead from timed steps to a profile.

Not for the verbs themselves: one file each, cli_VERB.py, loaded only when the verb is used.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from sim.cli.main import Verb, VerbGroup

VERBS = {
    "torch": Verb("calibrate.cli_torch", "Time real forward passes of a model's decoder with torch."),
    "vllm": Verb("calibrate.cli_vllm", "Time the steps of the real vLLM engine."),
    "log": Verb("calibrate.cli_log", "Read the steps of a vLLM iteration log."),
    "tables": Verb("calibrate.cli_tables", "Compose a model's steps from tables of measured kernels."),
    "fit": Verb("calibrate.cli_fit", "Fit a latency profile to samples; cross-validate; report."),
    "run": Verb("calibrate.cli_run", "Serve a small trace with real forward passes; compare the simulation."),
}


class RecordedCommand(click.Command):
    """A command that can say how it was called, for the records of what it writes (`command_line`)."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the arguments as the user wrote them."""
        ctx.meta[_ARGS] = list(args)
        return super().parse_args(ctx, args)


_ARGS = "calibrate.args"


def command_line() -> str:
    """The running command as it was called, without the folders of this machine. Needs `RecordedCommand`."""
    ctx = click.get_current_context()
    words = [Path(word).name if Path(word).is_absolute() else word for word in ctx.meta[_ARGS]]
    return shlex.join([*ctx.command_path.split(), *words])


@click.group(cls=VerbGroup, verbs=VERBS)
def command() -> None:
    """Make a latency profile: time steps (samples, a Parquet table), then fit.

    Example: elpase calibrate log server.log --gpu h100 --model llama-3.1-8b --out samples.parquet
    """
