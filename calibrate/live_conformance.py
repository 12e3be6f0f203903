"""Conformance with a vLLM that somebody has: new random cases, recorded by it and compared with our core at once."""

from __future__ import annotations

import gzip
import json
import subprocess
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from calibrate.harness.interpreter import clean_environment, find_interpreter
from sim.errors import InputError
from sim.random_cases import random_cases

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sim.conformance import Conformance

_SCRIPT = Path(__file__).with_name("harness") / "vllm_scripts" / "record_decisions.py"


def conform_live(
    result: Conformance,
    python: Path,
    num_cases: int,
    seed: int,
    on_case: Callable[[], None],
    keep: Path | None = None,
) -> dict[str, str]:
    """Compare `num_cases` random cases, adding to `result`; returns the cases that vLLM refused, with why.

    keep: a JSON lines file for the recorded cases, gzipped if its name says so. Raises InputError for an interpreter
    without this vLLM.
    """
    interpreter = find_interpreter(python)
    refused = {}
    with _opened(keep) if keep else nullcontext() as file:
        for answer in _record(interpreter.python, num_cases, seed):
            if "refused" in answer:
                refused[answer["case"]] = answer["refused"]
            else:
                result.add(answer)
                if file is not None:
                    file.write(json.dumps(answer, separators=(",", ":")) + "\n")
            on_case()
    return refused


def _opened(path: Path) -> IO[str]:
    return gzip.open(path, "wt", encoding="utf-8") if path.suffix == ".gz" else path.open("w", encoding="utf-8")


def _record(python: Path, num_cases: int, seed: int) -> Iterator[dict[str, Any]]:
    """The answers of the recording script, one per case, as they come."""
    process = subprocess.Popen(
        [python, _SCRIPT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment(VLLM_LOGGING_LEVEL="ERROR"),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    told: list[str] = []
    complaints = process.stderr
    readers = [
        threading.Thread(target=_feed, args=(process.stdin, num_cases, seed), daemon=True),
        threading.Thread(target=lambda: told.extend(complaints), daemon=True),
    ]
    for reader in readers:
        reader.start()
    try:
        answers = (json.loads(line) for line in process.stdout if line.startswith("{"))
        if next(answers, None) is None:
            readers[1].join(timeout=5)
            why = told[-1].strip() if told else "it says nothing"
            raise InputError("this vLLM's scheduler cannot be driven", file=python, value=why)
        yield from answers
    finally:
        process.kill()
        process.wait()
        for reader in readers:
            reader.join()
        process.stdout.close()
        complaints.close()


def _feed(pipe: Any, num_cases: int, seed: int) -> None:
    with pipe:
        for case in random_cases(num_cases, seed):
            pipe.write(json.dumps(case) + "\n")
