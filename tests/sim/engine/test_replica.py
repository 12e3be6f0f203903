"""Time passes as it should: who is sent when, what a token's time is, and who is stuck is named."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator

import numpy as np
import pytest

from sim.config import EngineConfig
from sim.core.config import SchedulerConfig
from sim.engine.replica import NoProgress
from sim.errors import InputError
from sim.experiment import ExtrapolationWarning, simulate
from sim.host import HostLink
from workloads import Request


def config(**changes) -> SchedulerConfig:
    settings = {"max_num_batched_tokens": 64, "max_num_seqs": 8, "max_model_len": 512, "num_gpu_blocks": 201}
    return SchedulerConfig(**(settings | changes))


def test_a_lone_request_step_by_step(constant_profile):
    """150 prompt tokens in a budget of 64 are three steps; then one token per step; the client's terms are outside."""
    profile = constant_profile(0.1, request_s=0.02, response_s=0.03)
    result = simulate([Request("a", 1.0, 150, 4)], config(), profile)
    row = result.requests.iloc[0]
    assert row.send_s == 1.0
    assert row.queued_s == pytest.approx(1.02)
    assert row.scheduled_s == pytest.approx(1.02)
    assert row.first_token_s == pytest.approx(1.02 + 3 * 0.1 + 0.03)
    assert row.finish_s == pytest.approx(1.02 + 6 * 0.1 + 0.03)
    assert result.itls.row(0) == pytest.approx([0.1, 0.1, 0.1])
    assert result.steps["num_tokens"].tolist() == [64, 64, 22, 1, 1, 1]
    assert result.steps["sampled"].tolist() == [0, 0, 1, 1, 1, 1]


def test_numbers_of_numpy_are_python_s_own(constant_profile):
    """A cap out of np.arange is one that result.json can hold."""
    requests = [Request(name, 0.0, 10, 5) for name in "abc"]
    result = simulate(requests, config(), constant_profile(0.1), max_in_flight=np.int64(2), seed=np.int64(1))
    assert result.requests["send_s"].tolist() == pytest.approx([0.0, 0.0, 0.5])
    assert json.loads(json.dumps(result.summary()))["max_concurrency"] == 2


@pytest.mark.parametrize(("field", "value"), [("max_in_flight", 2.0), ("seed", "1"), ("seed", 1.5)])
def test_what_is_no_whole_number_is_refused(constant_profile, field, value):
    with pytest.raises(InputError, match=f"{field}: got {value!r}, expected a whole number"):
        simulate([], config(), constant_profile(0.1), **{field: value})


def test_a_request_that_comes_during_a_step_joins_the_next(constant_profile):
    requests = [Request("a", 0.0, 10, 5), Request("b", 0.15, 10, 5)]
    result = simulate(requests, config(), constant_profile(0.1))
    assert result.requests["scheduled_s"].tolist() == pytest.approx([0.0, 0.2])


def test_async_it_joins_one_step_later_but_an_idle_server_takes_it_at_once(constant_profile):
    """Scheduling goes one step ahead: whoever comes during step k joins step k + 2."""
    requests = [Request("a", 0.0, 10, 5), Request("b", 0.15, 10, 5), Request("c", 9.0, 10, 1), Request("d", 9.0, 10, 1)]
    result = simulate(requests, config(async_scheduling=True), constant_profile(0.1))
    assert result.requests["scheduled_s"].tolist() == pytest.approx([0.0, 0.3, 9.0, 9.0])
    assert result.requests["finish_s"].tolist() == pytest.approx([0.5, 0.8, 9.1, 9.1])


def test_async_hides_the_host_behind_the_device_and_sync_does_not(constant_profile):
    """The first step of a busy period shows its host time; after that only the longer of the two counts."""
    profile = constant_profile(0.1)
    profile = dataclasses.replace(profile, law=dataclasses.replace(profile.law, host_step_s=0.03))
    ends = {
        asynchronous: simulate([Request("a", 0.0, 10, 20)], config(async_scheduling=asynchronous), profile).requests[
            "finish_s"
        ][0]
        for asynchronous in (False, True)
    }
    assert ends[False] == pytest.approx(20 * 0.13)
    assert ends[True] == pytest.approx(0.03 + 20 * 0.1)
    slow_host = dataclasses.replace(profile, law=dataclasses.replace(profile.law, host_step_s=0.25))
    result = simulate([Request("a", 0.0, 10, 20)], config(async_scheduling=True), slow_host)
    assert np.median(result.itls.row(0)) == pytest.approx(0.25)


