"""Samples on disk: one Parquet table, one row per timed step, whose schema also says where the rows come from.

Not for what a sample means (samples.py). The one idea: every source writes this table and the fit reads nothing else;
the device stands in each row, so that tables which somebody glued together are noticed.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, fields, replace
from io import BytesIO
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from calibrate.samples import COLUMNS, Origin, Samples
from sim.errors import InputError
from sim.json_file import parse_json
from sim.output import write_bytes_atomic
from sim.parquet_file import read_parquet

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

_KEY = b"elpase samples"
_VERSION = 1

_COUNT, _REAL, _TEXT = pa.int64(), pa.float64(), pa.string()
_CHUNK = pa.struct([("tokens", pa.int32()), ("context", pa.int32())])
SCHEMA = pa.schema(
    {
        "device": _TEXT,
        "seconds": _REAL,
        "host_seconds": _REAL,
        "num_tokens": _REAL,
        "padded_tokens": _REAL,
        "num_seqs": _REAL,
        "chunk_tokens": _REAL,
        "num_chunks": _REAL,
        "num_sampled": _REAL,
        "decode_context": _REAL,
        "chunk_pairs": _REAL,
        "chunks": pa.list_(_CHUNK),
        "decodes": pa.list_(pa.int32()),
        "graph": _TEXT,
        "repeats": _COUNT,
        "spread": _REAL,
        "source": _TEXT,
        "regime": _TEXT,
        "state": _TEXT,
    }
)
"""Columns and their types. Nulls: host_seconds, decode_context, chunk_pairs, chunks, decodes, spread."""

_NULLABLE = ("host_seconds", "decode_context", "chunk_pairs", "chunks", "decodes", "spread")


def write_samples(path: str | os.PathLike[str], samples: Samples) -> None:
    """Write samples of one origin as Parquet, whole or not at all; an older file of that name is replaced."""
    if len(samples.origins) != 1:
        raise InputError(field="origins", value=len(samples.origins), expected="samples of one origin")
    origin = samples.origins[0]
    columns = {name: _arrow(name, getattr(samples, name)) for name in COLUMNS}
    columns["device"] = pa.array([origin.device] * len(samples), _TEXT)
    document = json.dumps({"version": _VERSION, "origin": asdict(origin)})
    table = pa.table({name: columns[name] for name in SCHEMA.names}, schema=SCHEMA)
    written = BytesIO()
    pq.write_table(table.replace_schema_metadata({_KEY: document}), written, compression="zstd")
    write_bytes_atomic(path, written.getvalue())


def read_samples(path: str | os.PathLike[str]) -> Samples:
    """The samples of a table. Raises InputError for missing columns, impossible values and mixed devices, OSError."""
    table = read_parquet(path)
    missing = [name for name in SCHEMA.names if name not in table.column_names]
    if missing:
        raise InputError(file=path, value=table.column_names, expected=f"also the columns {', '.join(missing)}")
    if not table.num_rows:
        raise InputError("no samples: the table has no rows", file=path)
    columns = {name: _numpy(table.column(name), name, path) for name in SCHEMA.names}
    origin = _origin(table.schema.metadata or {}, columns.pop("device"), path)
    try:
        return Samples.make(origins=(origin,), **columns)
    except InputError as error:
        raise InputError(file=path, field=error.field, value=error.value, expected=error.expected) from None


def read_all(paths: Iterable[str | os.PathLike[str]]) -> Samples:
    """The samples of several tables of one device and model. Raises InputError for a table that is named twice."""
    paths = list(paths)
    for index, path in enumerate(paths):
        if any(os.path.realpath(path) == os.path.realpath(other) for other in paths[:index]):
            raise InputError("named twice: its samples would count double", file=path)
    return Samples.concat([read_samples(path) for path in paths])


def _arrow(name: str, column: NDArray[Any]) -> pa.Array:
    if name == "chunks":
        rows = [None if v is None else [{"tokens": n, "context": c} for n, c in v] for v in column]
        return pa.array(rows, SCHEMA.field(name).type)
    if column.dtype == object:
        return pa.array(column.tolist(), SCHEMA.field(name).type)
    # from_pandas: NaN, which says "unknown" in memory, is null on disk.
    return pa.array(column.tolist(), SCHEMA.field(name).type, from_pandas=True)


def _numpy(column: pa.ChunkedArray, name: str, path: str | os.PathLike[str]) -> Any:
    try:
        column = column.cast(SCHEMA.field(name).type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise InputError(file=path, field=name, value=str(column.type), expected=f"{SCHEMA.field(name).type}") from None
    if column.null_count and name not in _NULLABLE:
        row = column.is_null().to_pylist().index(True) + 1
        raise InputError(file=path, field=f"{name} in row {row}", expected="a value: found none")
    if name == "chunks":
        return [None if v is None else tuple((c["tokens"], c["context"]) for c in v) for v in column.to_pylist()]
    if pa.types.is_floating(column.type):
        return column.to_numpy(zero_copy_only=False)  # null becomes NaN
    return column.to_pylist()


def _document(text: bytes, path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a table says of its origin, every part of the kind that `Origin` has it."""
    kinds = {f.name: type(getattr(Origin(""), f.name)) for f in fields(Origin)} | {"capture_sizes": list}
    try:
        parsed = parse_json(text.decode(), path)
    except UnicodeDecodeError:
        parsed = None
    said: dict[str, Any] = parsed if isinstance(parsed, dict) else {}
    origin = said.get("origin")
    if not isinstance(origin, dict) or not isinstance(said.get("version"), int):
        raise InputError("what it says of its origin is not what elpase wrote", file=path)
    for name, kind in kinds.items():
        if not isinstance(origin.get(name, kind()), kind):
            raise InputError("not what elpase wrote", file=path, field=f"origin.{name}", value=origin[name])
    return said


def _origin(metadata: Mapping[bytes, bytes], devices: list[str], path: str | os.PathLike[str]) -> Origin:
    seen = list(dict.fromkeys(devices))
    if len(seen) > 1:
        raise InputError(file=path, field="device", value=", ".join(seen), expected="rows of one device")
    if _KEY not in metadata:
        raise InputError("says nothing of its origin: not a samples table that elpase wrote", file=path)
    document = _document(metadata[_KEY], path)
    if document["version"] > _VERSION:
        raise InputError(file=path, field="version", value=document["version"], expected=f"at most {_VERSION}")
    known = {f.name for f in fields(Origin)}
    origin = Origin(**{name: value for name, value in document["origin"].items() if name in known})
    return replace(origin, device=seen[0], capture_sizes=tuple(origin.capture_sizes))
