"""Samples of a law that the tests know, as the torch harness would time them on an H200."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from calibrate.make_profile import padded
from calibrate.samples import Origin, Samples, TimedStep
from sim.latency import FusedLaw, Graphs, capture_sizes

H200_LAW = FusedLaw(
    step_s=8e-4, row_s=8e-6, weight_read_s=4.2e-3, batch_slowdown=0.03, token_s=2.4e-5, sharpness=3.0, context_s=3.3e-8,
    mixed_context_s=1e-8, pair_s=9e-10, tile_waste=0.4, eager_s=1.5e-3, host_step_s=1.2e-3, host_row_s=4e-6,
    graphs=Graphs(capture_sizes(8192, 512)),
)  # fmt: skip

ORIGIN = Origin(
    device="NVIDIA H200", model="llama-3.1-8b", dtype="bfloat16", engine="torch", engine_version="2.13.0",
    driver="570.1", versions={"torch": "2.13.0"}, date="2026-11-29T12:00:00+00:00",
    command="elpase calibrate torch --model llama-3.1-8b", notes={"attention": "flash"},
)  # fmt: skip


@pytest.fixture
def h200_law() -> FusedLaw:
    return H200_LAW


@pytest.fixture
def h200_samples() -> Callable[..., Samples]:
    """Makes `n` steps: decodes, prompts and mixtures on a grid, with noise."""

    def make(n: int = 240, *, noise: float = 0.02, origin: Origin = ORIGIN) -> Samples:
        rng = np.random.default_rng(n)
        rows = []
        for i in range(n):
            decodes = 0 if i % 3 == 0 else int(2 ** rng.uniform(0, 9.2))
            chunks = 0 if i % 3 == 1 else int(rng.integers(1, 4))
            chunk, before = int(2 ** rng.uniform(1, 12)), int(rng.choice([0, 0, 512, 4096, 16384]))
            context = int(2 ** rng.uniform(7, 13))
            rows.append(TimedStep.of([(chunk, before)] * chunks, [context] * decodes, 1.0, source="torch", repeats=5))
        made = padded(Samples.of_steps(rows, origin), H200_LAW.graphs)
        seconds = H200_LAW.device_s(
            made.padded_tokens,
            made.num_seqs,
            made.decode_context,
            made.mixed_context,
            made.chunk_pairs,
            (made.graph != "full").astype(float),
        )
        host = H200_LAW.host_step_s + H200_LAW.host_row_s * made.num_seqs
        scatter = np.exp(rng.normal(0, noise, (2, n)))
        return replace(made, seconds=seconds * scatter[0], host_seconds=host * scatter[1])

    return make
