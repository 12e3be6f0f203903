"""Steps of real serving as samples: what the host does around a pass, and passes as a server has them.

Not for predicting a run: these are to fit, other workloads are to predict. The one idea: the grid times passes alone,
so a few small bursts of requests go through the closed loop, where scheduling and input preparation happen in place.
"""

from __future__ import annotations

import time
from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np

from calibrate.closed_loop import ClosedLoop, WallClock
from calibrate.grid import GridStep
from calibrate.measure import SOURCE
from calibrate.samples import TimedStep, kind
from sim.core.config import SchedulerConfig
from sim.report.log import RunLog
from workloads import Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from calibrate.closed_loop import Forward, RealStep
    from calibrate.grid import GridLimits
    from calibrate.measure import Runner

_OUTPUT_TOKENS = (8, 24)
_LONGEST_PROMPT = 512
_LEAST_PROMPT = 16
_BUDGET_TOKENS = 2048
_GROWTH = 1.5
"""A burst of twice as many requests takes about so much longer than the longest before; it must still fit."""
_ONLY_AFTER = 2
"""The first steps of a burst find caches and allocators cold."""


class Bursts:
    """Bursts of 1, 2, 4 ... requests up to the most sequences, over and over, in as many goes as one likes.

    A go takes up where the last one ended, time that it left over included: short goes reach the large bursts as well.
    """

    def __init__(
        self,
        forward: Forward,
        limits: GridLimits,
        block_size: int,
        padded: Callable[[RealStep], tuple[int, str]],
        *,
        seed: int = 0,
    ) -> None:
        self._forward = forward
        self._limits = limits
        self._block_size = block_size
        self._padded = padded
        self._rng = np.random.default_rng(seed)
        self._sizes = cycle(_sizes(limits.max_seqs))
        self._left_s = 0.0
        self._longest_s = 0.0

    def go(self, budget_s: float, on_burst: Callable[[int], None] = lambda _requests: None) -> list[TimedStep]:
        """Serve bursts while the budget lasts; a sample for each step."""
        self._left_s += budget_s
        samples: list[TimedStep] = []
        while self._left_s > _GROWTH * self._longest_s:
            size = next(self._sizes)
            started_s = time.monotonic()
            samples += self._serve(size)
            took_s = time.monotonic() - started_s
            self._left_s -= took_s
            self._longest_s = max(self._longest_s, took_s)
            on_burst(size)
        return samples

    def _serve(self, size: int) -> list[TimedStep]:
        steps: list[RealStep] = []
        config = _config(self._limits, self._block_size)
        burst = _burst(size, self._limits, self._block_size, self._rng)
        ClosedLoop(config, self._forward, RunLog(), WallClock(), on_step=steps.append).serve(burst)
        return [sample(step, *self._padded(step)) for step in steps[_ONLY_AFTER:]]


def sample(step: RealStep, padded_tokens: int, graph: str) -> TimedStep:
    """A step of the closed loop as a sample."""
    inputs = step.inputs
    chunks, decodes = inputs.chunks, inputs.decodes
    return TimedStep.of(
        chunks,
        decodes,
        step.device_s,
        num_sampled=int(inputs.sampled.size),
        padded_tokens=padded_tokens,
        host_seconds=step.host_s,
        graph=graph,
        source=SOURCE,
        regime=f"served, {kind(len(chunks), len(decodes))}",
    )


def _sizes(most: int) -> list[int]:
    return [2**k for k in range(most.bit_length()) if 2**k < most] + [most]


def _config(limits: GridLimits, block_size: int) -> SchedulerConfig:
    return SchedulerConfig(
        max_num_batched_tokens=max(min(_BUDGET_TOKENS, limits.max_tokens), limits.max_seqs),
        max_num_seqs=limits.max_seqs,
        max_model_len=limits.longest,
        num_gpu_blocks=1 + limits.kv_tokens // block_size,
        block_size=block_size,
        enable_prefix_caching=False,
        async_scheduling=False,
    )


def _burst(size: int, limits: GridLimits, block_size: int, rng: np.random.Generator) -> list[Request]:
    """Requests that come at once, with prompts of very different lengths, together no more than the cache holds."""
    outputs = rng.integers(*_OUTPUT_TOKENS, size)
    longest = min(_LONGEST_PROMPT, limits.max_context, limits.longest - _OUTPUT_TOKENS[1] - 1)
    prompts = np.exp(rng.uniform(np.log(min(_LEAST_PROMPT, longest)), np.log(longest), size))
    room = limits.kv_tokens - outputs.sum() - size * block_size
    prompts = np.maximum(1, prompts * min(1.0, room / prompts.sum())).astype(int)
    return [Request(f"{i}", 0.0, int(p), int(o)) for i, (p, o) in enumerate(zip(prompts, outputs, strict=True))]


def padded_by(runner: Runner) -> Callable[[RealStep], tuple[int, str]]:
    """What a runner computes for a real step: see `Runner.padded`."""
    return lambda step: runner.padded(GridStep(tuple(step.inputs.chunks), tuple(step.inputs.decodes)))
