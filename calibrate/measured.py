"""Measured runs, whatever file they come in: found out by what is in it, read into what a replay needs.

Not for simulating (validate.py). The one idea: every source comes down to three things: the workload that its client
sent, the server's flags, and the figures that were measured; only the last are compared.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from calibrate import bench_result, guidellm, served_folder, step_cycles
from calibrate.requests_csv import COLUMNS, figures, read_measured, table_of
from sim.input_file import RESULT_BYTES, TABLE_BYTES, input_file
from sim.json_file import read_json_object
from workloads import Request

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping

    from sim.experiment import Result


@dataclass(frozen=True, slots=True)
class Replay:
    """A run whose client can be replayed."""

    name: str
    model: str
    """As the source calls it; "" where it does not say."""
    requests: Callable[[], Iterable[Request]]
    """In order of arrival; may be endless where `until_s` ends it."""
    real: Mapping[str, float]
    """Figure -> value; throughput in tokens per second, times in seconds."""
    measure: Callable[[Result], Mapping[str, float]]
    """The same figures of a simulated run."""
    max_in_flight: int | None = None
    until_s: float | None = None
    """When the client stopped looking; None: with the last answer."""
    num_requests: int | None = None
    """How many there are, where that is known."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """The server's flags, where the source has them."""
    load: float | None = None
    """A constant rate's share of the throughput that the same sweep reached."""
    timeseries: pd.DataFrame | None = None
    """Columns t (seconds), running, waiting, where the source has them."""


Run = Replay | step_cycles.StepCycles


def read_runs(path: str | os.PathLike[str]) -> list[Run]:
    """The runs in a file or folder.

    Understood: a CSV of requests (requests_csv.py), a GuideLLM sweep (guidellm.py), step cycles (step_cycles.py), a
    folder with requests.jsonl and meta.json (served_folder.py), a result of `vllm bench serve --save-detailed`
    (bench_result.py). Raises InputError naming file, line and column; OSError.
    """
    path = Path(path)
    if path.is_dir():
        return [_served(path)]
    if path.suffix == ".json":
        return [_bench(path)]
    columns = _columns(path)
    if {"isl", "osl"} <= columns:
        return [_point(point) for point in guidellm.read_points(path)]
    if "cycle_us" in columns:
        return list(step_cycles.read_cycles(path))
    return [_requests(path)]


def _columns(path: Path) -> set[str]:
    try:
        return set(pd.read_csv(input_file(path, TABLE_BYTES), nrows=0).columns)
    except (pd.errors.EmptyDataError, pd.errors.ParserError, UnicodeDecodeError, OSError, EOFError):
        return set()  # the reader of requests says what is wrong with it


def _requests(path: Path) -> Replay:
    run = read_measured(path)
    return Replay(
        name=path.name,
        model="",
        requests=lambda: requests_of(run),
        real=figures(run),
        measure=lambda result: figures(table_of(result, file=path, lines=run["line"])),
        num_requests=len(run),
    )


def requests_of(run: pd.DataFrame) -> list[Request]:
    """The workload of a frame with columns arrival_s, prompt_tokens and output_tokens."""
    columns = zip(run["arrival_s"], run["prompt_tokens"], run["output_tokens"], strict=True)
    return [Request(str(row), float(a), int(p), int(o)) for row, (a, p, o) in enumerate(columns)]


def _served(folder: Path) -> Replay:
    served = served_folder.read(folder)
    return Replay(
        name=folder.name,
        model=served.model,
        requests=lambda: requests_of(served.requests),
        real=served_folder.figures(served.requests),
        measure=lambda result: served_folder.figures(served_folder.table_of(result)),
        num_requests=len(served.requests),
        settings=served.settings,
        timeseries=served.timeseries,
    )


def _bench(path: Path) -> Replay:
    result = bench_result.parse(read_json_object(path, "a result of vllm bench serve", RESULT_BYTES), path)
    return Replay(
        name=path.name,
        model=result.model,
        requests=lambda: requests_of(result.requests),
        real=figures(result.requests),
        measure=lambda done: figures(table_of(done, file=path)),
        max_in_flight=result.max_in_flight,
        num_requests=len(result.requests),
    )


def _point(point: guidellm.Point) -> Replay:
    return Replay(
        name=point.name,
        model=point.model,
        requests=point.requests,
        real=point.real,
        measure=point.measure,
        max_in_flight=point.max_in_flight,
        until_s=point.duration_s,
        load=point.load,
    )


__all__ = ["COLUMNS", "Replay", "Run", "figures", "read_measured", "read_runs", "requests_of"]
