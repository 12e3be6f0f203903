"""Results that are done, on disk, one file per task: what lets a sweep be killed at any moment and go on later.

Not for tables and pictures (`files`). The one idea: a file is there whole, under the name of its task's key, or not at
all; so nothing needs to be said of a sweep's state, and two sweeps can share a folder.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from sim import __version__
from sim.errors import InputError
from sim.experiment import VLLM_SEMANTICS
from sim.input_file import RESULT_BYTES, read_text
from sim.interrupt import ctrl_c_waits
from sim.json_file import NOT_JSON
from sim.output import write_text_atomic

if TYPE_CHECKING:
    from pathlib import Path

FORMAT = 1
_ABOUT = "about.json"


class Store:
    """The results in `folder`; with None, in memory only."""

    def __init__(self, folder: Path | None) -> None:
        """Raises InputError for a folder that another version wrote, OSError where it cannot be written."""
        self._folder = folder
        self._held: dict[str, str] = {}
        if folder is not None:
            _claim(folder)

    def get(self, key: str) -> str | None:
        """A task's result; None where there is none that can be read."""
        if key not in self._held and self._folder is not None:
            text = _read(self._folder / f"{key}.json")
            if text is not None:
                self._held[key] = text
        return self._held.get(key)

    def put(self, key: str, text: str) -> None:
        """Keep a result. Raises OSError (a full disk): then it is not there, and all others still are.

        Ctrl-C waits: what is told as done must be found again.
        """
        with ctrl_c_waits():
            if self._folder is not None:
                write_text_atomic(self._folder / f"{key}.json", text)
            self._held[key] = text


def _claim(folder: Path) -> None:
    """Make the folder ours, or see that it is."""
    about = {"format": FORMAT, "elpase_version": __version__, "vllm_semantics": VLLM_SEMANTICS}
    folder.mkdir(parents=True, exist_ok=True)
    text = _read(folder / _ABOUT)
    if text is None:
        write_text_atomic(folder / _ABOUT, json.dumps(about) + "\n")
        return
    found = json.loads(text)
    if found != about:
        version = found.get("elpase_version", "?") if isinstance(found, dict) else "?"
        raise InputError(
            f"holds results of elpase {version}, this is {__version__}: they are left as they are, say another --out",
            file=folder.parent,
        )


def _read(path: Path) -> str | None:
    """A JSON file's text; None where it is missing or was damaged."""
    try:
        text = read_text(path, RESULT_BYTES)
        json.loads(text)
    except (FileNotFoundError, *NOT_JSON):
        return None
    return text
