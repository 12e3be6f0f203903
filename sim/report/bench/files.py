"""Finds the benchmark results in a file or folder, whatever wrote them.

Not for what they say (one file per tool beside this one). The one idea: a result's name is its path below the folder
that was given, without what every result's path has, so that two folders can be matched by names.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sim.errors import InputError
from sim.input_file import RESULT_BYTES
from sim.json_file import read_json
from sim.report.bench import aiperf, guidellm, vllm

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sim.report.bench.run import BenchRun

_EXPECTED = "a result of vllm bench serve, elpase replay, GuideLLM (0.5 to 0.8) or AIPerf (0.13)"
_WHOLE_FOLDER = ("result.json", aiperf.SUMMARY_FILE, "benchmarks.json")
"""A folder with one of these is one result, under the folder's name; its other files belong to it."""
_OF_SWEEP = "bench_sweep"
"""Where `elpase sweep` keeps its results as `vllm bench sweep serve` would, so that the two match by names."""
_NO_RESULTS = ("summary.json", "warmup.json")
"""What `vllm bench sweep serve` writes beside its results: the same again, and a run that does not count."""


def read_results(path: Path) -> dict[str, BenchRun]:
    """Name -> run. Of one file: its one result, or GuideLLM's several. Raises InputError and OSError."""
    if not path.is_dir():
        return {run.name: run for run in _read(path, path.stem)}
    found = {run.name: run for file, name in _results(path) for run in _read(file, name)}
    if not found:
        raise InputError("no result in this folder", file=path, expected=f"*.json, each {_EXPECTED}")
    return found


def _results(folder: Path) -> Iterator[tuple[Path, str]]:
    """Result files with their names, in order of names."""
    for whole in _WHOLE_FOLDER:
        if (folder / whole).is_file():
            yield folder / whole, folder.name
            return
    sweep = folder / _OF_SWEEP
    yield from _below(sweep if sweep.is_dir() else folder, "")


def _below(folder: Path, prefix: str) -> Iterator[tuple[Path, str]]:
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            whole = next((entry / name for name in _WHOLE_FOLDER if (entry / name).is_file()), None)
            if whole is None:
                yield from _below(entry, f"{prefix}{entry.name}/")
            else:
                yield whole, f"{prefix}{entry.name}"
        elif entry.suffix == ".json" and entry.name not in _NO_RESULTS and not entry.name.endswith(".failure.json"):
            yield entry, f"{prefix}{entry.stem}"


def _read(file: Path, name: str) -> list[BenchRun]:
    document = _document(file)
    if isinstance(document, dict):
        if aiperf.is_aiperf(document):
            return [aiperf.read_run(document, file, name)]
        if guidellm.is_guidellm(document):
            return _named(list(guidellm.read_runs(document, file)), name, top=file.stem == name)
        if vllm.is_bench_result(document):
            return [vllm.read_run(document, file, name)]
    elif isinstance(document, list) and document and isinstance(document[0], dict) and "run_number" in document[0]:
        raise InputError("a sweep's summary of several results: name one of its run=*.json, or its folder", file=file)
    raise InputError("not a result", file=file, expected=_EXPECTED)


def _named(runs: list[BenchRun], name: str, *, top: bool) -> list[BenchRun]:
    """A report's only benchmark is called as its file, several by their strategies, twins by their number."""
    if len(runs) == 1:
        return [replace(runs[0], name=name)]
    seen: Counter[str] = Counter()
    told = []
    for run in runs:
        seen[run.name] += 1
        own = run.name if seen[run.name] == 1 else f"{run.name}#{seen[run.name]}"
        told.append(replace(run, name=own if top else f"{name}/{own}"))
    return told


def _document(file: Path) -> Any:
    try:
        return read_json(file, most_bytes=RESULT_BYTES)
    except InputError as error:
        why = error.__cause__
        if isinstance(why, json.JSONDecodeError) and why.msg == "Extra data" and _begins_with_a_result(why):
            raise InputError("several results in one file (--append-result?): keep one", file=file) from None
        raise


def _begins_with_a_result(error: json.JSONDecodeError) -> bool:
    """Whether what stands before the rest is one; not a row of a CSV, or a log's line."""
    first = json.loads(error.doc[: error.pos])
    return isinstance(first, dict) and vllm.is_bench_result(first)
