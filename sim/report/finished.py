"""A finished run, read back from the folder that `elpase replay --out` wrote.

Not for judging it. The one idea: whatever is no such folder, of another version, or put together from two runs, is
refused here in one line.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sim import __version__
from sim.errors import InputError
from sim.input_file import RESULT_BYTES
from sim.json_file import read_json_object
from sim.latency.fields import Fields
from sim.plurals import counted
from sim.report.request_rows import REQUEST_COLUMNS
from sim.report.run_columns import require_columns
from sim.report.run_meta import require_meta
from sim.report.step_rows import STEP_COLUMNS
from sim.report.summary import summarize
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
            how = "--keep-steps --out" if name == STEPS_FILE else "--out"
            raise InputError(f"{folder}: has no {name}: is it what elpase replay {how} wrote?")
    said = Fields(folder / RESULT_FILE, read_json_object(folder / RESULT_FILE, most_bytes=RESULT_BYTES))
    sim = said.object("sim").table
    frames = read_frames(folder)
    Fields(folder / REQUESTS_FILE, frames.meta).text("elpase_version")
    require_this_version(frames, str(folder))
    if said.table.get("num_prompts") != len(frames.requests):
        raise InputError(
            f"{folder}: {RESULT_FILE} says num_prompts {said.table.get('num_prompts')}, {REQUESTS_FILE} has"
            f" {counted(len(frames.requests), 'request')}: they are of different runs"
        )
    if any(sim.get(name) != frames.meta.get(name) for name in ("trace", "seed")):
        raise InputError(f"{folder}: {RESULT_FILE} and {REQUESTS_FILE} are of different runs")
    require_columns(frames, folder)
    require_meta(frames, folder / REQUESTS_FILE)
    return FinishedRun(folder, frames, said.table)


def require_whole_result(run: FinishedRun) -> None:
    """Raise InputError for the first field of result.json that is not of the kind that the run's frames make it."""
    said = Fields(run.folder / RESULT_FILE, run.result)
    made = summarize(run.frames, detailed=False)
    _require_like(said, {name: value for name, value in made.items() if _asked(name, said)})


def _asked(name: str, said: Fields) -> bool:
    """Whether it must be there: which latencies are told is the user's choice."""
    return not name.endswith("_ms") or name in said.table


def _require_like(said: Fields, made: Mapping[str, Any]) -> None:
    for name, value in made.items():
        if isinstance(value, dict):
            _require_like(said.object(name), value)
        elif isinstance(value, bool):
            said.truth(name)
        elif isinstance(value, int | float):
            said.number(name)
        elif isinstance(value, str) and not isinstance(said.table.get(name), str):
            raise said.wrong(name, "a text")


def require_this_version(frames: Frames, told: str) -> None:
    """Raises InputError, about what is `told`, for frames of another version."""
    version = str(frames.meta.get("elpase_version"))
    if version.split(".")[:2] != __version__.split(".")[:2]:
        raise InputError(f"{told}: made by elpase {version}, this is {__version__}: replay it again")
    for name, table, columns in (
        ("requests", frames.requests, REQUEST_COLUMNS),
        ("steps", frames.steps, STEP_COLUMNS),
    ):
        missing = [column for column in columns if column not in table]
        if missing:
            raise InputError(f"{told}: {name} have no {missing[0]}: another version's run, replay it again")