def test_a_cap_in_flight_sends_the_next_when_an_answer_has_been_read(constant_profile):
    requests = [Request(str(i), 0.0, 10, 2) for i in range(4)]
    result = simulate(requests, config(), constant_profile(0.1, response_s=0.05), max_in_flight=2)
    assert result.requests["send_s"].tolist() == pytest.approx([0.0, 0.0, 0.25, 0.25])
    assert result.steps["running"].max() == 2


def test_a_follow_up_turn_waits_for_its_answer_and_the_thought(constant_profile):
    requests = [
        Request("a", 0.0, 10, 3, content=((7, 10),), output_content=8),
        Request("b", 0.1, 20, 1, content=((7, 10), (8, 3), (9, 7)), after="a", think_s=1.5),
        Request("c", 0.2, 10, 1),
    ]
    result = simulate(requests, config(block_size=1), constant_profile(0.1))
    table = result.requests.set_index("request_id")
    assert table.loc["b", "arrival_s"] == pytest.approx(0.3 + 1.5)
    assert table.loc["c", "send_s"] == 0.2, "others do not wait for it"
    # The last answered token was never computed, so prompt and two tokens of the answer hit.
    assert table.loc["b", "cached_tokens"] == 12


def test_a_preempted_requests_gap_is_the_whole_stall(constant_profile):
    """Two requests of 160 + 200 tokens in 30 blocks of 16: the second is preempted once and loses no token."""
    requests = [Request("a", 0.0, 160, 200), Request("b", 0.0, 160, 200)]
    settings = config(max_num_batched_tokens=512, num_gpu_blocks=31, enable_prefix_caching=False)
    result = simulate(requests, settings, constant_profile(0.1))
    table = result.requests
    assert table["preemptions"].tolist() == [0, 1]
    assert [len(result.itls.row(i)) for i in (0, 1)] == [199, 199]
    gaps = result.itls.row(1)
    assert table["finish_s"][1] - table["first_token_s"][1] == pytest.approx(gaps.sum())
    assert gaps.max() == pytest.approx(gaps.sum() - 198 * 0.1)
    assert gaps.max() > 5
    # Everything that was computed before the preemption is computed again.
    assert table["recomputed_tokens"][1] == result.steps["num_tokens"].sum() - 2 * 359


@pytest.mark.parametrize("asynchronous", [False, True])
def test_copies_of_swaps_come_before_their_steps(constant_profile, asynchronous):
    """160 tokens are 10 blocks of 1 MB: 20 ms at 500 MB/s, each way, with 1 ms until the first byte."""
    settings = config(
        max_num_batched_tokens=512,
        num_gpu_blocks=21,
        max_model_len=320,
        enable_prefix_caching=False,
        kv_preemption="swap",
        num_host_blocks=50,
        async_scheduling=asynchronous,
    )
    requests = [Request("a", 0.0, 160, 20), Request("b", 0.0, 160, 20)]
    link = HostLink(1_000_000, 500e6, 900e6, 0.001)
    result = simulate(requests, settings, constant_profile(0.1), link=link, check=True)
    steps, table = result.steps, result.requests
    assert steps["blocks_out"].tolist() == [0, 10] + [0] * (len(steps) - 2)
    assert steps["blocks_in"].sum() == 10
    moved = steps[steps["blocks_out"] + steps["blocks_in"] > 0]
    assert moved["copy_s"].tolist() == pytest.approx([0.021, 0.021])
    assert (moved["end_s"] - moved["start_s"]).tolist() == pytest.approx([0.121, 0.121])
    assert steps["copy_s"].sum() == pytest.approx(0.042)
    assert table["swaps"].tolist() == [0, 1]
    assert table["recomputed_tokens"].tolist() == [0, 0]
    assert [len(result.itls.row(i)) for i in (0, 1)] == [19, 19]
    # a's 20 tokens, one of them beside b's first; then b's other 19; async a decides one step late that it is done.
    assert table["finish_s"][1] == pytest.approx((20 + 19) * 0.1 + 0.042)
    assert steps["host_blocks"].max() == 10
    host = result.summary()["sim"]["host"]
    assert (host["bytes_out"], host["bytes_in"]) == (10_000_000, 10_000_000)
    assert host["peak_usage"] == 10 / 50


