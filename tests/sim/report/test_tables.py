"""What is written is what is read, in the same bytes each time, and other files are refused in one line."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sim.errors import InputError
from sim.report.frames import Frames
from sim.report.summary import summarize
from sim.report.tables import read_frames, write_frames


@pytest.mark.parametrize(
    "run", [{"requests": 40, "stop_s": 4.0, "max_model_len": 2000}, {"requests": 1}, {"requests": 0}]
)
def test_frames_come_back_as_they_went(toy_run, tmp_path, run):
    frames = toy_run(**run)
    write_frames(frames, tmp_path)
    again = read_frames(tmp_path)
    assert again.meta == frames.meta
    assert np.array_equal(again.itls.values_s, frames.itls.values_s)
    assert np.array_equal(again.itls.offsets, frames.itls.offsets)
    pd.testing.assert_frame_equal(again.steps, frames.steps)
    pd.testing.assert_frame_equal(again.requests, frames.requests)
    assert summarize(again) == summarize(frames)


def test_text_kept_as_categories_is_written_as_text(toy_run, tmp_path):
    frames = toy_run(requests=5)
    status = pd.Categorical(frames.requests["status"], categories=["finished", "rejected", "unfinished"])
    write_frames(Frames(frames.requests.assign(status=status), frames.itls, frames.steps, frames.meta), tmp_path)
    assert pq.read_table(tmp_path / "requests.parquet").column("status").to_pylist() == ["finished"] * 5


def test_any_parquet_reader_finds_the_gaps_as_lists(toy_run, tmp_path):
    frames = toy_run(requests=5)
    write_frames(frames, tmp_path)
    column = pd.read_parquet(tmp_path / "requests.parquet")["itls_s"]
    assert [list(row) for row in column] == [frames.itls.row(i).tolist() for i in range(5)]


def test_a_table_to_which_pandas_added_a_column_is_still_one(toy_run, tmp_path):
    frames = toy_run(requests=5)
    write_frames(frames, tmp_path)
    for file in ("requests.parquet", "steps.parquet"):
        written = pq.read_table(tmp_path / file)
        longer = pa.Table.from_pandas(written.to_pandas().assign(mine=1))
        pq.write_table(longer.replace_schema_metadata(written.schema.metadata), tmp_path / file)
    assert summarize(read_frames(tmp_path)) == summarize(frames)


def test_the_same_run_gives_the_same_bytes(toy_run, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write_frames(toy_run(requests=30), tmp_path / name)
    for file in ("requests.parquet", "steps.parquet"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_files_of_others_are_refused_by_name(toy_run, tmp_path):
    write_frames(toy_run(requests=3), tmp_path)
    pq.write_table(pa.table({"x": [1]}), tmp_path / "steps.parquet")
    with pytest.raises(InputError, match=r"steps\.parquet: expected a table written by elpase"):
        read_frames(tmp_path)
    (tmp_path / "requests.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(InputError, match=r"requests\.parquet: not a Parquet table"):
        read_frames(tmp_path)
