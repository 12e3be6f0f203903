"""The small profile that ships for tests, beside the real passes that were served on the device it was fitted on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sim.config import EngineConfig
from sim.experiment import simulate
from sim.latency.profile import Profile
from workloads import synthetic
from workloads.arrivals import Arrivals
from workloads.lengths import UniformRange

SERVED = Path(__file__).parents[2] / "results/calibration/closed_loop_cpu"
FLAGS = ("max_num_batched_tokens", "max_num_seqs", "max_model_len")


def test_a_model_outside_the_catalogue_comes_with_its_profile() -> None:
    profile = Profile.load("cpu-qwen3-30m")
    assert (profile.engine, profile.dtype, profile.known_gpu()) == ("torch", "float32", None)
    assert profile.known_model().num_layers == 8
    assert profile.kv_bytes_per_token == 2 * 8 * 4 * 64 * 4  # K and V, layers, KV heads, head size, bytes


@pytest.mark.parametrize(
    ("name", "requests", "inputs", "outputs"),
    [
        ("saturated", 48, UniformRange(128, 0.5), UniformRange(32, 0.5)),
        ("starved_120_blocks", 32, UniformRange(96, 0.3), UniformRange(96, 0.3)),
    ],
)
def test_it_foretells_about_what_was_served(
    name: str, requests: int, inputs: UniformRange, outputs: UniformRange
) -> None:
    """Other draws of the same lengths as the real runs', which differ by up to 15 % among each other."""
    served = json.loads((SERVED / f"{name}.json").read_text(encoding="utf-8"))
    flags = {flag: served["config"][flag] for flag in FLAGS}
    config = EngineConfig(num_gpu_blocks_override=served["config"]["num_gpu_blocks"], **flags)
    load = list(synthetic(requests, Arrivals(), inputs, outputs, seed=0))
    summary = simulate(load, config, Profile.load("cpu-qwen3-30m")).summary()
    assert summary["output_throughput"] == pytest.approx(served["real"]["output_throughput"], rel=0.15)
    assert summary["mean_tpot_ms"] == pytest.approx(served["real"]["mean_tpot_ms"], rel=0.15)
    assert (summary["sim"]["preemptions"] > 0) is (name == "starved_120_blocks")
