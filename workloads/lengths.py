"""How long prompts and outputs are: laws that turn a uniform number into a number of tokens.

Not for when they come. The one idea: each law is an inverse cumulative distribution, so the draws are separate from
the law, and changing a law leaves every other draw as it was.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from workloads.errors import TraceError
from workloads.request import MAX_TOKENS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_MAX_SIGMA = 10.0


class LengthLaw(Protocol):
    """A distribution of lengths."""

    def tokens(self, u: NDArray[np.float64]) -> NDArray[np.int64]:
        """Lengths >= 1 for uniform draws `u` in (0, 1), rising with them; same shape."""
        ...


@dataclass(frozen=True, slots=True)
class Fixed:
    """Always `length` tokens."""

    length: int

    def __post_init__(self) -> None:
        _between("length", self.length, 1, MAX_TOKENS)

    def tokens(self, u: NDArray[np.float64]) -> NDArray[np.int64]:
        """`length`, in the shape of `u`."""
        return np.full(u.shape, self.length, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class UniformRange:
    """vLLM's `random` data set: uniform on the integers around `length`, `range_ratio` to either side.

    From floor(length (1 - range_ratio)) to ceil(length (1 + range_ratio)), both included, and at least 1.
    Source: vllm/benchmarks/datasets/utils.py `get_sampling_params`, 0.32.
    """

    length: int
    range_ratio: float = 0.0

    def __post_init__(self) -> None:
        _between("length", self.length, 1, MAX_TOKENS // 2)
        if not 0.0 <= self.range_ratio < 1.0:
            raise TraceError(field="range_ratio", value=self.range_ratio, expected="a number in [0, 1)")

    @property
    def bounds(self) -> tuple[int, int]:
        """Shortest and longest length."""
        low = math.floor(self.length * (1 - self.range_ratio))
        return max(low, 1), math.ceil(self.length * (1 + self.range_ratio))

    def tokens(self, u: NDArray[np.float64]) -> NDArray[np.int64]:
        """An integer within `bounds`, each as likely."""
        low, high = self.bounds
        return np.minimum(low + np.floor(u * (high - low + 1)).astype(np.int64), high)


@dataclass(frozen=True, slots=True)
class LogNormal:
    """exp(Normal(ln `median`, `sigma`)), rounded, kept within 1 and `longest` tokens.

    Where a trace's mean is known: mean = median exp(sigma^2 / 2), so sigma = sqrt(2 ln(mean / median)).
    """

    median: float
    sigma: float
    longest: int = MAX_TOKENS

    def __post_init__(self) -> None:
        _between("median", self.median, 1, MAX_TOKENS)
        _between("sigma", self.sigma, 0.0, _MAX_SIGMA)
        _between("longest", self.longest, 1, MAX_TOKENS)

    def tokens(self, u: NDArray[np.float64]) -> NDArray[np.int64]:
        """The quantile `u`."""
        from statistics import NormalDist

        standard = NormalDist()
        # Scalar, in plain Python: numpy's vectorised exp differs between machines.
        drawn = (self.median * math.exp(self.sigma * standard.inv_cdf(x)) for x in u.ravel().tolist())
        kept = [round(min(max(length, 1.0), self.longest)) for length in drawn]
        return np.array(kept, dtype=np.int64).reshape(u.shape)


@dataclass(frozen=True, slots=True)
class Quantiles:
    """A measured distribution: `length[j]` is the quantile `q[j]`; straight lines between, rounded, at least 1.

    `q` rises from 0 to 1, `length` never falls.
    """

    q: tuple[float, ...]
    length: tuple[float, ...]

    def __post_init__(self) -> None:
        check_quantiles("length", self.q, self.length)
        _between("length", self.length[-1], 1, MAX_TOKENS)

    def tokens(self, u: NDArray[np.float64]) -> NDArray[np.int64]:
        """The quantile `u`."""
        return np.maximum(np.rint(np.interp(u, self.q, self.length)), 1.0).astype(np.int64)


@dataclass(frozen=True, slots=True)
class ByPrompt:
    """Outputs whose law depends on the prompt: `laws[j]` serves prompts of up to `upto[j]` tokens, the last all above.

    For traces in which several applications mix, each with its own prompts and answers: one number of correlation
    cannot say that. `upto` rises and is one shorter than `laws`.
    """

    upto: tuple[int, ...]
    laws: tuple[LengthLaw, ...]

    def __post_init__(self) -> None:
        if len(self.laws) != len(self.upto) + 1 or any(b <= a for a, b in zip(self.upto, self.upto[1:], strict=False)):
            raise TraceError(field="upto", value=self.upto, expected=f"{len(self.laws) - 1} rising numbers of tokens")

    def tokens_after(self, prompt_tokens: NDArray[np.int64], u: NDArray[np.float64]) -> NDArray[np.int64]:
        """The quantile `u` of the law that serves each of `prompt_tokens`; all three of one shape."""
        which = np.searchsorted(self.upto, prompt_tokens, side="left")
        return np.choose(which, [law.tokens(u) for law in self.laws])


def check_quantiles(name: str, q: Sequence[float], value: Sequence[float]) -> None:
    """Raise `TraceError` unless `q` rises from 0 to 1 and `value`, as long, starts >= 0 and never falls."""
    if len(q) != len(value) or len(q) < 2 or (q[0], q[-1]) != (0.0, 1.0) or not np.all(np.diff(q) > 0.0):
        raise TraceError(field="q", value=tuple(q), expected=f"numbers rising from 0 to 1, as many as {name}")
    if not (value[0] >= 0.0 and value[-1] < math.inf and np.all(np.diff(value) >= 0.0)):
        raise TraceError(field=name, value=tuple(value), expected="numbers >= 0 that never fall")


def _between(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise TraceError(field=name, value=value, expected=f"a number from {low} to {high}")
