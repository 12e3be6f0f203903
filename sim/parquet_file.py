"""Parquet tables that somebody hands over, as a whole. Not for what is in them.

The one idea: whatever Arrow makes of a spoilt one is told with the file's name, which Arrow does not tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from sim.errors import InputError
from sim.input_file import input_file

if TYPE_CHECKING:
    import os


def read_parquet(file: str | os.PathLike[str]) -> pa.Table:
    """The table in a file. Raises InputError where it is none; OSError where it cannot be opened."""
    with input_file(file).open("rb") as opened:  # Arrow itself takes no name that is not UTF-8
        try:
            table = pq.read_table(opened)
            table.validate(full=True)  # that texts are UTF-8
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise InputError(f"not a Parquet table ({error})", file=file) from None
    return table
