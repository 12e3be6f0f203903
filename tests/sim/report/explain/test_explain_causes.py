"""Runs with one thing wrong are explained by that thing and by nothing else, and the advice mends them."""

from __future__ import annotations

import dataclasses
import re

import pytest

from sim.latency.profile import Profile
from sim.report.explain import Explanation, Finding, explain

EXPECTED = {
    "kv_starved": ["thrash", "kv_blocks"],
    "kv_blocks": ["kv_blocks"],
    "mixed lengths": ["kv_blocks"],
    "budget_too_small": ["budget_too_small"],
    "budget_too_large": ["budget_too_large"],
    "healthy": [],
    "max_num_seqs": ["max_num_seqs"],
    "max_num_active_seqs": ["max_num_seqs"],
    "max_concurrency": ["max_concurrency"],
    "overload": ["overload"],
    "overload, full cache": ["overload"],
    "thrash": ["thrash", "kv_blocks"],
    "admission_gate": ["admission_gate"],
    "watermark": ["watermark"],
    "threshold": ["long_prefill_token_threshold"],
    "unchunked": ["chunked_prefill_off"],
}
STATES = {
    "healthy": "stable",
    "budget_too_large": "stable",
    "threshold": "stable",
    "kv_blocks": "backlogged",
    "watermark": "backlogged",
    "unchunked": "backlogged",
    "overload": "overloaded",
    "overload, full cache": "overloaded",
}


@pytest.fixture(scope="session")
def told_of(run_of):
    """A case's explanation, with settings of one's own on top."""

    def make(name: str, **changes) -> Explanation:
        return explain(run_of(name, **changes).frames)

    return make


def finding(told: Explanation, cause: str) -> Finding:
    return next(f for f in told.findings if f.cause == cause)


def text(found: Finding) -> str:
    return " ".join([found.what, *found.because, *found.change])


@pytest.mark.parametrize("name", EXPECTED)
def test_the_right_cause_is_named_and_no_other(name, told_of) -> None:
    assert [f.cause for f in told_of(name).findings] == EXPECTED[name]


@pytest.mark.parametrize("name", STATES)
def test_the_load(name, told_of) -> None:
    assert told_of(name).saturation.state == STATES[name]


def test_a_healthy_run_has_nothing_to_change(told_of) -> None:
    told = told_of("healthy")
    assert told.findings == ()
    assert not any(knob.binding for knob in told.knobs)
    assert told.thrash.preemptions == 0
    seqs = next(knob for knob in told.knobs if knob.name == "max_num_seqs")
    # Above the workload's concurrency: never at work, and the reason is told.
    assert (seqs.value, seqs.steps, seqs.share) == ("1,024", 0, 0.0)
    assert re.fullmatch(r"at most \d+ ran at once", seqs.why)


