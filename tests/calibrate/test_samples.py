"""The samples table: what goes in comes out, and every bad table is one line."""

from __future__ import annotations

import os
from dataclasses import replace
from math import isnan, nan
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibrate.samples import Origin, Samples, TimedStep
from calibrate.samples_file import SCHEMA, read_all, read_samples, write_samples
from sim.core.step import StepPlan
from sim.errors import InputError
from sim.latency import StepShape

ORIGIN = Origin(device="NVIDIA H200", model="llama-3.1-8b", versions={"torch": "2.13.0"}, capture_sizes=(1, 2, 4))
MIXED = TimedStep.of(
    [(512, 0), (256, 1024)], [700, 30], 0.02, host_seconds=0.003, repeats=5, spread=0.01, graph="none", source="torch"
)
LOGGED = TimedStep.of_totals(2, 900, 7, 0.05, source="iteration log")


def written(tmp_path: Path, *steps: TimedStep, origin: Origin = ORIGIN) -> Path:
    path = tmp_path / "samples.parquet"
    write_samples(path, Samples.of_steps(steps, origin))
    return path


def test_what_goes_in_comes_out(tmp_path: Path) -> None:
    again = read_samples(written(tmp_path, MIXED, LOGGED))
    assert again.origins == (ORIGIN,)
    mixed, logged = again.steps()
    assert mixed == MIXED
    assert replace(logged, decode_context=0, chunk_pairs=0, host_seconds=0, spread=0) == replace(
        LOGGED, decode_context=0, chunk_pairs=0, host_seconds=0, spread=0
    )
    assert isnan(logged.decode_context)
    assert isnan(logged.chunk_pairs)
    assert isnan(logged.host_seconds)
    assert (logged.chunks, logged.decodes) == (None, None)
    assert list(tmp_path.iterdir()) == [tmp_path / "samples.parquet"]


def test_totals_are_those_that_the_simulator_prices() -> None:
    """The same step as a plan of the scheduler and as a sample."""
    plan = StepPlan()
    plan.num_scheduled_tokens = [512, 256, 1, 1]
    plan.num_computed_tokens = [0, 1024, 700, 30]
    plan.chunks = [0, 1]
    plan.total_num_scheduled_tokens = 770
    shape = StepShape.from_plan(plan)
    sample = Samples.of_steps([MIXED])
    for name in ("num_tokens", "num_seqs", "decode_context", "chunk_tokens", "chunk_pairs", "num_sampled"):
        assert getattr(sample, name)[0] == getattr(shape, name), name
    assert sample.mixed_context[0] == shape.mixed_context


def test_every_column_is_needed(tmp_path: Path) -> None:
    path = written(tmp_path, MIXED)
    table = pq.read_table(path)
    for name in SCHEMA.names:
        pq.write_table(table.drop_columns([name]), path)
        with pytest.raises(InputError, match=rf"samples.parquet: got .*expected also the columns {name}$"):
            read_samples(path)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"seconds": 0.0}, "seconds in row 2: got 0.0, expected a positive time"),
        ({"seconds": -1.0}, "seconds in row 2: got -1.0, expected a positive time"),
        ({"seconds": nan}, "seconds in row 2: "),
        ({"host_seconds": -1e-3}, "host_seconds in row 2: got -0.001, expected a time >= 0, or none"),
        ({"num_tokens": 0}, "num_tokens in row 2: got 0.0, expected 1 or more"),
        ({"padded_tokens": 3}, "padded_tokens in row 2: got 3.0, expected at least num_tokens"),
        ({"num_seqs": 5000}, "num_seqs in row 2: got 5000.0, expected from 1 to num_tokens"),
        ({"decode_context": -5.0}, "decode_context in row 2: got -5.0, expected a number >= 0, or none"),
        ({"graph": "some"}, "graph in row 2: got 'some', expected one of 'full', 'piecewise', 'none', ''"),
        ({"state": "hot"}, "state in row 2: got 'hot', expected one of 'sustained', 'lone', 'kernels'"),
    ],
)
def test_impossible_rows(tmp_path: Path, changed: dict[str, object], told: str) -> None:
    path = written(tmp_path, MIXED, MIXED)
    table = pq.read_table(path)
    for name, value in changed.items():
        column = [table.column(name)[0].as_py(), value]
        table = table.set_column(table.schema.get_field_index(name), SCHEMA.field(name), pa.array(column))
    pq.write_table(table, path)
    with pytest.raises(InputError) as caught:
        read_samples(path)
    assert str(caught.value).startswith(f"{path}: {told}")


