"""What a live validation runs, and how its real runs compare with the simulation.

Not for running anything (live_runs.py), nor for the profile (live_calibrate.py). The one idea: one setting of a real
server is measured to calibrate; every other one is foretold, then measured several times, and the foretold value has to
lie where the real ones do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from sim.core.config import SchedulerConfig
from sim.plurals import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FIGURES: Mapping[str, tuple[str, str]] = {
    "throughput": ("output_throughput", "Output throughput (tok/s)"),
    "ttft_mean": ("mean_ttft_ms", "Mean TTFT (ms)"),
    "tpot_mean": ("mean_tpot_ms", "Mean TPOT (ms)"),
    "itl_p50": ("p50_itl_ms", "P50 ITL (ms)"),
    "itl_p99": ("p99_itl_ms", "P99 ITL (ms)"),
}
"""Figure -> its key in the result of `vllm bench serve` (and in ours), its label."""

WIDENING = 0.10
"""A simulated value may lie so far outside the range of the real ones, as a fraction."""
PREEMPTION_ERROR = 0.20


@dataclass(frozen=True, slots=True)
class Bed:
    """What is the same in all runs of a validation. Tokens, requests, blocks."""

    dtype: str = "float32"
    max_model_len: int = 1024
    max_num_seqs: int = 32
    block_size: int = 32
    kv_gib: int = 1
    length_spread: float = 0.5
    """Lengths are drawn from (1 - spread) to (1 + spread) times the mean."""
    seed: int = 1
    threads: int = 1
    """Cores of the model's process; the server's other processes and the client have the rest."""

    def server_flags(self, setting: Setting) -> list[str]:
        """The command line of `vllm serve`, without model and port."""
        flags = [
            "--load-format", "dummy", "--enforce-eager", "--dtype", self.dtype,
            "--max-model-len", str(self.max_model_len), "--block-size", str(self.block_size),
            "--max-num-seqs", str(self.max_num_seqs), "--no-enable-prefix-caching", "--no-async-scheduling",
            "--enable-logging-iteration-details", "--max-num-batched-tokens", str(setting.max_num_batched_tokens),
        ]  # fmt: skip
        if setting.num_gpu_blocks_override is not None:
            flags += ["--num-gpu-blocks-override", str(setting.num_gpu_blocks_override)]
        return flags

    def bench_flags(self, load: Load) -> list[str]:
        """The command line of `vllm bench serve`, without model, address and files."""
        flags = [
            "--backend", "openai", "--dataset-name", "random", "--random-input-len", str(load.input_len),
            "--random-output-len", str(load.output_len), "--random-range-ratio", str(self.length_spread),
            "--seed", str(self.seed), "--ignore-eos", "--num-prompts", str(load.num_prompts),
            "--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "50,90,99",
            "--save-result", "--save-detailed",
        ]  # fmt: skip
        if load.ramp is not None:
            low, high = map(str, load.ramp)
            return [
                *flags, "--ramp-up-strategy", "linear", "--ramp-up-start-rps", low, "--ramp-up-end-rps", high,
            ]  # fmt: skip
        return [*flags, "--request-rate", "inf" if load.rate is None else f"{load.rate:g}"]


@dataclass(frozen=True, slots=True)
class Setting:
    """What differs between servers."""

    max_num_batched_tokens: int
    num_gpu_blocks_override: int | None = None

    @property
    def name(self) -> str:
        """For folders."""
        starved = "" if self.num_gpu_blocks_override is None else f"-blocks{self.num_gpu_blocks_override}"
        return f"budget{self.max_num_batched_tokens}{starved}"


@dataclass(frozen=True, slots=True)
class Load:
    """What a client sends: at a mean rate (requests per second, None: all at once), or at one that rises."""

    num_prompts: int
    rate: float | None = None
    ramp: tuple[int, int] | None = None
    input_len: int = 400
    output_len: int = 64

    @property
    def name(self) -> str:
        """For folders."""
        if self.ramp is not None:
            return f"ramp{self.ramp[0]}-{self.ramp[1]}"
        return "rate-inf" if self.rate is None else f"rate{self.rate:g}"

    @property
    def title(self) -> str:
        """For tables."""
        if self.ramp is not None:
            return f"{self.ramp[0]}-{self.ramp[1]}/s"
        return "inf" if self.rate is None else f"{self.rate:g}/s"


@dataclass(frozen=True, slots=True)
class Cell:
    """A server under a load."""

    setting: Setting
    load: Load

    @property
    def name(self) -> str:
        """For folders."""
        return f"{self.setting.name}_{self.load.name}"

    @property
    def title(self) -> str:
        """For tables: the token budget, the blocks where they are few, the rate."""
        blocks = self.setting.num_gpu_blocks_override
        few = "" if blocks is None else f", {counted(blocks, 'block')}"
        return f"{self.setting.max_num_batched_tokens}{few} @ {self.load.title}"


SHARES = (0.35, 0.7)
"""Rates of the foretold runs, as shares of what the server can do at most; then all at once."""


def rates(capacity_per_s: float) -> tuple[float | None, ...]:
    """Two rates below saturation, in two digits, and saturation."""
    return (*(float(f"{share * capacity_per_s:.2g}") for share in SHARES), None)


def cells(budgets: Sequence[int], loads: Sequence[float | None], num_prompts: int, starved: Cell) -> list[Cell]:
    """Every budget at every rate, slow ones with fewer requests so that no run is much longer than the others; then
    the starved one."""
    longest_s = 13.0

    def load(rate: float | None) -> Load:
        few = num_prompts if rate is None else max(2 * num_prompts // 5, min(num_prompts, round(rate * longest_s)))
        return Load(few, rate)

    return [Cell(Setting(budget), load(rate)) for budget in budgets for rate in loads] + [starved]


def scheduler_config(bed: Bed, setting: Setting, num_gpu_blocks: int) -> SchedulerConfig:
    """The simulated server: synchronous, as vLLM is on a CPU and with --no-async-scheduling."""
    return SchedulerConfig(
        max_num_batched_tokens=setting.max_num_batched_tokens,
        max_num_seqs=bed.max_num_seqs,
        max_model_len=bed.max_model_len,
        num_gpu_blocks=num_gpu_blocks,
        block_size=bed.block_size,
        enable_prefix_caching=False,
        async_scheduling=False,
    )


# -- comparing ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Check:
    """One figure of one cell."""

    cell: str
    figure: str
    real: tuple[float, ...]
    """Of each real run."""
    simulated: float

    @property
    def inside(self) -> bool:
        """Whether the simulated value is in the real range, widened by `WIDENING` on both sides."""
        return min(self.real) * (1 - WIDENING) <= self.simulated <= max(self.real) * (1 + WIDENING)

    @property
    def error(self) -> float:
        """Against the mean of the real runs."""
        return self.simulated / float(np.mean(self.real)) - 1.0


def figures(result: Mapping[str, object]) -> dict[str, float]:
    """The compared figures of a result of `vllm bench serve`, or of ours."""
    return {name: float(result[key]) for name, (key, _) in FIGURES.items()}  # type: ignore[arg-type]


def checks(
    real: Mapping[str, Sequence[Mapping[str, float]]], simulated: Mapping[str, Mapping[str, float]]
) -> list[Check]:
    """Every figure of every cell: cell -> the figures of each real run; cell -> the simulated ones."""
    return [
        Check(cell, figure, tuple(run[figure] for run in runs), simulated[cell][figure])
        for cell, runs in real.items()
        for figure in FIGURES
    ]


@dataclass(frozen=True, slots=True)
class Order:
    """Two settings under one load, compared by one figure."""

    figure: str
    load: str
    lower: str
    """The setting whose real mean is lower."""
    higher: str
    clear: bool
    """Whether the real ranges do not touch."""
    kept: bool
    """Whether the simulated values have the same order."""


def orders(made: Sequence[Check], names: Mapping[str, tuple[str, str]], wanted: Sequence[str]) -> list[Order]:
    """All pairs of settings under the same load. `names`: cell -> (setting, load)."""
    found = []
    for figure in wanted:
        some = [check for check in made if check.figure == figure and check.cell in names]
        for a, b in combinations(some, 2):
            if names[a.cell][1] == names[b.cell][1]:
                low, high = sorted((a, b), key=lambda check: float(np.mean(check.real)))
                found.append(
                    Order(
                        figure,
                        names[a.cell][1],
                        names[low.cell][0],
                        names[high.cell][0],
                        clear=max(low.real) < min(high.real),
                        kept=low.simulated < high.simulated,
                    )
                )
    return found


@dataclass(frozen=True, slots=True)
class Preemptions:
    """Of one cell that preempted."""

    cell: str
    real: tuple[int, ...]
    simulated: int

    @property
    def error(self) -> float:
        """Against the mean of the real runs; infinite where those had none."""
        mean = float(np.mean(self.real))
        return self.simulated / mean - 1.0 if mean else math.inf if self.simulated else 0.0

    @property
    def inside(self) -> bool:
        """Whether the count is within `PREEMPTION_ERROR` of the real ones' range."""
        low, high = min(self.real) * (1 - PREEMPTION_ERROR), max(self.real) * (1 + PREEMPTION_ERROR)
        return low <= self.simulated <= high
