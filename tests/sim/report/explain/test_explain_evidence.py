"""The evidence: what each step ended with, whose chunk a gap waited for, and what a changed step would take."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from sim.core.config import SchedulerConfig
from sim.errors import InputError
from sim.experiment import simulate
from sim.latency.profile import Profile
from sim.report.explain import explain
from sim.report.explain.prices import Prices
from sim.report.explain.run import of_frames
from sim.report.step_rows import LIMITS
from workloads import Request

LAW = Profile.load("h100-qwen3-14b")


def small(**changes) -> SchedulerConfig:
    settings = {"max_num_batched_tokens": 64, "max_num_seqs": 8, "max_model_len": 1024, "num_gpu_blocks": 201}
    return SchedulerConfig(**(settings | changes))


def by_tokens(profile: Profile, token_s: float) -> Profile:
    """A law of so many seconds per token on top of the profile's step."""
    return dataclasses.replace(profile, law=dataclasses.replace(profile.law, token_s=token_s))


class TestGaps:
    def test_the_chunk_behind_the_worst_gap_is_named(self, constant_profile) -> None:
        """b's prompt of 100 comes beside a's decodes: 63 tokens, then 37 after 63; c's 40 come later."""
        profile = by_tokens(constant_profile(0.1), 0.01)
        requests = [Request("a", 0.0, 10, 30), Request("b", 1.0, 100, 3), Request("c", 4.0, 40, 3)]
        told = explain(simulate(requests, small(), profile).frames, profile)
        first, second, third = told.gaps[:3]
        assert (first.cause, first.chunk_request_id, first.chunk_tokens, first.chunk_context) == ("chunk", "b", 63, 0)
        assert first.chunk_prompt_tokens == 100
        assert (first.num_tokens, first.decodes, first.prefill_tokens) == (64, 1, 63)
        assert first.gap_s == first.step_s == pytest.approx(0.74)
        assert (first.num_requests, first.request_id, first.num_steps) == (1, "a", 1)
        assert (second.chunk_request_id, second.chunk_tokens) == ("c", 40)
        assert (third.chunk_request_id, third.chunk_tokens, third.chunk_context) == ("b", 37, 63)
        assert {gap.cause for gap in told.gaps[3:]} == {"decodes"}

    def test_requests_of_a_step_share_their_gap(self, constant_profile) -> None:
        profile = by_tokens(constant_profile(0.1), 0.01)
        requests = [*(Request(f"a{i}", 0.0, 10, 30) for i in range(4)), Request("b", 2.0, 50, 3)]
        gap = explain(simulate(requests, small(), profile).frames, profile).gaps[0]
        assert (gap.num_requests, gap.decodes, gap.chunk_request_id) == (4, 4, "b")

    def test_a_preempted_request_waits_for_its_turn(self, constant_profile) -> None:
        """Two of 160 + 200 tokens in 30 blocks: the second loses its blocks and is computed again."""
        requests = [Request(name, 0.0, 160, 200) for name in "ab"]
        config = small(num_gpu_blocks=31, max_num_batched_tokens=512)
        result = simulate(requests, config, constant_profile(0.1))
        told = explain(result.frames, constant_profile(0.1))
        gap = told.gaps[0]
        assert (gap.cause, gap.request_id) == ("preemption", "b")
        assert gap.num_steps == round(gap.gap_s / 0.1) == round(result.itls.row(1).max() / 0.1)
        assert told.itl.max_s == gap.gap_s

    def test_a_budget_used_up_by_others(self, constant_profile) -> None:
        """The adaptive threshold is 64 / 5 = 12 of 16 tokens; when one is done, a's prompt takes 64 / 4, which is all.

        36 of its 200 tokens are done then: 10 steps of 16, and one of 4 that leaves room for the others.
        """
        config = small(
            max_num_scheduled_tokens=16, long_prefill_token_threshold=1, long_prefill_token_threshold_adaptive=True
        )
        requests = [Request("a", 0.0, 200, 2), *(Request(f"b{i}", 0.0, 1, 9 if i else 3) for i in range(4))]
        gap = explain(simulate(requests, config, constant_profile(0.1)).frames, constant_profile(0.1)).gaps[0]
        assert (gap.cause, gap.chunk_request_id, gap.chunk_tokens) == ("budget", "a", 16)
        assert (gap.num_requests, gap.num_steps, gap.gap_s) == (3, 11, pytest.approx(1.1))

    def test_ten_at_most_and_none_of_single_tokens(self, constant_profile) -> None:
        profile = constant_profile(0.1)
        assert len(explain(simulate([Request("a", 0.0, 10, 50)], small(), profile).frames, profile).gaps) == 10
        told = explain(simulate([Request("a", 0.0, 10, 1)], small(), profile).frames, profile)
        assert (told.gaps, told.itl.num_gaps) == ((), 0)

    def test_the_response_path_moves_no_gap_to_another_step(self, constant_profile) -> None:
        profile = by_tokens(constant_profile(0.1, response_s=0.35), 0.01)
        requests = [Request("a", 0.0, 10, 30), Request("b", 1.0, 60, 3)]
        gap = explain(simulate(requests, small(), profile).frames, profile).gaps[0]
        assert (gap.chunk_request_id, gap.chunk_tokens) == ("b", 60)


