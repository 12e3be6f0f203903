"""vLLM bench's synthetic data sets under its own names, and `sessions`, which it lacks.

They say how long prompts are and what they share, not when they are sent (`workloads.arrivals`). The one idea: a data
set is a frozen record whose fields are vLLM's flags without the data set's name (`--random-input-len` is
`RandomDataset.input_len`), with vLLM's defaults and refusals.
Source: vllm/benchmarks/datasets, vLLM 0.32.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from workloads.content import SharedPrefixes
from workloads.errors import TraceError
from workloads.lengths import Fixed, UniformRange
from workloads.request import MAX_TOKENS
from workloads.sessions import Sessions
from workloads.synthetic import synthetic

if TYPE_CHECKING:
    from workloads.arrivals import ArrivalLaw
    from workloads.trace import Selection, Trace

NUM_PROMPTS = 1000
"""vLLM's default of `--num-prompts`."""

MAX_PROMPTS = 10_000_000
"""More would not fit in memory: a run keeps some numbers for each."""
MAX_TURNS = 1000
"""A turn repeats all turns before it, so long sessions cost their square."""

MAX_THINK_S = 1_000_000
"""11 days."""

_LONGEST = MAX_TOKENS // 2
_RATIO = "a number in [0, 1)"
_RATIOS = f'{_RATIO}, or {{"input": ..., "output": ...}} of two such numbers'


class Dataset(Protocol):
    """A workload but for its times."""

    def trace(
        self, num_prompts: int, arrivals: ArrivalLaw, *, seed: int = 0, selection: Selection | None = None
    ) -> Trace:
        """`num_prompts` requests (of `sessions`: whole sessions), sent at `arrivals`. Raises TraceError."""
        ...


@dataclass(frozen=True, slots=True)
class RandomDataset:
    """Prompts of `input_len` tokens that share nothing but `prefix_len` tokens before them, which all have in common.

    Lengths are uniform, `range_ratio` to either side; `{"input": 0.3, "output": 0.5}` sets the two sides apart.
    """

    input_len: int = 1024
    output_len: int = 128
    range_ratio: float | Mapping[str, float] = 0.0
    prefix_len: int = 0

    def __post_init__(self) -> None:
        _whole("random_input_len", self.input_len, 1)
        _whole("random_output_len", self.output_len, 1)
        _whole("random_prefix_len", self.prefix_len, 0)
        shortest = math.floor(self.input_len * (1.0 - self._ratios()[0])) + self.prefix_len
        if shortest < 1:
            expected = "more, so that the shortest prompt of its range has a token"
            raise TraceError(field="random_input_len", value=self.input_len, expected=expected)

    def trace(
        self, num_prompts: int, arrivals: ArrivalLaw, *, seed: int = 0, selection: Selection | None = None
    ) -> Trace:
        """`num_prompts` requests, sent at `arrivals`."""
        _whole("num_prompts", num_prompts, 1, MAX_PROMPTS)
        input_ratio, output_ratio = self._ratios()
        return synthetic(
            num_prompts,
            arrivals,
            UniformRange(self.input_len, input_ratio),
            UniformRange(self.output_len, output_ratio),
            prefixes=_common(self.prefix_len),
            seed=seed,
            selection=selection,
            name="random",
        )

    def _ratios(self) -> tuple[float, float]:
        ratio = self.range_ratio
        both = (ratio.get("input"), ratio.get("output")) if isinstance(ratio, Mapping) else (ratio, ratio)
        return _ratio("random_range_ratio", both[0], _RATIOS), _ratio("random_range_ratio", both[1], _RATIOS)


