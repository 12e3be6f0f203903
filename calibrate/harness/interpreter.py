"""Python interpreters that hold a vLLM: found, checked, told what to be like.

The one idea: whatever is wrong with an interpreter is told in one line before anything is started or written.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from sim.errors import InputError

LINE = "0.32"
"""The line of vLLM whose insides the scripts know and whose scheduler is simulated."""

_ASK = """
import importlib.metadata as m, importlib.util as u, json
spec = u.find_spec("vllm")
installed = {d.metadata["Name"] or "" for d in m.distributions()}
names = ["vllm", *sorted(name for name in installed if name.lower().startswith("vllm"))]
def version(name):
    try:
        return m.version(name)
    except m.PackageNotFoundError:
        return None
print(json.dumps({"found": spec is not None, "versions": [v for v in map(version, names) if v]}))
"""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python with vLLM."""

    python: Path
    version: str
    """vLLM's."""

    @property
    def is_cpu(self) -> bool:
        """Whether it is vLLM's CPU build."""
        return "cpu" in self.version

    @property
    def command(self) -> Path:
        """The `vllm` command beside it."""
        return self.python.parent / "vllm"


def find_interpreter(path: str | os.PathLike[str]) -> Interpreter:
    """The interpreter at `path`. Raises InputError where there is none, none with vLLM, or another vLLM than 0.32."""
    python = Path(path).absolute()  # not resolved: a virtual environment's interpreter is a link
    expected = f"a Python interpreter that has vLLM {LINE}"
    if not python.is_file() or not os.access(python, os.X_OK):
        raise InputError("no such interpreter", file=path, expected=expected)
    try:
        asked = subprocess.run(
            [python, "-c", _ASK], capture_output=True, text=True, timeout=60, check=False, env=clean_environment()
        )
        answer = json.loads(asked.stdout.splitlines()[-1])
    except (OSError, subprocess.TimeoutExpired, IndexError, json.JSONDecodeError) as error:
        raise InputError("this is no Python interpreter that answers", file=path, expected=expected) from error
    if not answer["found"] or not answer["versions"]:
        raise InputError("has no vLLM", file=path, expected=expected)
    version = str(answer["versions"][0])
    if not (version == LINE or version.startswith(f"{LINE}.")):
        raise InputError(file=path, field="vLLM", value=version, expected=f"{LINE}.x, whose scheduler is simulated")
    return Interpreter(python, version)


def clean_environment(**more: str) -> dict[str, str]:
    """This process's environment without what makes another Python import our packages; plus `more`."""
    ours = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__", "PYTHONSTARTUP")
    kept = {name: value for name, value in os.environ.items() if name not in ours}
    quiet = {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    return {**quiet, **kept, **more}


def last_words(log: Path) -> str:
    """The line of a log that says best what went wrong: its last error, else its last line."""
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    told = [line for line in lines if re.search(r"\w*(Error|Exception)\b.*:|error:", line)]
    return (told or lines or ["nothing was logged"])[-1][-300:]