def test_mixed_devices(tmp_path: Path) -> None:
    """In one table, glued by somebody; and in two tables of one fit."""
    path = written(tmp_path, MIXED, LOGGED)
    table = pq.read_table(path)
    glued = table.set_column(0, SCHEMA.field("device"), pa.array(["NVIDIA H200", "NVIDIA H100"]))
    pq.write_table(glued, path)
    with pytest.raises(InputError, match=r"device: got 'NVIDIA H200, NVIDIA H100', expected rows of one device"):
        read_samples(path)
    (tmp_path / "other").mkdir()
    files = [written(tmp_path, MIXED), written(tmp_path / "other", MIXED, origin=replace(ORIGIN, device="AMD EPYC"))]
    with pytest.raises(InputError, match=r"device: got 'NVIDIA H200 and AMD EPYC', expected samples of one"):
        read_all(files)


def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path) -> None:
    """As must /dev/null, or `--out /dev/null` run as root makes a file of it."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with os.fdopen(os.open(pipe, os.O_RDWR | os.O_NONBLOCK), "rb", buffering=0) as reader:
        write_samples(pipe, Samples.of_steps([MIXED], ORIGIN))
        assert reader.read(4) == b"PAR1"
    assert pipe.is_fifo()


def test_a_table_named_twice_would_count_double(tmp_path: Path) -> None:
    path = written(tmp_path, MIXED)
    with pytest.raises(InputError, match="named twice"):
        read_all([path, tmp_path / "." / path.name])


def test_files_that_are_no_samples(tmp_path: Path) -> None:
    path = tmp_path / "samples.parquet"
    path.write_text("hello")
    with pytest.raises(InputError, match="not a Parquet table"):
        read_samples(path)
    write_samples(path, Samples.of_steps([MIXED], ORIGIN))
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata(None), path)
    with pytest.raises(InputError, match="says nothing of its origin"):
        read_samples(path)
    pq.write_table(table.slice(0, 0), path)
    with pytest.raises(InputError, match="no samples"):
        read_samples(path)
    words = table.set_column(1, "seconds", pa.array(["fast"]))
    pq.write_table(words, path)
    with pytest.raises(InputError, match="seconds: got 'string', expected double"):
        read_samples(path)
    with pytest.raises(FileNotFoundError):
        read_samples(tmp_path / "none.parquet")


def test_other_tools_read_it(tmp_path: Path) -> None:
    frame = pd.read_parquet(written(tmp_path, MIXED))
    assert frame["seconds"].tolist() == [0.02]
    assert [chunk["tokens"] for chunk in frame["chunks"][0]] == [512, 256]


def test_a_mask_picks_rows() -> None:
    samples = Samples.of_steps([MIXED, LOGGED], ORIGIN)
    assert samples.where(np.array([False, True])).source.tolist() == ["iteration log"]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (b"", "not JSON"),
        (b"\xff", "what it says of its origin is not what elpase wrote"),
        (b"[]", "what it says of its origin is not what elpase wrote"),
        (b'{"version": "x", "origin": {}}', "what it says of its origin is not what elpase wrote"),
        (b'{"version": 1, "origin": 3}', "what it says of its origin is not what elpase wrote"),
        (b'{"version": 1, "origin": {"device": "NVIDIA H200", "server": 3}}', "origin.server: not what elpase wrote"),
        (
            b'{"version": 1, "origin": {"device": "a", "capture_sizes": 3}}',
            "origin.capture_sizes: not what elpase wrote",
        ),
    ],
)
def test_what_a_table_says_of_its_origin_is_spoilt(said: bytes, told: str, tmp_path: Path) -> None:
    path = written(tmp_path, MIXED)
    pq.write_table(pq.read_table(path).replace_schema_metadata({b"elpase samples": said}), path)
    with pytest.raises(InputError) as caught:
        read_samples(path)
    assert str(caught.value).startswith(f"{path}:")
    assert told in str(caught.value)
