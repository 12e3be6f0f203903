"""Time that goes to copies, to the host, to drafts and to CUDA graphs: named where it matters, and nowhere else.

Each case comes with its cure, which is silent; where the finding foretells what the cure brings, the cure is run.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any

import pytest

from sim.config import EngineConfig
from sim.experiment import Result, simulate
from sim.report.explain import Finding, explain
from workloads import Request

OF_TIME = {"copies", "full_link", "host", "drafts", "cuda_graphs"}
SMALL, LARGE = "h100-llama-3.1-8b", "h100-qwen3-14b"
TIGHT = {"num_gpu_blocks_override": 400, "max_model_len": 2048}
DRAFTS = {"spec_method": "draft_model", "spec_model": "qwen3-4b", "spec_tokens": 3, "draft_acceptance": 0.4}


@functools.cache
def run(profile: str, count: int, in_flight: int | None, shared: int, flags: tuple[tuple[str, Any], ...]) -> Result:
    """`shared` tokens of each prompt of 300 are one of ten texts; 150 tokens are generated."""
    requests = [
        Request(f"r{i}", 0.0, 300, 150, content=((i % 10, shared), (100 + i, 300 - shared)) if shared else None)
        for i in range(count)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return simulate(requests, EngineConfig(**dict(flags)), profile, max_in_flight=in_flight)


def result(profile: str, count: int, in_flight: int | None = None, shared: int = 0, **flags: Any) -> Result:
    return run(profile, count, in_flight, shared, tuple(sorted(flags.items())))


def of_time(of: Result) -> dict[str, Finding]:
    told = explain(of.frames)
    assert told.notes == (), "everything was priced"
    return {found.cause: found for found in told.findings if found.cause in OF_TIME}


CASES = {
    "host": (SMALL, {"async_scheduling": False}, {"async_scheduling": True}),
    "copies": (LARGE, {**TIGHT, "kv_preemption": "swap", "pcie_bandwidth": 0.5}, {"pcie_bandwidth": 50.0}),
    "cuda_graphs": (SMALL, {"async_scheduling": True, "cudagraph_capture_sizes": (512,)},
                    {"cudagraph_capture_sizes": None}),
}  # fmt: skip


@pytest.mark.parametrize("cause", CASES)
def test_the_cause_is_named_and_its_cure_is_silent(cause: str) -> None:
    profile, flags, cure = CASES[cause]
    assert set(of_time(result(profile, 120, 64, **flags))) == {cause}
    assert of_time(result(profile, 120, 64, **{**flags, **cure})) == {}


def throughput(of: Result) -> float:
    value = of.summary()["output_throughput"]
    assert isinstance(value, float)
    return value


def test_what_hiding_the_host_brings() -> None:
    """The share that is told is what async scheduling gains, as here the GPU is never idle."""
    found = of_time(result(SMALL, 120, 64, async_scheduling=False))["host"]
    gain = throughput(result(SMALL, 120, 64, async_scheduling=True)) / throughput(
        result(SMALL, 120, 64, async_scheduling=False)
    )
    assert 1 / (1 - found.share) == pytest.approx(gain, rel=0.03)
    assert "async_scheduling on" in found.change[0]


def test_what_a_host_is_by_estimate_says_so() -> None:
    found = of_time(result(LARGE, 120, 64, async_scheduling=False)).get("host")
    assert found is not None
    assert "by estimate" in found.because[0]


def test_sizes_that_lack_are_named() -> None:
    """64 at once, twice: they are padded to 512."""
    flags = {"async_scheduling": True}
    found = of_time(result(SMALL, 128, 64, cudagraph_capture_sizes=(512,), **flags))["cuda_graphs"]
    assert "steps of 64 tokens" in found.because[1]
    sizes = found.change[0].split(" among ")[0]
    named = tuple(int(size) for size in sizes.split(", "))
    mended = result(SMALL, 128, 64, cudagraph_capture_sizes=(*named, 512), **flags)
    assert "cuda_graphs" not in of_time(mended)


def test_drafts_lose_in_a_crowd_and_pay_for_few() -> None:
    """A draft model of a quarter's size, three passes, and 1.62 tokens of each decode."""
    crowd = result(LARGE, 200, 128, max_num_seqs=256, **DRAFTS)
    found = of_time(crowd)["drafts"]
    assert "1.6" in found.because[0]
    assert "no speculative_config: " in found.change[0]
    assert throughput(result(LARGE, 200, 128, max_num_seqs=256)) > throughput(crowd)
    few = {**DRAFTS, "draft_acceptance": 0.9}
    assert "drafts" not in of_time(result(LARGE, 16, 4, **few))