@pytest.mark.parametrize("num_host_blocks", [0, 1, 12, 10**9])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_any_size_of_host_memory_serves_everybody(constant_profile, num_host_blocks, asynchronous):
    rng = np.random.default_rng(5)
    requests = [Request(str(i), i * 0.05, int(rng.integers(1, 200)), int(rng.integers(1, 90))) for i in range(60)]
    settings = config(
        num_gpu_blocks=25,
        max_model_len=320,
        kv_preemption="swap",
        num_host_blocks=num_host_blocks,
        async_scheduling=asynchronous,
    )
    result = simulate(requests, settings, constant_profile(0.05), check=True)
    assert (result.requests["status"] == "finished").all()
    host = result.summary()["sim"]["host"]
    assert result.requests["preemptions"].sum() == host["swaps"] + host["recomputed_instead"] > 0
    assert host["swaps"] == 0 if num_host_blocks == 0 else host["swaps"] > 0 or num_host_blocks == 1
    assert (host["recomputed_instead"] > 0) == (num_host_blocks < 100)
    assert host["bytes_in"] <= host["bytes_out"]  # async, one may end while it is out
    assert result.steps["host_blocks"].iloc[-1] == 0


def offloading_config(**changes):
    return config(
        max_num_batched_tokens=512,
        num_gpu_blocks=21,
        max_model_len=320,
        kv_preemption="offload",
        num_host_blocks=100,
        **changes,
    )


EVICTED = [
    Request("a", 0.0, 160, 1, content=((1, 160),)),
    Request("c", 1.0, 300, 1),  # 19 of 20 blocks: of a's ten, the first is left
]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_an_idle_server_waits_for_a_load_and_nothing_else(constant_profile, asynchronous):
    """Nine blocks of 1 MB at 500 MB/s, and 1 ms until the first byte."""
    requests = [*EVICTED, Request("d", 5.0, 170, 2, content=((1, 160), (2, 10)))]
    link = HostLink(1_000_000, 500e6, 900e6, 0.001)
    result = simulate(
        requests, offloading_config(async_scheduling=asynchronous), constant_profile(0.1), link=link, check=True
    )
    row = result.requests.iloc[2]
    assert row.scheduled_s == pytest.approx(5.0 + 0.001 + 9 / 500)
    assert row.cached_tokens == 160
    host = result.summary()["sim"]["host"]
    assert host["bytes_in"] == 9_000_000
    assert host["bytes_out"] == (10 + 18) * 1_000_000
    assert host["hit_rate"] == pytest.approx(9 * 16 / (160 + 300 + 170 - 16))
    assert (host["copy_s"], host["swaps"], host["counterfactual"]) == (0.0, 0, False)
    assert host["peak_usage"] == 28 / 100


def test_a_busy_server_learns_of_a_load_when_a_step_that_began_after_it_is_over(constant_profile):
    """d comes during e's step until 5.05. The next one decides its load, which starts when that has run, at 5.15, and
    is over at 5.169: too late for the step that begins at 5.15. That of 5.25 reports it, and d runs at 5.35."""
    requests = [*EVICTED, Request("e", 4.95, 10, 30), Request("d", 5.0, 170, 2, content=((1, 160), (2, 10)))]
    link = HostLink(1_000_000, 500e6, 900e6, 0.001)
    result = simulate(requests, offloading_config(), constant_profile(0.1), link=link, check=True)
    assert result.requests["scheduled_s"][3] == pytest.approx(5.35)
    assert result.steps["blocks_in"].sum() == 9
    held = result.steps[result.steps["limit"] == "transfer"]
    assert held["start_s"].tolist() == pytest.approx([5.05, 5.15, 5.25])


def test_a_step_that_preempts_waits_for_the_victims_store(constant_profile):
    """Both prompts end in the first step; the second wants a block of b's ten, which are on their way for 10 s."""
    requests = [Request("a", 0.0, 160, 20), Request("b", 0.0, 160, 20)]
    link = HostLink(1_000_000, 1e6, 1.5e6, 0.0)
    result = simulate(requests, offloading_config(), constant_profile(0.1), link=link, check=True)
    assert result.steps["preempted"].tolist()[:2] == [0, 1]
    assert result.steps["copy_s"].tolist()[:3] == pytest.approx([0.0, 20.0, 0.0]), "b's store comes after a's"
    assert (result.requests["status"] == "finished").all()


