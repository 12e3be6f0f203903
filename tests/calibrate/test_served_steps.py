"""Bursts of real serving: which sizes are served, for how long, and that they fit the cache."""

from __future__ import annotations

import numpy as np
import pytest

from calibrate.grid import GridLimits
from calibrate.served_steps import Bursts

BLOCK_SIZE = 16
SECONDS_PER_STEP = 0.05


class Passes:
    """Each takes the same time, on a clock of its own."""

    vocab_size = 100

    def __init__(self):
        self.now_s = 0.0
        self.steps = []

    def monotonic(self):
        return self.now_s

    def run(self, inputs):
        self.now_s += SECONDS_PER_STEP
        self.steps.append(inputs)
        return np.ones(inputs.sampled.size, dtype=np.int64), SECONDS_PER_STEP


@pytest.fixture
def passes(monkeypatch):
    passes = Passes()
    monkeypatch.setattr("calibrate.served_steps.time", passes)
    return passes


def bursts(passes, limits):
    return Bursts(passes, limits, BLOCK_SIZE, lambda step: (step.inputs.num_tokens, "none"))


def test_short_goes_reach_the_most_sequences(passes):
    limits = GridLimits(max_tokens=256, max_seqs=24, max_context=250, kv_tokens=1920, max_model_len=1024)
    served, samples, sizes = bursts(passes, limits), [], []
    for _ in range(12):  # of 1.5 s: a burst takes about 1.2
        samples += served.go(1.5, sizes.append)
    assert sizes[:8] == [1, 2, 4, 8, 16, 24, 1, 2]
    assert max(len(sample.decodes) for sample in samples) == 24
    assert passes.now_s < 12 * 1.5 + 1.5


def test_what_a_go_leaves_over_the_next_one_has(passes):
    limits = GridLimits(max_tokens=256, max_seqs=4, max_context=250, kv_tokens=1920, max_model_len=1024)
    served = bursts(passes, limits)
    goes = [len(served.go(0.7)) for _ in range(20)]
    assert goes[0] > 0  # nothing is known of the first one's time
    assert 0 in goes[1:]
    assert passes.now_s == pytest.approx(20 * 0.7, abs=2.0)  # within a burst and a half of the budget


@pytest.mark.parametrize("kv_tokens", [64, 640, 1920, 100_000])
def test_a_burst_fits_the_cache(passes, kv_tokens):
    limits = GridLimits(max_tokens=512, max_seqs=32, max_context=4096, kv_tokens=kv_tokens, max_model_len=4096)
    bursts(passes, limits).go(20.0)
    fullest = max(sum(step.decodes) + sum(n + c for n, c in step.chunks) for step in passes.steps)
    assert fullest <= kv_tokens
    if kv_tokens == 1920:
        assert fullest > 0.6 * kv_tokens


def test_no_context_is_beyond_the_limits(passes):
    limits = GridLimits(max_tokens=512, max_seqs=32, max_context=100, kv_tokens=10_000, max_model_len=4096)
    bursts(passes, limits).go(20.0)
    assert max(c for step in passes.steps for c in step.decodes) <= 100 + 24