@dataclass(frozen=True, slots=True)
class PrefixRepetition:
    """`num_prefixes` texts of `prefix_len` tokens, sent equally often, in random order, each time with another suffix.

    As in vLLM every prefix comes `num_prompts // num_prefixes` times: up to `num_prefixes - 1` requests are not sent.
    """

    prefix_len: int = 256
    suffix_len: int = 256
    num_prefixes: int = 10
    output_len: int = 128

    def __post_init__(self) -> None:
        _whole("prefix_repetition_prefix_len", self.prefix_len, 0)
        _whole("prefix_repetition_suffix_len", self.suffix_len, 1)
        _whole("prefix_repetition_num_prefixes", self.num_prefixes, 1, MAX_PROMPTS)
        _whole("prefix_repetition_output_len", self.output_len, 1)

    def trace(
        self, num_prompts: int, arrivals: ArrivalLaw, *, seed: int = 0, selection: Selection | None = None
    ) -> Trace:
        """The largest multiple of `num_prefixes` up to `num_prompts` of requests, sent at `arrivals`."""
        if not self.num_prefixes <= num_prompts <= MAX_PROMPTS:
            expected = f"at least one prompt for each of {self.num_prefixes} prefixes, and at most {MAX_PROMPTS}"
            raise TraceError(field="num_prompts", value=num_prompts, expected=expected)
        sent = num_prompts // self.num_prefixes * self.num_prefixes
        fewer = f"prefix_repetition sends {sent:,} of {num_prompts:,} prompts, each of {self.num_prefixes:,} prefixes"
        return synthetic(
            sent,
            arrivals,
            Fixed(self.suffix_len),
            Fixed(self.output_len),
            prefixes=SharedPrefixes((self.prefix_len,) * self.num_prefixes, evenly=True),
            seed=seed,
            selection=selection,
            name="prefix_repetition",
            remarks=() if sent == num_prompts else (f"{fewer} equally often, as vllm bench serve does",),
        )


@dataclass(frozen=True, slots=True)
class SessionsDataset:
    """Conversations of `num_turns` turns: each adds `input_len` tokens to all that was said, and gets `output_len`.

    All sessions start with the same `prefix_len` tokens. Before each turn but the first the user thinks for an
    exponentially distributed time of mean `think_s`. `range_ratio` spreads turns and lengths, as in `RandomDataset`.
    Arrivals are the sessions' starts.
    """

    num_turns: int = 5
    input_len: int = 256
    output_len: int = 128
    range_ratio: float = 0.0
    prefix_len: int = 0
    think_s: float = 10.0

    def __post_init__(self) -> None:
        _whole("sessions_num_turns", self.num_turns, 1, MAX_TURNS)
        _whole("sessions_input_len", self.input_len, 1)
        _whole("sessions_output_len", self.output_len, 1)
        _whole("sessions_prefix_len", self.prefix_len, 0)
        _ratio("sessions_range_ratio", self.range_ratio, _RATIO)
        if not 0.0 <= self.think_s <= MAX_THINK_S:
            raise TraceError(field="sessions_think_s", value=self.think_s, expected=f"seconds from 0 to {MAX_THINK_S}")

    def trace(
        self, num_prompts: int, arrivals: ArrivalLaw, *, seed: int = 0, selection: Selection | None = None
    ) -> Trace:
        """`num_prompts` sessions, started at `arrivals`."""
        _whole("num_prompts", num_prompts, 1, MAX_PROMPTS // self.num_turns)
        return synthetic(
            num_prompts,
            arrivals,
            UniformRange(self.input_len, self.range_ratio),
            UniformRange(self.output_len, self.range_ratio),
            prefixes=_common(self.prefix_len),
            sessions=Sessions(UniformRange(self.num_turns, self.range_ratio), self.think_s),
            seed=seed,
            selection=selection,
            name="sessions",
        )


DATASETS: Mapping[str, type[RandomDataset | PrefixRepetition | SessionsDataset]] = {
    "random": RandomDataset,
    "prefix_repetition": PrefixRepetition,
    "sessions": SessionsDataset,
}


def _common(prefix_len: int) -> SharedPrefixes | None:
    return SharedPrefixes((prefix_len,)) if prefix_len else None


def _whole(name: str, value: int, low: int, high: int = _LONGEST) -> None:
    if not low <= value <= high:
        raise TraceError(field=name, value=value, expected=f"an integer from {low} to {high}")


def _ratio(name: str, value: object, expected: str) -> float:
    if not isinstance(value, int | float) or not 0.0 <= value < 1.0:
        raise TraceError(field=name, value=value, expected=expected)
    return float(value)
