"""When requests come: arrival processes, in the terms of `vllm bench serve`.

Not for what they ask. The one idea: a process is gaps between arrivals, gap i Gamma-distributed with shape `burstiness`
and mean 1 / (the rate at request i); Poisson, constant and all at once are its corners.

Times are rounded to the microsecond, so that the last bit of a machine's logarithm does not show.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np

from workloads.errors import TraceError
from workloads.lengths import check_quantiles

if TYPE_CHECKING:
    from numpy.typing import NDArray

_DECIMALS = 6


class ArrivalLaw(Protocol):
    """A process of arrivals."""

    def times_s(self, n: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """The first n arrivals, in seconds, ascending; shape (n,)."""
        ...


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Arrivals as `vllm bench serve` sends them (benchmarks/serve.py `get_request`, 0.32).

    `request_rate`: requests per second; inf, the default, sends all at once. `burstiness`: the gaps' Gamma shape, their
    coefficient of variation is 1 / sqrt(burstiness); 1 is Poisson, inf is evenly spaced. With `ramp_up_strategy`,
    request i of n comes at the rate `start + (end - start) p` (linear) or `start (end / start)^p` (exponential),
    p = i / (n - 1), and `request_rate` is not used. `rescale`: vLLM stretches the gaps so that the last request comes
    at exactly n / request_rate (not on a ramp); off, the process is a true Poisson or Gamma one.
    The first request comes after a gap, as in vLLM. Raises `TraceError` for rates <= 0 and burstiness <= 0.
    """

    request_rate: float = math.inf
    burstiness: float = 1.0
    ramp_up_strategy: Literal["linear", "exponential"] | None = None
    ramp_up_start_rps: float | None = None
    ramp_up_end_rps: float | None = None
    rescale: bool = False

    def __post_init__(self) -> None:
        _positive("request_rate", self.request_rate, "requests per second > 0, or inf", finite=False)
        _positive("burstiness", self.burstiness, "a number > 0, or inf", finite=False)
        if self.ramp_up_strategy not in (None, "linear", "exponential"):
            raise TraceError(field="ramp_up_strategy", value=self.ramp_up_strategy, expected="linear or exponential")
        if self.ramp_up_strategy is not None:
            _positive("ramp_up_start_rps", self.ramp_up_start_rps, "requests per second > 0", finite=True)
            _positive("ramp_up_end_rps", self.ramp_up_end_rps, "requests per second > 0", finite=True)
        elif self.ramp_up_start_rps is not None or self.ramp_up_end_rps is not None:
            raise TraceError(field="ramp_up_strategy", value=None, expected="linear or exponential, as a ramp is given")

    def times_s(self, n: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """The first n arrivals, in seconds, ascending; shape (n,)."""
        times_s = np.cumsum(gaps(self.burstiness, n, rng) / self._rates(n))
        if self.rescale and self.ramp_up_strategy is None and times_s.size and times_s[-1] > 0.0:
            times_s *= n / self.request_rate / times_s[-1]
        return times_s.round(_DECIMALS)

    def _rates(self, n: int) -> NDArray[np.float64]:
        start, end = self.ramp_up_start_rps, self.ramp_up_end_rps
        if start is None or end is None:
            return np.full(n, self.request_rate)
        progress = np.arange(n) / max(n - 1, 1)
        if self.ramp_up_strategy == "linear":
            return start + (end - start) * progress
        return start * (end / start) ** progress


@dataclass(frozen=True, slots=True)
class GapQuantiles:
    """Independent gaps with a measured distribution: `gap_s[j]` is their quantile `q[j]`, straight lines between.

    For traces with pauses that no Gamma law has. `rate_per_s` sets their mean. Raises `TraceError` for a bad table.
    """

    q: tuple[float, ...]
    gap_s: tuple[float, ...]
    rate_per_s: float

    def __post_init__(self) -> None:
        check_quantiles("gap_s", self.q, self.gap_s)
        _positive("rate_per_s", self.rate_per_s, "requests per second > 0", finite=True)
        _positive("gap_s", self.gap_s[-1], "a longest gap > 0", finite=True)

    def times_s(self, n: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """The first n arrivals, in seconds, ascending; shape (n,)."""
        steps = np.diff(self.q)
        levels = np.array(self.gap_s)
        mean_s = float(np.dot(steps, (levels[1:] + levels[:-1]) / 2.0))
        gaps_s = np.interp(rng.random(n), self.q, self.gap_s) / (mean_s * self.rate_per_s)
        return np.cumsum(gaps_s).round(_DECIMALS)


def gaps(burstiness: float, n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """n gaps of mean 1, Gamma-distributed with shape `burstiness` (inf: all 1); shape (n,)."""
    if math.isinf(burstiness):
        return np.ones(n)
    return rng.standard_gamma(burstiness, n) / burstiness


def _positive(name: str, value: float | None, expected: str, *, finite: bool) -> None:
    if value is None or not value > 0.0 or (finite and math.isinf(value)):
        raise TraceError(field=name, value=value, expected=expected)
