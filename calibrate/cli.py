"""`elpase calibrate`: the group of verbs that lead from timed steps to a profile.

Not for the verbs themselves: one file each, cli_VERB.py, loaded only when the verb is used.
"""

from __future__ import annotations

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


@click.group(cls=VerbGroup, verbs=VERBS)
def command() -> None:
    """Make a latency profile: time steps (samples, a Parquet table), then fit."""