class TestKnobs:
    def knob(self, told, name):
        return next(knob for knob in told.knobs if knob.name == name)

    def test_steps_and_shares_add_up(self, run_of) -> None:
        told = explain(run_of("kv_starved").frames)
        steps = run_of("kv_starved").steps
        counted = steps["limit"].astype(str).value_counts().to_dict()
        assert {e.limit: e.steps for e in told.endings} == {limit: counted.get(limit, 0) for limit in LIMITS}
        busy = (steps["end_s"] - steps["start_s"]).sum() / (steps["end_s"].max() - steps["start_s"].min())
        assert sum(e.share for e in told.endings) == pytest.approx(busy)
        assert self.knob(told, "KV blocks").steps == (steps["limit"].isin(["blocks", "gate", "preemption"])).sum()

    @pytest.mark.parametrize(
        ("name", "binding"),
        [
            ("healthy", set()),
            ("kv_blocks", {"KV blocks"}),
            ("budget_too_small", {"max_num_batched_tokens"}),
            ("max_num_seqs", {"max_num_seqs"}),
            ("max_num_active_seqs", {"max_num_active_seqs"}),
            ("max_concurrency", {"max_concurrency (client)"}),
            ("watermark", {"KV blocks", "watermark"}),
            ("admission_gate", {"KV blocks", "scheduler_reserve_full_isl", "max_num_batched_tokens"}),
            ("threshold", {"long_prefill_token_threshold", "max_num_batched_tokens"}),
            ("unchunked", {"enable_chunked_prefill"}),
        ],
    )
    def test_what_binds(self, name, binding, run_of) -> None:
        assert {knob.name for knob in explain(run_of(name).frames).knobs if knob.binding} == binding

    def test_a_long_prompt_alone_fills_steps_though_nobody_waits(self, constant_profile) -> None:
        profile = constant_profile(0.1)
        told = explain(simulate([Request("a", 0.0, 300, 2)], small(), profile).frames, profile)
        # 64 x 4 of 300 tokens; 44 and one are left.
        assert self.knob(told, "max_num_batched_tokens").steps == 4
        assert self.knob(told, "max_num_batched_tokens").share == pytest.approx(4 / 6)

    def test_the_adaptive_threshold_grows_with_the_budget_that_is_left(self, constant_profile) -> None:
        """Two live requests of a budget of 64: a fair share is 32, above the threshold of 8."""
        config = small(long_prefill_token_threshold=8, long_prefill_token_threshold_adaptive=True)
        profile = constant_profile(0.1)
        told = explain(simulate([Request(n, 0.0, 100, 2) for n in "ab"], config, profile).frames, profile)
        assert self.knob(told, "long_prefill_token_threshold").steps == 3


class TestTtft:
    def test_parts_are_those_of_the_requests(self, run_of) -> None:
        requests = run_of("max_concurrency").requests
        parts = {part.name: part for part in explain(run_of("max_concurrency").frames).ttft}
        client_ms = 1e3 * (requests["send_s"] - requests["arrival_s"])
        assert parts["client_queue"].mean_ms == pytest.approx(client_ms.mean())
        assert parts["client_queue"].share > 0.95
        assert sum(part.share for part in parts.values()) == pytest.approx(1.0)
        total_ms = 1e3 * (requests["first_token_s"] - requests["arrival_s"]).mean()
        assert sum(part.mean_ms for part in parts.values()) == pytest.approx(total_ms)


