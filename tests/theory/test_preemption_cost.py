"""What one preemption costs: prefill(L) when it is recomputed, 2 x L x bytes / bandwidth when it is swapped.

Two requests in a cache that both fill: a (16 tokens) goes on, b (L tokens, all of them computed) is the victim, once,
and comes back alone when a is done. The profile's seconds and the simulation's are added up apart from each other.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.core.config import SchedulerConfig
from sim.experiment import simulate
from sim.host import HostLink
from sim.latency.profile import ClientTerms, Profile, profile_names
from sim.latency.shape import StepShape
from workloads import Request

BLOCK = 16
H100 = [name for name in profile_names() if name.startswith("h100")]
EXPERTS = [name for name in H100 if Profile.load(name).known_model().experts is not None]


def load(name: str) -> Profile:
    """Without the client's share, so that both requests reach the server in one step."""
    return replace(Profile.load(name), client=ClientTerms())


def link_of(profile: Profile, bytes_per_s: float = 50e9) -> HostLink:
    return HostLink(BLOCK * profile.kv_bytes_per_token, bytes_per_s, 83e9, latency_s=10e-6)


def run(profile: Profile, length: int, mode: str, link: HostLink):
    config = SchedulerConfig(
        max_num_batched_tokens=length + BLOCK + 1,
        max_num_seqs=8,
        max_model_len=length + 2 * BLOCK,
        num_gpu_blocks=1 + 1 + length // BLOCK,
        enable_prefix_caching=False,
        kv_preemption=mode,
        num_host_blocks=10_000,
    )
    requests = [Request("a", 0.0, BLOCK, 3), Request("b", 0.0, length, 4)]
    result = simulate(requests, config, profile, link=link)
    assert result.requests["preemptions"].tolist() == [0, 1]
    assert result.requests["swaps"].tolist() == [0, int(mode == "swap")]
    return result


def makespan_s(profile: Profile, length: int, mode: str, link: HostLink) -> float:
    return float(run(profile, length, mode, link).steps["end_s"].max())


def recompute_cost_s(profile: Profile, length: int) -> float:
    """The step that computes the known tokens again, instead of one that decodes: both bring the next token."""
    known = length + 1
    prefill = profile.step_time(StepShape(known, 1, 0, known, 0.5 * known * known, 1))
    decode = profile.step_time(StepShape(1, 1, length, 0, 0.0, 1))
    return sum(prefill) - sum(decode)


def swap_cost_s(profile: Profile, length: int, link: HostLink) -> float:
    return 2 * (link.latency_s + length * profile.kv_bytes_per_token / link.bytes_per_s)


def even_bandwidth(profile: Profile, length: int) -> float:
    """Bytes per second at which both cost the same; on a faster link swapping is cheaper."""
    return 2 * length * profile.kv_bytes_per_token / (recompute_cost_s(profile, length) - 2 * 10e-6)


SHORT, LONG = 256, 4096


def break_even(cheaper) -> int:
    """The first length from which on one way is cheaper, to the block, somewhere between SHORT and LONG."""
    low, high = SHORT // BLOCK, LONG // BLOCK
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if cheaper(middle * BLOCK) else (middle, high)
    return high * BLOCK


@pytest.mark.parametrize("length", [64, 1024, 4096])
def test_a_recomputed_request_costs_its_prefill(length):
    profile = load("h100-qwen3-14b")
    steps = run(profile, length, "recompute", link_of(profile)).steps
    again = steps[steps["admitted"] == 1].iloc[-1]
    assert again["num_tokens"] == length + 1
    prefill = profile.step_time(StepShape(length + 1, 1, 0, length + 1, 0.5 * (length + 1) ** 2, 1))
    assert again["end_s"] - again["start_s"] == pytest.approx(prefill.device_s)
    assert steps["copy_s"].sum() == 0


@pytest.mark.parametrize("length", [64, 1024, 4096])
def test_a_swapped_request_costs_its_bytes_twice(length):
    profile = load("h100-qwen3-14b")
    link = link_of(profile)
    result = run(profile, length, "swap", link)
    assert result.steps["copy_s"].sum() == pytest.approx(swap_cost_s(profile, length, link))
    assert result.steps["num_tokens"].sum() == BLOCK + length + 2 + 3, "nothing is computed twice"
    host = result.summary()["sim"]["host"]
    assert host["bytes_out"] == host["bytes_in"] == length * profile.kv_bytes_per_token
    assert host["swaps"] == 1
    assert host["link_busy_share"] == pytest.approx(host["copy_share"])


@pytest.mark.parametrize("name", H100)
def test_break_even_in_simulation_is_that_of_the_profile(name):
    """A step reads all weights for one token too: a short request is nearly free to recompute, a long one is not.

    Not so with experts: one token reads a few, a short request nearly all, and a long one no more. There it is the
    long one that had better be recomputed. The link is one on which there is a choice, between what SHORT and LONG
    requests ask for.
    """
    profile = load(name)
    link = link_of(profile, (even_bandwidth(profile, SHORT) * even_bandwidth(profile, LONG)) ** 0.5)
    swaps_long = name not in EXPERTS
    derived = break_even(
        lambda length: (swap_cost_s(profile, length, link) < recompute_cost_s(profile, length)) == swaps_long
    )
    measured = break_even(
        lambda length: (
            (makespan_s(profile, length, "swap", link) < makespan_s(profile, length, "recompute", link)) == swaps_long
        )
    )
    assert measured == derived
    assert SHORT < measured < LONG


@pytest.mark.parametrize("name", H100)
def test_at_50_gb_per_s_an_h100_has_no_break_even(name):
    """Whatever the length, copying both ways is cheaper than computing again, in the profile and in simulation."""
    profile = load(name)
    link = link_of(profile, 50e9)
    for length in (16, 64, 256, 1024, 4096):
        gain_s = recompute_cost_s(profile, length) - swap_cost_s(profile, length, link)
        assert gain_s > 0
        measured_s = makespan_s(profile, length, "recompute", link) - makespan_s(profile, length, "swap", link)
        assert measured_s == pytest.approx(gain_s)
