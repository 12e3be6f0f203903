"""Whatever is said and does nothing is told; whatever does something is not."""

from __future__ import annotations

from typing import Any

import pytest

from sim.config import EngineConfig
from sim.without_effect import NO_EFFECT

DRAFTS = {"spec_tokens": 3, "draft_acceptance": 0.5}
OFFLOAD = {"kv_offloading_size": 4.0}


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"prefill_schedule_interval": 4}, ["--prefill-schedule-interval"]),
        ({"drafter_cost": 0.1}, ["--drafter-cost"]),
        ({"drafter_cost": 0.1, "spec_method": "ngram", **DRAFTS}, ["--drafter-cost"]),
        ({"drafter_cost": 0.1, "spec_method": "eagle", "spec_model": "x", **DRAFTS}, []),
        ({"pcie_bandwidth": 8.0, "pcie_latency": 3.0}, ["--pcie-bandwidth", "--pcie-latency"]),
        ({"pcie_bandwidth": 8.0, "kv_preemption": "recompute"}, ["--pcie-bandwidth"]),
        ({"pcie_bandwidth": 8.0, "kv_preemption": "swap"}, []),
        ({"pcie_latency": 3.0, **OFFLOAD}, []),
        ({"long_prefill_token_threshold_adaptive": True}, ["--long-prefill-token-threshold-adaptive"]),
        ({"long_prefill_token_threshold_adaptive": True, "long_prefill_token_threshold": 512}, []),
        ({"enforce_eager": True, "cudagraph_capture_sizes": (1, 2)}, ["--cudagraph-capture-sizes"]),
        ({"cudagraph_capture_sizes": (1, 2)}, []),
        (
            {"compilation_config": {"cudagraph_mode": "NONE", "pass_config": {}, "backend": "inductor"}},
            ["--compilation-config pass_config", "--compilation-config backend"],
        ),
        (
            {
                "speculative_config": {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 5},
                "draft_acceptance": 0.5,
            },
            ["--speculative-config prompt_lookup_max"],
        ),
        ({"max_num_seqs": 4, "watermark": 0.1, "async_scheduling": False, **OFFLOAD}, []),
    ],
)
def test_what_is_told(flags: dict[str, Any], told: list[str]) -> None:
    assert [line.split(" has no effect: ")[0] for line in EngineConfig(**flags).notes()] == told


def test_why() -> None:
    (line,) = EngineConfig(prefill_schedule_interval=4).notes()
    assert line == f"--prefill-schedule-interval has no effect: {NO_EFFECT['prefill_schedule_interval']}"