class TestSaturation:
    def test_all_at_once_is_a_burst(self, run_of) -> None:
        load = explain(run_of("thrash").frames).saturation
        assert (load.state, load.burst, load.arrivals_per_s) == ("backlogged", True, 0.0)

    def test_rates_are_counted_until_the_last_arrival(self, run_of) -> None:
        requests, load = run_of("overload").requests, explain(run_of("overload").frames).saturation
        window_s = requests["arrival_s"].max() - requests["arrival_s"].min()
        taken = (requests["scheduled_s"] <= requests["arrival_s"].max()).sum()
        assert load.arrivals_per_s == pytest.approx(len(requests) / window_s)
        assert load.taken_per_s == pytest.approx(taken / window_s, rel=0.02)
        assert load.ordering_only

    def test_who_waits_at_the_client_is_told_apart(self, run_of) -> None:
        load = explain(run_of("max_concurrency").frames).saturation
        assert load.waiting_at_client == load.waiting_at_last_arrival > 100


class TestPrices:
    """A step with other prompts in it costs what the law says, though its context is not in the tables."""

    def test_a_step_as_it_was(self, run_of) -> None:
        run = of_frames(run_of("budget_too_large").frames)
        prices = Prices(run, LAW)
        assert prices.explains()
        rows = np.flatnonzero(
            (run.column("prefill_tokens") > 0) & (run.column("num_seqs") - run.column("decodes") == 1)
        )
        for row in rows[:20].tolist():
            tokens, pairs = int(run.column("prefill_tokens")[row]), float(run.column("chunk_pairs")[row])
            assert prices.with_prompts(row, tokens, pairs) == pytest.approx(run.step_s[row], rel=1e-9)

    def test_a_smaller_chunk_costs_what_a_run_with_it_costs(self) -> None:
        """One request decodes when a prompt of 4,000 comes; with budget 1,001 its first chunk is 1,000."""
        requests = [Request("a", 0.0, 500, 300), Request("b", 1.0, 4000, 2)]
        frames = {
            budget: simulate(
                requests, small(max_num_batched_tokens=budget, max_model_len=8192, num_gpu_blocks=999)
            ).frames
            for budget in (4001, 1001)
        }
        rows = {budget: int(f.steps["chunk_row"].eq(1).to_numpy().argmax()) for budget, f in frames.items()}
        prices = Prices(of_frames(frames[4001]), LAW)
        actual_s = (frames[1001].steps["end_s"] - frames[1001].steps["start_s"])[rows[1001]]
        assert prices.with_prompts(rows[4001], 1000, 1000 * 500.0) == pytest.approx(actual_s, rel=1e-6)

    def test_a_run_of_another_law_is_noticed(self, run_of) -> None:
        slower = dataclasses.replace(LAW, law=dataclasses.replace(LAW.law, step_s=LAW.law.step_s + 0.02))
        assert not Prices(of_frames(run_of("healthy").frames), slower).explains()

    def test_twice_the_requests_at_once(self, run_of) -> None:
        """12 run all the time: with room for 24 the same work is done in about half the time."""
        run = of_frames(run_of("max_num_seqs").frames)
        gain = Prices(run, LAW).throughput_gain(run.limit == "seqs", 2.0)
        at_once = [Request(f"r{i}", 0.0, 100, 200) for i in range(480)]
        ends_s = [
            simulate(at_once, SchedulerConfig(8192, seqs, 40_960, 18_038, async_scheduling=True)).steps["end_s"].max()
            for seqs in (12, 24)
        ]
        assert gain == pytest.approx(ends_s[0] / ends_s[1], rel=0.05)


def test_a_run_without_a_step_says_why() -> None:
    frames = simulate([Request("a", 0.0, 2000, 5)], small()).frames
    with pytest.raises(InputError, match=r"this run: no step was run: request a: prompt tokens: got 2000"):
        explain(frames)


def test_it_is_json_and_frozen(run_of) -> None:
    told = explain(run_of("kv_blocks").frames)
    assert json.loads(json.dumps(told.to_dict(), allow_nan=False))["findings"][0]["cause"] == "kv_blocks"
    with pytest.raises(dataclasses.FrozenInstanceError):
        told.gaps[0].gap_s = 0.0
