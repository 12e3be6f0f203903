"""A Parquet table that was spoilt is told with its file's name, wherever it was."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sim.errors import InputError
from sim.parquet_file import read_parquet


@pytest.fixture
def table(tmp_path: Path) -> Path:
    pq.write_table(pa.table({"a name": [1, 2, 3]}), tmp_path / "a.parquet")
    return tmp_path / "a.parquet"


def refused(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_parquet(file)
    assert str(caught.value).startswith(f"{file}: not a Parquet table (")


def test_wherever_it_was_spoilt(table: Path) -> None:
    whole = table.read_bytes()
    refused(table, b"")
    refused(table, whole[:-1])
    footer = whole.index(b"parquet-cpp") - 1
    refused(table, whole[:footer] + b"\xff" * 8 + whole[footer + 8 :])  # not ArrowInvalid but OSError
    refused(table, whole.replace(b"a name", b"a nam\xff"))


def test_texts_that_are_none(table: Path) -> None:
    pq.write_table(pa.table({"text": pa.array([b"\xff"], pa.binary()).view(pa.string())}), table)
    refused(table, table.read_bytes())


def test_one_that_was_not(table: Path) -> None:
    assert read_parquet(table).to_pydict() == {"a name": [1, 2, 3]}
