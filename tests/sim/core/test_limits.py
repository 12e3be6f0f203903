"""What a step says it lacked when it left a request waiting."""

from __future__ import annotations

import pytest

from sim.core.config import SchedulerConfig
from sim.experiment import simulate
from workloads import Request

LONG, SHORT = 16, 1
"""Outputs: long enough for the second request to find the first one decoding."""


def held_back_by(first_prompt: int, second_prompt: int, **changes) -> set[str]:
    """What held back the second request once the first one's prompt was in; 20 usable blocks of 16 tokens."""
    settings = {"max_num_batched_tokens": 32, "max_num_seqs": 8, "max_model_len": 512, "num_gpu_blocks": 21}
    requests = [Request("a", 0.0, first_prompt, LONG), Request("b", 0.0, second_prompt, SHORT)]
    steps = simulate(requests, SchedulerConfig(**(settings | changes))).steps
    return set(steps["limit"][(steps["decodes"] == 1) & (steps["waiting"] == 1)])


@pytest.mark.parametrize(
    ("first_prompt", "second_prompt", "changes", "limit"),
    [
        # All 20 are taken.
        (304, 32, {}, "blocks"),
        # 10 are free; 12 are asked for, though this step computes 31 tokens at most.
        (160, 192, {}, "gate"),
        # 9 would fit into 10, but int(0.2 * 21) stay free.
        (160, 144, {"watermark": 0.2}, "watermark"),
        # Neither the gate nor the watermark would let it pass: what is missing even without a watermark is told.
        (160, 192, {"watermark": 0.2}, "gate"),
        (160, 32, {"max_num_seqs": 1}, "seqs"),
        (160, 40, {"max_num_batched_tokens": 512, "max_num_scheduled_tokens": 1}, "tokens"),
    ],
)
def test_what_a_waiting_request_lacks(first_prompt, second_prompt, changes, limit) -> None:
    assert held_back_by(first_prompt, second_prompt, **changes) == {limit}


def test_without_the_gate_a_chunk_is_enough_and_blocks_lack_later() -> None:
    held = held_back_by(160, 192, scheduler_reserve_full_isl=False)
    assert "gate" not in held
    assert "preemption" in held
