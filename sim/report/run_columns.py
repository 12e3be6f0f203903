"""The columns of a finished run's tables, checked before a report builds on them.

Not for what the tables say of the run's making (run_meta.py). The one idea: of every column it is known whether it is
whole numbers, seconds, truths or texts, so tables that have been through other hands are told apart at the door.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sim.errors import InputError
from sim.report.request_rows import REQUEST_COLUMNS, STATUS
from sim.report.step_rows import LIMITS, MODES, STEP_COLUMNS, STEP_DTYPE
from sim.report.tables import REQUESTS_FILE, STEPS_FILE

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    import pandas as pd

    from sim.report.frames import Frames

_TEXTS: Mapping[str, Collection[str]] = {"status": STATUS, "limit": LIMITS, "runtime_mode": MODES}
"""What their rows may say; `request_id` and `error` are free."""
_LEAST = {"priority": -(1 << 53), "chunk_row": -1}
MOST_EXACT = 1 << 53
"""Beyond it a number is no longer exact."""


def require_columns(frames: Frames, folder: Path) -> None:
    """Raise InputError, with file and column, for the first one that is not as a run of this version has it."""
    for name in REQUEST_COLUMNS:
        column, file = frames.requests[name], folder / REQUESTS_FILE
        if name in ("request_id", "error", *_TEXTS):
            _require_texts(column, file)
        elif name.endswith("_s"):
            _require_seconds(column, file, all_there=name == "arrival_s")
        else:
            _require_counts(column, file)
    for name in STEP_COLUMNS:
        column, file = frames.steps[name], folder / STEPS_FILE
        kind = STEP_DTYPE[name].kind
        if kind == "u":
            _require_texts(column, file)
        elif kind == "f":
            _require_seconds(column, file, all_there=True)
        elif kind == "i":
            _require_counts(column, file)
        elif column.dtype != np.bool_:
            raise _wrong(column, file, "true or false")
    _require_gaps(frames, folder / REQUESTS_FILE)
    if frames.steps["chunk_row"].max() >= len(frames.requests):
        raise _wrong(frames.steps["chunk_row"], folder / STEPS_FILE, f"rows of {REQUESTS_FILE}")


def _require_texts(column: pd.Series, file: Path) -> None:
    from pandas.api.types import is_string_dtype  # before pandas 3 texts are objects

    if not is_string_dtype(column) or column.isna().any():
        raise _wrong(column, file, "texts")
    known = _TEXTS.get(str(column.name))
    unknown = () if known is None else tuple(column[~column.isin(known)].unique())
    if known and unknown:
        raise InputError(file=file, field=str(column.name), value=unknown[0], expected=f"one of {', '.join(known)}")


def _require_seconds(column: pd.Series, file: Path, *, all_there: bool) -> None:
    """NaN is what has not happened; query-key pairs are kept like seconds."""
    values = column.to_numpy()
    if column.dtype != np.float64 or np.isinf(values).any() or (all_there and np.isnan(values).any()):
        raise _wrong(column, file, "finite numbers")


def _require_counts(column: pd.Series, file: Path) -> None:
    least = _LEAST.get(str(column.name), 0)
    if column.dtype != np.int64 or (len(column) and not least <= column.min() <= column.max() <= MOST_EXACT):
        raise _wrong(column, file, f"whole numbers >= {least}")


def _require_gaps(frames: Frames, file: Path) -> None:
    values_s = frames.itls.values_s
    if not (np.isfinite(values_s) & (values_s >= 0)).all():
        raise InputError(file=file, field="itls_s", expected="finite gaps >= 0")
    streamed = np.diff(frames.itls.offsets) > 0
    if frames.requests["first_token_s"].isna().to_numpy()[streamed].any():
        raise _wrong(frames.requests["first_token_s"], file, "times wherever itls_s has gaps")


def _wrong(column: pd.Series, file: Path, expected: str) -> InputError:
    return InputError(file=file, field=str(column.name), expected=f"a column of {expected}")