def test_fewer_drafts_where_the_last_ones_are_rejected() -> None:
    """Of six n-gram drafts only the first is ever accepted: the others are verified for nothing."""
    said = {"spec_method": "ngram_gpu", "draft_acceptance": (0.9, 0.0, 0.0, 0.0, 0.0, 0.0)}
    found = of_time(result(LARGE, 300, 192, max_num_seqs=256, spec_tokens=6, **said))["drafts"]
    assert found.change[0].startswith("num_speculative_tokens 1: ")
    one = {"spec_method": "ngram_gpu", "draft_acceptance": 0.9}
    assert of_time(result(LARGE, 300, 192, max_num_seqs=256, spec_tokens=1, **one)) == {}


def test_swapping_over_a_slow_link_is_weighed_against_computing_again() -> None:
    """By hand: 2 x 16 x 163,840 bytes per block; at 0.5 GB/s a token takes 0.66 ms there and back."""
    slow = result(LARGE, 120, 64, kv_preemption="swap", pcie_bandwidth=0.5, **TIGHT)
    found = of_time(slow)["copies"]
    swapped_tokens = slow.steps["blocks_out"].sum() * 16
    assert slow.steps["copy_s"].sum() == pytest.approx(swapped_tokens * 2 * 163_840 / 0.5e9, rel=0.1)
    assert found.change[0].startswith("kv_preemption recompute: ")
    assert throughput(result(LARGE, 120, 64, **TIGHT)) > throughput(slow)


def test_offloading_over_a_slow_link() -> None:
    flags = {**TIGHT, "kv_offloading_size": 20.0}
    slow = of_time(result(LARGE, 120, 64, 160, pcie_bandwidth=0.05, **flags))
    assert "no kv_offloading_size: the waits cost more than it saves" in slow["copies"].change
    assert of_time(result(LARGE, 120, 64, 160, pcie_bandwidth=50.0, **flags)) == {}


def long_prompts(pcie_bandwidth: float) -> Result:
    """200 prompts of 2,048 tokens, 2,000 of them one of 20 texts: 328 MB each, of which the GPU holds 16."""
    requests = [Request(f"r{i}", 0.0, 2048, 8, content=((i % 20, 2000), (100 + i, 48))) for i in range(200)]
    flags = EngineConfig(
        kv_offloading_size=200.0, num_gpu_blocks_override=2000, max_model_len=4096, pcie_bandwidth=pcie_bandwidth
    )
    return simulate(requests, flags, LARGE)


def test_a_full_link() -> None:
    """At 1 GB/s each load takes a third of a second, and a prompt is computed in 0.1 s."""
    slow = long_prompts(1.0)
    found = of_time(slow)["full_link"]
    assert found.share > 0.5
    assert found.because[0].startswith("the link was busy 9")
    host = slow.summary()["sim"]["host"]
    assert 0.9 < host["link_busy_share"] <= 1.0
    assert "full_link" not in of_time(long_prompts(50.0))


def test_a_link_is_busy_no_longer_than_there_is_time() -> None:
    """All stores are handed over while the steps run, and most of them copied afterwards."""
    late = result(LARGE, 100, 64, kv_offloading_size=20.0, pcie_bandwidth=0.1)
    assert late.summary()["sim"]["host"]["link_busy_share"] == pytest.approx(1.0, abs=0.05)


def test_another_servers_graphs_are_priced() -> None:
    """Fewer padded tokens than in the profile's own graphs: not quicker than the law."""
    few = result(SMALL, 20, 5, async_scheduling=True, performance_mode="interactivity")
    assert explain(few.frames).notes == ()
