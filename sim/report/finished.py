"""A finished run, read back from the folder that `elpase replay --out` wrote.

Not for judging it. The one idea: whatever is no such folder, of another version, or put together from two runs, is
refused here in one line.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sim import __version__
from sim.errors import InputError
from sim.latency.fields import Fields
from sim.report.log import REQUEST_COLUMNS, STEP_COLUMNS
from sim.report.tables import REQUESTS_FILE, STEPS_FILE, read_frames

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from sim.report.frames import Frames

RESULT_FILE = "result.json"


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """Of a folder: the frames, and the result as it stands in result.json."""

    folder: Path
    frames: Frames
    result: Mapping[str, Any]


def read_finished(folder: Path) -> FinishedRun:
    """Raises InputError naming folder or file; OSError for what cannot be read."""
    if not folder.is_dir():
        found = "is a file" if folder.exists() else "there is no such folder"
        raise InputError(f"{folder}: {found}, expected the folder of a run, as elpase replay --out writes it")
    for name in (RESULT_FILE, REQUESTS_FILE, STEPS_FILE):
        if not (folder / name).is_file():
            raise InputError(f"{folder}: has no {name}: is it what elpase replay --out wrote?")
    said = Fields.read(folder / RESULT_FILE)
    version = said.object("sim").table.get("elpase_version")
    frames = read_frames(folder)
    _require_this_version(folder, frames)
    requests = len(frames.requests)
    if (version, said.table.get("num_prompts")) != (frames.meta.get("elpase_version"), requests):
        raise InputError(
            f"{folder}: {RESULT_FILE} is of {said.table.get('num_prompts')} requests and elpase {version},"
            f" {REQUESTS_FILE} of {requests} and {frames.meta.get('elpase_version')}: they are of different runs"
        )
    return FinishedRun(folder, frames, said.table)


def _require_this_version(folder: Path, frames: Frames) -> None:
    version = str(frames.meta.get("elpase_version"))
    if version.split(".")[:2] != __version__.split(".")[:2]:
        raise InputError(f"{folder}: made by elpase {version}, this is {__version__}: replay it again")
    for file, table, columns in (
        (REQUESTS_FILE, frames.requests, REQUEST_COLUMNS),
        (STEPS_FILE, frames.steps, STEP_COLUMNS),
    ):
        missing = [name for name in columns if name not in table]
        if missing:
            raise InputError(f"no column {missing[0]}: another version's run, replay it again", file=folder / file)
