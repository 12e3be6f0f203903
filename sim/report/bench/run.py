"""One benchmark of a server, whoever ran it, and the figures that are compared.

Not for reading files (its neighbours) nor for judging (`laws`, `compare`). The one idea: where a file lists its
requests, every figure is made anew from them by `vllm bench serve`'s formulas; what a file only states stays stated.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pandas as pd
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

METRICS = ("ttft", "tpot", "itl", "e2el")
THROUGHPUTS = ("request_throughput", "output_throughput", "total_token_throughput")
PERCENTILES = (50.0, 90.0, 95.0, 99.0)
"""That are told of every latency, beside its mean."""


@dataclass(frozen=True, slots=True)
class BenchRun:
    """What a result file says. Counts are of the successful requests, unless their names say otherwise."""

    name: str
    """Of the run among others of its folder or file."""
    file: Path
    source: str
    """The tool that wrote it, with its version where the file has it."""
    model: str
    """As the source calls it; "" where it does not say."""
    completed: int
    failed: int
    duration_s: float
    input_tokens: int
    output_tokens: int
    stated: Mapping[str, float]
    """Figures as they stand in the file, under vLLM's keys: rates per second, times in ms."""
    request_rate: float | None = None
    """That was asked for, inf for all at once; None where the file does not say."""
    max_concurrency: int | None = None
    in_flight: float | None = None
    """Mean number of requests in flight, where the file states one."""
    peak_in_flight: float | None = None
    requests: pd.DataFrame | None = None
    """A row per successful request: start_s, ttft_s, latency_s (seconds; NaN where it is not known), input_tokens,
    output_tokens; tpot_s where the tool measures it, since an answer ends some time after its last token. In order of
    start; None where the file lists none."""
    gaps_s: Floats | None = None
    """The gaps between streamed chunks of all successful requests, in seconds."""
    sampled: bool = False
    """`requests` holds only some of them."""
    windowed: bool = False
    """Figures are of a window, some of whose requests began before it or ended after it."""
    cautions: tuple[str, ...] = ()
    """What the file itself says against its figures."""
    facts: Mapping[str, object] = field(default_factory=dict)
    """What else made the run and can be told: versions, profile, seed."""

    def seconds(self, metric: str) -> Floats | None:
        """The values of a latency, one per request or, for "itl", per gap; None where they are not listed."""
        if metric == "itl":
            return self.gaps_s
        if self.requests is None:
            return None
        table = self.requests
        ttft_s, latency_s = table["ttft_s"].to_numpy(np.float64), table["latency_s"].to_numpy(np.float64)
        if metric == "tpot" and "tpot_s" in table:
            values_s = table["tpot_s"].to_numpy(np.float64)
        elif metric == "tpot":
            later = table["output_tokens"].to_numpy(np.float64) - 1
            several = later > 0
            values_s = (latency_s - ttft_s)[several] / later[several]
        else:
            values_s = ttft_s if metric == "ttft" else latency_s
        values_s = values_s[~np.isnan(values_s)]
        return values_s if len(values_s) else None

    def figures(self) -> dict[str, float]:
        """The compared figures under vLLM's keys: rates as stated; times from the requests, else as stated."""
        told = {name: self.stated[name] for name in THROUGHPUTS if name in self.stated}
        for metric in METRICS:
            values_s = None if self.sampled else self.seconds(metric)
            told |= _stated(self.stated, metric) if values_s is None else statistics_ms(metric, values_s)
        return told


def statistics_ms(metric: str, values_s: Floats) -> dict[str, float]:
    """Mean and percentiles of a latency, in ms, under vLLM's keys."""
    of = np.percentile(values_s, PERCENTILES).tolist()
    names = [statistic_key(p, metric) for p in PERCENTILES]
    return {f"mean_{metric}_ms": 1000 * float(values_s.mean())} | {
        name: 1000 * value for name, value in zip(names, of, strict=True)
    }


def statistic_key(percentile: float, metric: str) -> str:
    """vLLM's key of a percentile; the median has its own word."""
    return f"median_{metric}_ms" if percentile == 50 else f"p{percentile:g}_{metric}_ms"


def _stated(stated: Mapping[str, float], metric: str) -> dict[str, float]:
    """In the order of a table: mean, median, then the percentiles as they rise."""
    found = [name for name in stated if re.fullmatch(rf"(mean|median|p[\d.]+)_{metric}_ms", name)]
    return {name: stated[name] for name in sorted(found, key=_rank)}


def _rank(key: str) -> float:
    word = key.partition("_")[0]
    return {"mean": -1.0, "median": 50.0}[word] if word in ("mean", "median") else float(word[1:])
