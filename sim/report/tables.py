"""A run's frames on disk: requests.parquet (with the token gaps as a list column) and steps.parquet, and back again.

Not for results in vLLM's form (`summary`). The one idea: both files carry the run's `meta` in their schema, so that
either alone still says what made it. No clock and no pandas metadata goes in: the same run gives the same bytes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sim.errors import InputError
from sim.json_file import parse_json
from sim.parquet_file import read_parquet
from sim.report.arrow import numbers, texts_by_code
from sim.report.frames import Frames, Itls
from sim.report.request_rows import STATUS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pandas as pd

    from sim.report.frames import Digest

REQUESTS_FILE = "requests.parquet"
STEPS_FILE = "steps.parquet"
_META_KEY = b"elpase"
_GAPS = (pa.large_list(pa.float64()), pa.list_(pa.float64()))
"""The second is what pandas makes of it."""
_ROW_GROUP = 1 << 12
"""Rows that are compressed at one time: what is in the works takes memory."""


def write_frames(frames: Frames, folder: Path) -> None:
    """Write both files into an existing folder. `requests.parquet` gets the column `itls_s`, a list per request."""
    requests = _columns(frames.requests)
    requests["itls_s"] = pa.LargeListArray.from_arrays(frames.itls.offsets, frames.itls.values_s)
    _write(requests, frames.meta, folder / REQUESTS_FILE)
    _write(_columns(frames.steps), frames.meta, folder / STEPS_FILE)


def write_requests(digest: Digest, folder: Path) -> None:
    """Write the first file only, without token gaps: of a run whose steps were not kept."""
    numeric = digest.rows.columns()
    status = texts_by_code(numeric.pop("status"), STATUS)
    names, errors = digest.rows.texts()
    columns = {"request_id": names, **{name: numbers(values) for name, values in numeric.items()}}
    columns |= {"status": status, "error": errors}
    _write(columns, digest.meta, folder / REQUESTS_FILE)


def read_frames(folder: Path) -> Frames:
    """The frames that `write_frames` wrote there.

    Raises InputError if a file is not such a table, or if the two are not of one run; OSError if one is missing.
    """
    requests = _read(folder / REQUESTS_FILE)
    steps = _read(folder / STEPS_FILE)
    if "itls_s" not in requests.column_names or requests.schema.field("itls_s").type not in _GAPS:
        raise InputError(file=folder / REQUESTS_FILE, field="itls_s", expected="a column of token gaps")
    if requests.schema.metadata[_META_KEY] != steps.schema.metadata[_META_KEY]:
        raise InputError(f"{folder}: {STEPS_FILE} and {REQUESTS_FILE} are of different runs")
    gaps = requests.column("itls_s").combine_chunks()
    if gaps.null_count:
        raise InputError(file=folder / REQUESTS_FILE, field="itls_s", expected="a list of token gaps in each row")
    offsets = np.concatenate(([0], np.cumsum(gaps.value_lengths().to_numpy()))).astype(np.int64)
    values_s = gaps.flatten().to_numpy().astype(np.float64)
    meta = _meta(requests, folder / REQUESTS_FILE)
    return Frames(_frame(requests.drop_columns(["itls_s"])), Itls(values_s, offsets), _frame(steps), meta)


def _meta(table: pa.Table, file: Path) -> dict[str, object]:
    """What it says of the run: an object; of what, is for others to see to."""
    try:
        said = parse_json(table.schema.metadata[_META_KEY].decode(), file)
    except UnicodeDecodeError:
        said = None
    if not isinstance(said, dict):
        raise InputError("what it says of its run is not what elpase wrote", file=file)
    return said


def _columns(table: pd.DataFrame) -> dict[str, pa.Array]:
    return {name: _column(table[name]) for name in table.columns}


def _column(values: pd.Series) -> pa.Array:
    """Text as plain strings, whatever pandas keeps it in; times keep their NaN rather than become null."""
    if isinstance(values.dtype, np.dtype) and values.dtype != object:
        return pa.array(values.to_numpy(), from_pandas=False)
    text = pa.array(values.array)
    return (text.dictionary_decode() if pa.types.is_dictionary(text.type) else text).cast(pa.string())


def _write(columns: Mapping[str, pa.Array], meta: Mapping[str, object], path: Path) -> None:
    table = pa.table(dict(columns)).replace_schema_metadata({_META_KEY: json.dumps(dict(meta))})
    with path.open("wb") as file:  # Arrow itself takes no name that is not UTF-8
        pq.write_table(table, file, compression="zstd", row_group_size=_ROW_GROUP)


def _read(path: Path) -> pa.Table:
    table = read_parquet(path)
    if _META_KEY not in (table.schema.metadata or {}):
        raise InputError(file=path, expected="a table written by elpase")
    return table


def _frame(table: pa.Table) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame({name: _pandas(table.column(name)) for name in table.column_names})


def _pandas(column: pa.ChunkedArray) -> object:
    import pandas as pd

    if pa.types.is_string(column.type):
        return pd.array(column.to_pylist(), dtype="str")
    return column.to_numpy()
