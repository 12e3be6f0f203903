"""GuideLLM sweeps as CSV: one row per strategy, prompts and outputs uniform around a nominal length.

Not for the server, of which the files say nothing. The one idea: GuideLLM's client is known to the letter, so its
lengths and its send times are drawn again instead of guessed (GuideLLM 0.3: strategies and synthetic data set).
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from sim.errors import InputError
from sim.input_file import TABLE_BYTES, input_file
from workloads import Request

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping

    from sim.experiment import Result

SYNCHRONOUS, THROUGHPUT, CONSTANT = "synchronous", "throughput", "constant"

FIGURES = ("throughput", "ttft_mean", "ttft_p50", "itl_mean", "itl_p50", "e2e_mean")

_SEED = 42
"""GuideLLM's default: prompts are drawn with it, outputs with the next one."""
_IN_FLIGHT = 512
"""GuideLLM's default limit of requests in flight, which `throughput` uses up."""
_DURATION_S = 600.0
"""Of a point, where the file has no column for it."""
_CONSTANT_POINTS = 8
"""A sweep's constant rates lie evenly between what `synchronous` and `throughput` reached, the latter included."""

_LEAST_S, _LEAST_THROUGHPUT = 1e-4, 0.1
"""Seconds, and tokens per second: what was measured is more."""

_COLUMNS = ("isl", "osl", "model", "ttft_mean", "ttft_p50", "itl_mean", "itl_p50")


@dataclass(frozen=True, slots=True)
class Point:
    """One strategy of a sweep."""

    model: str
    isl: int
    osl: int
    strategy: str
    rate: float | None
    """Requests per second, of a constant one."""
    load: float | None
    """Its share of what `throughput` reached."""
    duration_s: float
    real: Mapping[str, float]

    @property
    def name(self) -> str:
        """Such as "1024/256 constant 2.96/s"."""
        rate = "" if self.rate is None else f" {self.rate:.2f}/s"
        return f"{self.isl}/{self.osl} {self.strategy}{rate}"

    @property
    def max_in_flight(self) -> int:
        """What the strategy lets be open at once."""
        return 1 if self.strategy == SYNCHRONOUS else _IN_FLIGHT

    def requests(self) -> Iterator[Request]:
        """Endless. A constant rate starts with a burst of one second's requests."""
        lengths = zip(_uniform(self.isl, _SEED), _uniform(self.osl, _SEED + 1), strict=True)
        burst = 0 if self.rate is None else math.floor(self.rate)
        for row, (prompt, output) in enumerate(lengths):
            arrival_s = 0.0 if self.rate is None or row < burst else (row - burst + 1) / self.rate
            yield Request(str(row), arrival_s, prompt, output)

    def mean_lengths(self, count: int) -> tuple[float, float]:
        """Mean prompt and output of the first `count` requests."""
        drawn = [request for _, request in zip(range(count), self.requests(), strict=False)]
        return sum(r.prompt_tokens for r in drawn) / count, sum(r.output_tokens for r in drawn) / count

    def measure(self, result: Result) -> dict[str, float]:
        """The figures of the requests that were answered within the point's time, as GuideLLM has them.

        ITL weighs every gap the same in the mean; its percentiles are over requests.
        """
        done = result.requests
        done = done[(done["status"] == "finished") & (done["finish_s"] <= self.duration_s)]
        if done.empty:
            raise InputError(f"{self.name}: no request was answered within {self.duration_s:g} s")
        ttft = done["first_token_s"] - done["send_s"]
        streaming, gaps = done["finish_s"] - done["first_token_s"], done["output_tokens"] - 1
        itl = (streaming / gaps)[gaps > 0]
        return {
            "throughput": float(done["output_tokens"].sum() / self.duration_s),
            "ttft_mean": float(ttft.mean()),
            "ttft_p50": float(ttft.median()),
            "itl_mean": float(streaming.sum() / gaps.sum()),
            "itl_p50": float(itl.median()),
            "e2e_mean": float((done["finish_s"] - done["send_s"]).mean()),
        }


