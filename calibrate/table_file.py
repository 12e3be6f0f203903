"""A table of measured kernels in a Parquet file: its columns, and the rows of one kind.

Not for what the rows mean (op_tables.py, expert_tables.py). The one idea: whatever was not timed is told with the file,
the column and the value that it lacks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.errors import InputError
from sim.parquet_file import read_parquet

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pandas as pd


def read_table(file: Path, *columns: str) -> pd.DataFrame:
    """A file that has these columns. Raises InputError, and OSError where it cannot be read."""
    table: pd.DataFrame = read_parquet(file).to_pandas()
    for column in columns:
        if column not in table:
            raise InputError("missing column", file=file, field=column)
    return table


def timed(table: pd.DataFrame, file: Path, wanted: Mapping[str, object]) -> pd.DataFrame:
    """The rows with these values. Raises InputError for the first one that no row has."""
    for column, value in wanted.items():
        table = table[table[column] == value]
        if table.empty:
            raise InputError(file=file, field=column, value=value, expected="kernels timed for it")
    return table