class TestArithmetic:
    """The sums are shown, and are right."""

    def test_seats_against_blocks(self, told_of) -> None:
        """400 tokens are 25 blocks; 256 of them ask for 6,400 of 1,000."""
        said = text(finding(told_of("kv_starved"), "thrash"))
        assert "256 x 25 = 6,400 blocks; there are 1,000: at most 40 run to their end" in said
        assert "max_num_seqs 40 instead of 256: 40 x 25 = 1,000 blocks at their ends" in said
        assert "watermark 0.02" in said

    def test_what_a_small_budget_leaves(self, told_of) -> None:
        said = text(finding(told_of("budget_too_small"), "budget_too_small"))
        decodes, left, steps = re.search(r"256 - (\d+) = (\d+) tokens .* take (\d+) steps", said).groups()
        assert int(decodes) + int(left) == 256
        assert int(steps) == -(-600 // int(left))

    def test_a_larger_budget_is_priced_for_the_worst_gap(self, told_of, run_of) -> None:
        """The run with the advised budget has no gap longer than was foretold, nor much shorter ones."""
        said = text(finding(told_of("budget_too_large"), "budget_too_large"))
        budget, bound_ms = map(int, re.search(r"max_num_batched_tokens (\d+).*at most about (\d+) ms", said).groups())
        longest_ms = (
            1e3 * run_of("budget_too_large", max_num_batched_tokens=budget, max_num_seqs=budget).itls.values_s.max()
        )
        assert longest_ms == pytest.approx(bound_ms, rel=0.15)

    def test_overload_counts_who_came_and_who_was_taken(self, told_of, run_of) -> None:
        requests = run_of("overload").requests
        last_s = requests["arrival_s"].max()
        taken = int((requests["scheduled_s"] <= last_s).sum())
        said = text(finding(told_of("overload"), "overload"))
        assert f"{len(requests)} requests came" in said
        assert float(re.search(r"come ([\d.]+) times", said)[1]) == pytest.approx(len(requests) / taken, rel=0.03)


class TestAdvice:
    """Whoever follows it is rid of the cause."""

    @pytest.mark.parametrize("name", ["kv_starved", "thrash", "kv_blocks"])
    def test_preemptions_end(self, name, told_of) -> None:
        """And with them the freezes of those who lost their blocks."""
        before = told_of(name)
        seqs = int(re.search(r"max_num_seqs (\d+) instead", " ".join(before.findings[0].change))[1])
        after = told_of(name, max_num_seqs=seqs)
        assert before.thrash.preemptions >= 20
        assert after.thrash.preemptions == 0
        assert after.itl.max_s < 0.2 * before.itl.max_s

    @pytest.mark.parametrize(
        ("name", "changes"),
        [
            ("kv_blocks", {"num_gpu_blocks": 2001}),
            ("budget_too_small", {"max_num_batched_tokens": 1024}),
            ("budget_too_large", {"max_num_batched_tokens": 512, "max_num_seqs": 512}),
            ("max_num_seqs", {"max_num_seqs": 34}),
            ("max_num_active_seqs", {"max_num_active_seqs": 34}),
            ("max_concurrency", {"max_in_flight": 34}),
            ("watermark", {"watermark": 0.02}),
            ("threshold", {"long_prefill_token_threshold": 0}),
            ("unchunked", {"enable_chunked_prefill": True}),
        ],
    )
    def test_the_cause_is_gone(self, name, changes, told_of) -> None:
        before = told_of(name).findings[0]
        advised = " ".join(before.change)
        number = next(iter(changes.values()))
        assert name == "kv_blocks" or (f"{number:,}" if not isinstance(number, bool) else "on") in advised
        assert before.cause not in [f.cause for f in told_of(name, **changes).findings]


def test_lengths_that_differ_leave_room_for_the_long_ones(told_of) -> None:
    """Prompts of 100 and 900 tokens with 200 of output: 19 and 69 blocks, 44 on average, deviating by 25."""
    said = text(finding(told_of("mixed lengths"), "kv_blocks"))
    number, blocks = re.search(
        r"max_num_seqs (\d+) instead of 256: \1 x 4\d \+ 2 x 25 x sqrt\(\1\) for long ones = (9\d\d|1,000) blocks", said
    ).groups()
    assert int(blocks.replace(",", "")) <= 1000
    assert told_of("mixed lengths", max_num_seqs=int(number)).thrash.preemptions == 0


class TestThrash:
    def test_share_and_cycles(self, told_of, run_of) -> None:
        frames = run_of("thrash").frames
        thrash = told_of("thrash").thrash
        recomputed = int(frames.requests["recomputed_tokens"].sum())
        # 100 + 1,000 tokens each, of which the last is never computed.
        assert thrash.useful_tokens == 80 * 1099
        assert thrash.recomputed_share == recomputed / (80 * 1099)
        assert thrash.most_preemptions == frames.requests["preemptions"].max() >= 3
        assert thrash.cycling_requests == (frames.requests["preemptions"] >= 3).sum()

    def test_a_few_preemptions_are_no_thrash(self, told_of) -> None:
        told = told_of("kv_blocks")
        assert not told.thrash.thrashing
        assert told.thrash.preemptions > 0


class TestWithoutItsProfile:
    """What needs prices is not told, and why is."""

    def other(self, **changes) -> Profile:
        return dataclasses.replace(Profile.load("h100-qwen3-14b"), **changes)

    def test_another_profile_is_refused(self, run_of) -> None:
        with pytest.raises(ValueError, match="profile: got 'mine', expected h100-qwen3-14b, which priced the run"):
            explain(run_of("healthy").frames, self.other(name="mine"))

    def test_another_law_of_the_same_name_is_noticed(self, run_of) -> None:
        profile = self.other()
        slower = dataclasses.replace(profile, law=dataclasses.replace(profile.law, step_s=1.0))
        told = explain(run_of("max_num_seqs").frames, slower)
        assert told.notes == ("nothing is priced: the run was priced with another file of the name h100-qwen3-14b",)
        assert [f.cause for f in told.findings] == ["max_num_seqs"]
        assert "profile's law" not in text(told.findings[0])

    def test_a_profile_of_ones_own(self, run_of, constant_profile) -> None:
        from sim.experiment import simulate
        from workloads import Request

        frames = simulate([Request("a", 0.0, 10, 3)], None, constant_profile(0.1)).frames
        assert explain(frames).notes == (
            "nothing is priced: constant is not a shipped profile, and its file was not given",
        )
        assert explain(frames, constant_profile(0.1)).notes == ()