@pytest.mark.parametrize("num_host_blocks", [0, 1, 12, 10**9])
@pytest.mark.parametrize("prompt_only", [False, True])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_any_size_of_host_memory_offloads_for_everybody(constant_profile, num_host_blocks, prompt_only, asynchronous):
    rng = np.random.default_rng(5)
    requests = [
        Request(
            str(i),
            i * 0.05,
            int(n) + 40,
            int(rng.integers(1, 90)),
            content=((int(rng.integers(1, 4)), 40), (100 + i, int(n))) if i % 2 else None,
        )
        for i, n in enumerate(rng.integers(1, 160, 60))
    ]
    settings = config(
        num_gpu_blocks=25,
        max_model_len=320,
        kv_preemption="offload",
        num_host_blocks=num_host_blocks,
        offload_prompt_only=prompt_only,
        async_scheduling=asynchronous,
    )
    result = simulate(requests, settings, constant_profile(0.05), check=True)
    assert (result.requests["status"] == "finished").all()
    host = result.summary()["sim"]["host"]
    assert (host["bytes_out"] > 0) == (num_host_blocks > 0)
    assert host["bytes_in"] == 0 if num_host_blocks == 0 else host["bytes_in"] > 0 or num_host_blocks < 20
    assert result.steps["host_blocks"].max() <= num_host_blocks


def test_a_request_that_a_step_passes_over_has_a_longer_gap(constant_profile):
    """priority: the worst one preempts itself, which ends the running pass, so the better one behind it waits."""
    requests = [Request("worse", 0.0, 160, 200, priority=1), Request("better", 0.15, 160, 200)]
    settings = config(max_num_batched_tokens=512, num_gpu_blocks=31, enable_prefix_caching=False, policy="priority")
    result = simulate(requests, settings, constant_profile(0.1))
    table = result.requests
    assert table["preemptions"].tolist() == [1, 0]
    gaps = result.itls.row(1)
    assert len(gaps) == 199
    assert sorted(gaps)[-2:] == pytest.approx([0.1, 0.2])
    empty = result.steps[result.steps["num_tokens"] == 0]
    assert empty["preempted"].tolist() == [1]
    assert gaps.sum() == pytest.approx(table["finish_s"][1] - table["first_token_s"][1])


def test_every_sampled_token_has_its_step(constant_profile):
    rng = np.random.default_rng(3)
    requests = [
        Request(str(i), float(t), int(p), int(o))
        for i, (t, p, o) in enumerate(
            zip(np.sort(rng.uniform(0, 20, 80)), rng.integers(1, 300, 80), rng.integers(1, 120, 80), strict=True)
        )
    ]
    settings = config(num_gpu_blocks=60, max_model_len=500)
    result = simulate(requests, settings, constant_profile(0.05), check=True)
    assert result.requests["preemptions"].sum() > 0, "the case must be hard"
    assert result.steps["sampled"].sum() == sum(r.output_tokens for r in requests)
    assert len(result.itls.values_s) == sum(r.output_tokens - 1 for r in requests)
    ends = set(result.steps["end_s"])
    assert all(first in ends for first in result.requests["first_token_s"])


def test_a_request_that_can_never_fit_is_refused_by_name(constant_profile):
    requests = [Request("small", 0.0, 10, 2), Request("huge", 0.0, 400, 100), Request("long", 0.0, 512, 1)]
    result = simulate(requests, config(num_gpu_blocks=20), constant_profile(0.1))
    assert result.requests["status"].tolist() == ["finished", "rejected", "rejected"]
    assert "request huge: KV blocks: needs 32, of 19" in result.requests["error"][1]
    assert "request long: prompt tokens: got 512, expected < max_model_len 512" in result.requests["error"][2]


def test_one_that_waits_for_ever_is_named(constant_profile):
    """Chunked prefill is off and a step may schedule fewer tokens than the prompt has: vLLM hangs."""
    settings = config(
        enable_chunked_prefill=False, max_num_batched_tokens=512, max_num_scheduled_tokens=100, max_model_len=512
    )
    with pytest.raises(NoProgress) as caught:
        simulate([Request("a", 0.0, 150, 1)], settings, constant_profile(0.1))
    assert str(caught.value) == (
        "request a can never be scheduled, and vLLM waits for ever, too: its length in tokens is 150, and with"
        " nothing else running a step may compute 100 (max_num_scheduled_tokens) and may not cut a prompt, as chunked"
        " prefill is off"
    )


