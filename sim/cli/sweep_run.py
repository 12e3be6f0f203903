"""What all verbs of many runs share: how runs are repeated and where they run, and how such a command ends.

Not for what is tried (`sweep`, `preemption`). The one idea: a verb makes a study and says what to write; keeping
results, notes, Ctrl-C and a full disk are told in the same words by all.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sim.cli.numbers import FiniteRange
from sim.cli.paths import PathType
from sim.cli.progress import counting, working
from sim.cli.replay import option, say
from sim.cli.start import EXIT_INTERRUPTED
from sim.errors import InputError
from sim.latency.profile import DEFAULT_PROFILE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from sim.sweeps.backends import Backend
    from sim.sweeps.study import Study
    from sim.sweeps.sweep import Sweep

Decorated = TypeVar("Decorated", bound="Callable[..., Any]")

_RUNS, _WHERE = "Runs", "Where it runs"
_MOST_NOTES = 5

_OPTIONS = (
    option(
        _RUNS, "--replications", type=click.IntRange(min=1), default=1, show_default=True, metavar="N",
        help="Runs of each setting, on the seeds --seed, --seed + 1, ..., with confidence intervals.",
    ),
    option(
        _RUNS, "--warmup-s", type=FiniteRange(min=0), default=0.0, help="Seconds at a run's start not measured."
    ),
    option(_RUNS, "--cooldown-s", type=FiniteRange(min=0), default=0.0, help="Seconds at its end not measured."),
    option(
        _WHERE, "--out", type=PathType(file_okay=False), metavar="PATH",
        help="Folder for tables, picture and each run's result: the same command goes on there.",
    ),
    option(_WHERE, "--jobs", type=click.IntRange(min=1), metavar="N", help="Processes. Default: all cores."),
    option(
        _WHERE, "--backend", type=click.Choice(["local", "ray"]), default="local", show_default=True,
        help="This machine, or a cluster.",
    ),
    option(
        _WHERE, "--ray-address", metavar="HOST:PORT", help="Of an existing Ray cluster; `auto`: this machine's."
    ),
    option(
        "Simulation", "--profile", default=DEFAULT_PROFILE, show_default=True, help="Latency profile: a name or a file."
    ),
    option(
        "Simulation", "--outside", type=click.Choice(["warn", "raise", "clip"]), default="warn", show_default=True,
        help="What to do with steps that the profile was not fitted for.",
    ),
)  # fmt: skip


def running_options(function: Decorated) -> Decorated:
    """Add them all to a command."""
    for add in reversed(_OPTIONS):
        function = add(function)
    return function


def carried_out(study: Study, kwargs: Mapping[str, Any], slo: Mapping[str, float], best: str) -> Sweep:
    """Run a study as the flags of `running_options` say. Raises InputError where no setting of it can run."""
    from sim.sweeps.store import Store
    from sim.sweeps.sweep import TASKS, run_study

    for note in study.notes():
        say(f"note: {note}")
    out: Path | None = kwargs["out"]
    store = Store(None if out is None else out / TASKS)
    try:
        sweep = run_study(study, store, _backend(kwargs), slo, best, _bar)
    except OSError:
        say(f"stopped; the results so far are in {out}/, and the same command goes on there")
        raise
    return sweep


def ended(ctx: click.Context, sweep: Sweep, out: Path | None, write: Callable[[Path], None], document: str) -> None:
    """Say what is to be said, write what there is, and exit with 130 where Ctrl-C came. `document` has all notes."""
    for note in sweep.notes[:_MOST_NOTES]:
        say(f"note: {note}")
    if len(sweep.notes) > _MOST_NOTES:
        say(f"note: and {len(sweep.notes) - _MOST_NOTES} more like these, in {document}")
    if out is not None:
        logging.getLogger("matplotlib").setLevel(logging.ERROR)
        with working("writing results"):
            write(out)
        say(f"wrote {out}/")
    if sweep.partial:
        kept = f": what is done is in {out}/, the same command goes on there" if out else ""
        say(f"interrupted{kept}")
        ctx.exit(EXIT_INTERRUPTED)


def _bar(stage: str, total: int) -> AbstractContextManager[Callable[[], None]]:
    return counting(stage, "run", total)


def _backend(kwargs: Mapping[str, Any]) -> Backend:
    from sim.sweeps.backends import all_cores, local
    from sim.sweeps.ray_cluster import ray_cluster

    if kwargs["backend"] == "ray":
        if kwargs["jobs"]:
            raise InputError("--jobs goes with --backend local: a cluster has as many processes as it has cores")
        return ray_cluster(kwargs["ray_address"])
    if kwargs["ray_address"] is not None:
        raise InputError("--ray-address needs --backend ray")
    return local(kwargs["jobs"] or all_cores())
