"""Steps of real serving as samples: what the host does around a pass, and passes as a server has them.

Not for predicting a run: these are to fit, other workloads are to predict. The one idea: the grid times passes alone,
so a few small bursts of requests go through the closed loop, where scheduling and input preparation happen in place.
"""

from __future__ import annotations

import time
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
    from collections.abc import Callable, Iterator

    from calibrate.closed_loop import Forward, RealStep
    from calibrate.grid import GridLimits
    from calibrate.measure import Runner

_OUTPUT_TOKENS = (8, 24)
_LONGEST_PROMPT = 512
_BUDGET_TOKENS = 2048
_GROWTH = 1.5
"""A burst of twice as many requests takes about so much longer than the longest before; it must still fit."""
_ONLY_AFTER = 2
"""The first steps of a burst find caches and allocators cold."""


def served_steps(
    forward: Forward,
    limits: GridLimits,
    block_size: int,
    budget_s: float,
    padded: Callable[[RealStep], tuple[int, str]],
    *,
    seed: int = 0,
    on_burst: Callable[[int], None] = lambda _requests: None,
) -> list[TimedStep]:
    """Serve bursts of 1, 2, 4 ... requests over and over, until the budget is used up; a sample for each step."""
    rng = np.random.default_rng(seed)
    started_s = time.monotonic()
    samples: list[TimedStep] = []
    longest_s = 0.0
    for size in _sizes(limits):
        burst_s = time.monotonic()
        if burst_s - started_s + _GROWTH * longest_s > budget_s:
            break
        steps: list[RealStep] = []
        config = _config(limits, block_size)
        ClosedLoop(config, forward, RunLog(), WallClock(), on_step=steps.append).serve(_burst(size, limits, rng))
        samples += [sample(step, *padded(step)) for step in steps[_ONLY_AFTER:]]
        longest_s = max(longest_s, time.monotonic() - burst_s)
        on_burst(size)
    return samples


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


def _sizes(limits: GridLimits) -> Iterator[int]:
    sizes = [size for size in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512) if size <= limits.max_seqs]
    while True:
        yield from sizes


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


def _burst(size: int, limits: GridLimits, rng: np.random.Generator) -> list[Request]:
    """Requests that come at once, with prompts of very different lengths."""
    longest = min(_LONGEST_PROMPT, limits.longest - _OUTPUT_TOKENS[1] - 1, limits.kv_tokens // size)
    prompts = np.exp(rng.uniform(np.log(min(16, longest)), np.log(longest), size)).astype(int)
    outputs = rng.integers(*_OUTPUT_TOKENS, size)
    return [Request(f"{i}", 0.0, int(p), int(o)) for i, (p, o) in enumerate(zip(prompts, outputs, strict=True))]


def padded_by(runner: Runner) -> Callable[[RealStep], tuple[int, str]]:
    """What a runner computes for a real step: see `Runner.padded`."""
    return lambda step: runner.padded(GridStep(tuple(step.inputs.chunks), tuple(step.inputs.decodes)))