def read_points(path: str | os.PathLike[str]) -> list[Point]:
    """The points of a sweep file, of either of two dialects.

    One has a row's strategy, rate, dur_s, out_tps and lat_mean_s; the other numbers a sweep's rows (idx: 0 is
    synchronous, 1 throughput, then the constant rates) and has thr_mean and e2e_mean. Times in milliseconds, but for
    the latencies lat_mean_s and e2e_mean. Raises InputError naming line and column.
    """
    try:
        table = pd.read_csv(input_file(path, TABLE_BYTES))
    except (pd.errors.ParserError, UnicodeDecodeError) as error:
        raise InputError(f"not a CSV file: {error}", file=path) from None
    numbered = "idx" in table
    own = ("idx", "req_per_s", "thr_mean", "e2e_mean") if numbered else ("strategy", "rate", "rps", "dur_s", "out_tps")
    for column in (*_COLUMNS, *own):
        if column not in table:
            raise InputError("missing column", file=path, line=1, field=column)
    _check(table, path)
    sweeps = table.groupby(["isl", "osl"], sort=False)
    return [point for _, sweep in sweeps for point in (_numbered(sweep) if numbered else _named(sweep))]


def _check(table: pd.DataFrame, path: str | os.PathLike[str]) -> None:
    for column in ("isl", "osl", "itl_mean"):
        values = pd.to_numeric(table[column], errors="coerce")
        bad = (~(values > 0)).to_numpy().nonzero()[0]
        if bad.size:
            row = int(bad[0])
            value = str(table[column].iloc[row])
            raise InputError(file=path, line=row + 2, field=column, value=value, expected="a number > 0")


def _named(sweep: pd.DataFrame) -> Iterator[Point]:
    reached = sweep.loc[sweep["strategy"] == THROUGHPUT, "rps"].max()
    for row in sweep.to_dict("records"):
        rate = float(row["rate"]) if row["strategy"] == CONSTANT else None
        figures = {"throughput": row["out_tps"], "e2e_mean": row.get("lat_mean_s", math.nan)}
        yield _made(row, str(row["strategy"]), rate, float(reached), float(row["dur_s"]), figures)


def _numbered(sweep: pd.DataFrame) -> Iterator[Point]:
    rates = dict(zip(sweep["idx"], sweep["req_per_s"], strict=True))
    low, reached = float(rates.get(0, math.nan)), float(rates.get(1, math.nan))
    for row in sweep.to_dict("records"):
        number = int(row["idx"])
        strategy = {0: SYNCHRONOUS, 1: THROUGHPUT}.get(number, CONSTANT)
        rate = low + (reached - low) * (number - 1) / _CONSTANT_POINTS if strategy == CONSTANT else None
        figures = {"throughput": row["thr_mean"], "e2e_mean": row["e2e_mean"]}
        yield _made(row, strategy, rate, reached, _DURATION_S, figures)


def _made(
    row: dict[Any, Any], strategy: str, rate: float | None, reached: float, duration_s: float, more: dict[str, Any]
) -> Point:
    times = {name: float(row[name]) / 1e3 for name in FIGURES if name in _COLUMNS}
    real = times | {name: float(value) for name, value in more.items()}
    return Point(
        model=str(row["model"]),
        isl=int(row["isl"]),
        osl=int(row["osl"]),
        strategy=strategy,
        rate=rate,
        load=None if rate is None else rate / reached,
        duration_s=duration_s,
        # A clock that jumped left nonsense in some rows: times of minus days, a token a week.
        real={n: real[n] for n in FIGURES if real[n] > (_LEAST_THROUGHPUT if n == "throughput" else _LEAST_S)},
    )


def _uniform(mean: int, seed: int) -> Iterator[int]:
    """GuideLLM's own draws: whole numbers from half to one and a half times the mean."""
    draw = random.Random(seed)
    while True:
        yield draw.randint(mean // 2, 3 * mean // 2)
