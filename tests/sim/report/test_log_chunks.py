"""Each step says which prompt had its largest chunk."""

from __future__ import annotations

import pytest

from sim.config import EngineConfig
from sim.core.config import SchedulerConfig
from sim.experiment import simulate
from workloads import Request

CONFIG = SchedulerConfig(max_num_batched_tokens=64, max_num_seqs=8, max_model_len=512, num_gpu_blocks=201)


def test_the_largest_chunk_of_each_step() -> None:
    """b's 30 tokens beside a's last 22 are the larger chunk; a step of decodes has none."""
    steps = simulate([Request("a", 0.0, 150, 4), Request("b", 0.0, 30, 4)], CONFIG).steps
    assert steps["chunk_tokens"].tolist()[:4] == [64, 64, 30, 0]
    assert steps["chunk_context"].tolist()[:4] == [0, 64, 0, 0]
    assert steps["chunk_row"].tolist()[:3] == [0, 0, 1]
    # n tokens after a context c: n * (c + n / 2) pairs.
    assert steps["chunk_pairs"].tolist()[:4] == [64 * 32, 64 * 96, 22 * 139 + 30 * 15, 0]


@pytest.mark.parametrize("leap", [True, False])
def test_quiet_steps_have_none(leap) -> None:
    steps = simulate([Request("a", 0.0, 10, 200)], CONFIG, leap=leap).steps
    assert steps["chunk_tokens"].tolist() == [10] + [0] * 199
    assert steps["chunk_pairs"].tolist() == [50.0] + [0.0] * 199


@pytest.mark.filterwarnings("ignore:drafting and verifying drafts")
def test_drafts_are_no_prompt() -> None:
    drafts = {"spec_method": "ngram_gpu", "spec_tokens": 3, "draft_acceptance": 0.5}
    config = EngineConfig(max_num_batched_tokens=64, max_model_len=512, max_num_seqs=8, **drafts)
    steps = simulate([Request("a", 0.0, 10, 20)], config).steps
    assert steps["chunk_tokens"].tolist()[0] == 10
    assert set(steps["chunk_tokens"].tolist()[1:]) == {0}