@pytest.mark.filterwarnings("ignore:drafting and verifying")
def test_a_load_that_never_fits_is_named():
    """4 blocks to load, and 2 for a step with 16 drafts that vLLM keeps beside them, in 5: it looks again for ever."""
    settings = EngineConfig(
        kv_offloading_size=1.0, enable_prefix_caching=False, num_gpu_blocks_override=6, max_model_len=80,
        max_num_batched_tokens=256, max_num_seqs=2, spec_method="ngram_gpu", spec_tokens=16, draft_acceptance=0.5,
    )  # fmt: skip
    twice = [Request(name, at_s, 79, 1, content=((1, 79),)) for name, at_s in (("first", 0.0), ("again", 5.0))]
    with pytest.raises(NoProgress) as caught:
        simulate(twice, settings)
    assert "request again can never be scheduled" in str(caught.value)
    assert "5 of 5 KV blocks of 16 are free: too few to load what host memory has of it" in str(caught.value)
    result = simulate(twice, dataclasses.replace(settings, spec_tokens=15))
    assert result.requests["status"].tolist() == ["finished", "finished"]


@pytest.mark.plain_python("the replica makes its requests without looking the name up")
def test_two_that_preempt_each_other_for_ever_are_named(constant_profile, monkeypatch):
    """Equal priorities and arrival times with the admission gate off: a livelock of vLLM's own."""
    from sim.core.request import Request as CoreRequest

    def tied(*args, **kwargs):
        return CoreRequest(*args, **(kwargs | {"arrival_time": 0.0}))

    monkeypatch.setattr("sim.engine.replica.CoreRequest", tied)
    settings = config(
        policy="priority",
        scheduler_reserve_full_isl=False,
        num_gpu_blocks=20,
        max_model_len=300,
        enable_prefix_caching=False,
        max_num_batched_tokens=100,
        long_prefill_token_threshold=50,
    )
    requests = [Request("a", 0.0, 280, 2), Request("b", 0.0, 280, 2)]
    with pytest.raises(NoProgress, match=r"livelock: .* requests .*[ab]"):
        simulate(requests, settings, constant_profile(0.1))


@pytest.fixture
def narrow_profile(constant_profile):
    profile = constant_profile(0.1)
    return dataclasses.replace(profile, domain=dataclasses.replace(profile.domain, num_tokens=(0, 32)))


def test_a_step_outside_the_domain_is_told_and_counted(narrow_profile):
    with pytest.warns(ExtrapolationWarning, match=r"num_tokens 64 is outside \[0, 32\]"):
        result = simulate([Request("a", 0.0, 100, 3)], config(), narrow_profile)
    assert result.steps["extrapolated"].tolist() == [True, True, False, False]


def test_or_it_is_an_error_or_clipped(narrow_profile):
    with pytest.raises(InputError, match="num_tokens 64 is outside"):
        simulate([Request("a", 0.0, 100, 3)], config(), narrow_profile, outside="raise")
    result = simulate([Request("a", 0.0, 100, 3)], config(), narrow_profile, outside="clip")
    assert result.steps["extrapolated"].sum() == 2


def test_ctrl_c_leaves_what_has_happened(constant_profile):
    def interrupt(_now_s: float, done: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    requests = [Request(str(i), i * 1.0, 10, 5) for i in range(10)]
    result = simulate(requests, config(), constant_profile(0.1), on_progress=interrupt)
    assert result.frames.meta["partial"] is True
    assert (result.requests["status"] == "finished").sum() == 3
    assert result.summary()["sim"]["partial"] is True


@pytest.mark.parametrize("leap", [True, False])
@pytest.mark.parametrize("async_scheduling", [True, False])
def test_ctrl_c_lets_steps_end_that_have_begun(constant_profile, leap, async_scheduling):
    def requests() -> Iterator[Request]:
        yield Request("a", 0.0, 10, 100)
        yield Request("b", 5.05, 10, 5)
        raise KeyboardInterrupt

    asked = dataclasses.replace(config(), async_scheduling=async_scheduling)
    result = simulate(requests(), asked, constant_profile(0.1), leap=leap)
    assert result.meta["partial"] is True
    row = result.requests.iloc[0]
    # 50 steps of 0.1 s have ended at 5.05 s; async, the one after the next has been handed over, too.
    assert row["output_tokens"] == 51 + async_scheduling
    assert len(result.itls.values_s) == row["output_tokens"] - 1
    assert len(result.steps) == row["output_tokens"]


@pytest.mark.parametrize("after", ["a", "nobody"])
def test_a_turn_must_follow_a_request_that_is_gone_on_from(constant_profile, after):
    requests = [Request("a", 0.0, 10, 5), Request("b", 0.0, 20, 5, after=after)]
    with pytest.raises(InputError, match=f"after: got '{after}', expected an earlier request with an output_content"):
        simulate(requests, config(), constant_profile(0.1))
