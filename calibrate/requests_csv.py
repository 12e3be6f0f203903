"""A measured run as a CSV of requests, and the figures that any run of requests is compared by.

Not for replaying (validate.py). The one idea: both sides are summed up by the same formulas.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd

from sim.errors import InputError
from sim.input_file import TABLE_BYTES, input_file
from sim.plurals import counted
from workloads.readers.row import IDLE_START_S

if TYPE_CHECKING:
    import os

    from sim.experiment import Result

COLUMNS = ("arrival_s", "send_s", "prompt_tokens", "output_tokens", "ttft_s", "e2e_s")
"""What a measured file holds, seconds and tokens; ttft_s and e2e_s are counted from send_s."""

_COUNTS = ("prompt_tokens", "output_tokens")
_LATEST_S = 1e10
"""Dates since 1970 are well below it; times of a smaller unit are not."""

FIGURES = ("throughput", "ttft_mean", "ttft_p50", "ttft_p99", "tpot_mean", "tpot_p99", "e2e_mean")


def table_of(
    result: Result,
    since: str = "send_s",
    *,
    file: str | os.PathLike[str] | None = None,
    lines: pd.Series[int] | None = None,
) -> pd.DataFrame:
    """A simulated run as such a table. Times are counted from the column `since` of its requests.

    Raises InputError when requests did not finish: their figures would flatter the rest. It names the measured run's
    `file`, and the line of each of its requests, in order of arrival, where `lines` has them.
    """
    done = result.requests
    lost = done[done["status"] != "finished"]
    if len(lost):
        first = lost.iloc[0]
        raise InputError(
            f"{len(lost)} of {counted(len(done), 'request')} did not finish,"
            f" first {first['request_id']}: {first['error']}",
            file=file,
            line=None if lines is None else lines.tolist()[done.index.tolist().index(lost.index[0])],
        )
    return pd.DataFrame(
        {
            "send_s": done[since],
            "output_tokens": done["output_tokens"],
            "ttft_s": done["first_token_s"] - done[since],
            "e2e_s": done["finish_s"] - done[since],
        }
    )


def figures(run: pd.DataFrame) -> dict[str, float]:
    """The compared figures of a run: columns send_s, output_tokens, ttft_s, e2e_s.

    Throughput is all output tokens over the time from the first send to the last answer. TPOT is
    (e2e - ttft) / (output - 1), over the requests with more than one token, as in `vllm bench serve`.
    """
    ttft, e2e = run["ttft_s"], run["e2e_s"]
    streamed = run["output_tokens"] > 1
    tpot = (e2e - ttft)[streamed] / (run["output_tokens"] - 1)[streamed]
    span_s = (run["send_s"] + e2e).max() - run["send_s"].min()
    values = (
        run["output_tokens"].sum() / span_s,
        ttft.mean(),
        ttft.quantile(0.5),
        ttft.quantile(0.99),
        tpot.mean(),
        tpot.quantile(0.99),
        e2e.mean(),
    )
    return {name: float(value) for name, value in zip(FIGURES, values, strict=True)}


def read_measured(path: str | os.PathLike[str]) -> pd.DataFrame:
    """A measured run's rows, in order of arrival, each with its `line`. Arrivals count from the first one where that is
    a minute away or more (dates since 1970, a piece of a longer run).

    Raises InputError naming file, line and column; OSError.
    """
    packed: Literal["gzip"] | None = "gzip" if str(path).endswith(".gz") else None
    try:
        table = pd.read_csv(input_file(path, TABLE_BYTES), dtype=str, keep_default_na=False, compression=packed)
    except pd.errors.EmptyDataError as error:
        raise InputError("empty", file=path, expected=f"columns {', '.join(COLUMNS)}") from error
    except (pd.errors.ParserError, UnicodeDecodeError, EOFError, zlib.error) as error:
        raise InputError(f"not a CSV file: {error}", file=path) from error
    missing = [name for name in COLUMNS if name not in table]
    if missing:
        raise InputError(f"missing column {missing[0]}", file=path, line=1, expected=f"columns {', '.join(COLUMNS)}")
    if table.empty:
        raise InputError("no rows", file=path)
    run = pd.DataFrame({name: _column(table[name], path) for name in COLUMNS})
    for name in ("ttft_s", "e2e_s"):
        _require(run[name] > 0, table[name], path, "seconds > 0")
    _require(run["e2e_s"] >= run["ttft_s"], table["e2e_s"], path, "at least ttft_s")
    _require(run["send_s"] >= run["arrival_s"], table["send_s"], path, "at least arrival_s")
    run["line"] = np.arange(len(run)) + 2
    zero_s = run["arrival_s"].min()
    if zero_s >= IDLE_START_S:
        run[["arrival_s", "send_s"]] -= zero_s
    return run.sort_values("arrival_s", kind="stable", ignore_index=True)


def _column(text: pd.Series[str], path: str | os.PathLike[str]) -> pd.Series[float]:
    values = pd.to_numeric(text, errors="coerce")
    whole = text.name in _COUNTS
    ok = np.isfinite(values) & (values >= 1 if whole else (values >= 0) & (values <= _LATEST_S))
    ok &= values == values.round() if whole else True
    _require(ok, text, path, "an integer >= 1" if whole else f"seconds >= 0, at most {_LATEST_S:.0f}")
    return values


def _require(ok: pd.Series[bool], values: pd.Series[str], path: str | os.PathLike[str], expected: str) -> None:
    if not ok.all():
        row = int(np.flatnonzero(~ok.to_numpy())[0])
        raise InputError(file=path, line=row + 2, field=str(values.name), value=values.iloc[row], expected=expected)
