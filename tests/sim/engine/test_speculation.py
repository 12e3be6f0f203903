"""Speculation in a whole run: how many steps an answer takes, what a client sees of it, and whose luck is whose."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest

from sim.config import EngineConfig
from sim.experiment import ExtrapolationWarning, simulate
from sim.report.console import bench_table
from workloads import Request

K = 3
SYNC, ASYNC = "ngram", "ngram_gpu"
"""Neither has a drafter that takes time; the one runs without async scheduling, the other with it."""


def config(method: str, rates: float | tuple[float, ...], **changes) -> EngineConfig:
    said = {"max_num_batched_tokens": 512, "max_num_seqs": 64, "max_model_len": 2048, "num_gpu_blocks_override": 4001}
    drafts = {"spec_method": method, "spec_tokens": K, "draft_acceptance": rates}
    return EngineConfig(**{**said, **drafts, **changes})


def run(requests, settings, profile, **changes):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExtrapolationWarning)  # nobody measured drafts
        return simulate(requests, settings, profile, **changes)


def alone(output: int) -> list[Request]:
    return [Request("a", 0.0, 10, output)]


@pytest.fixture
def profile(constant_profile):
    return constant_profile(0.1)


@pytest.mark.parametrize("method", [SYNC, ASYNC])
@pytest.mark.parametrize(
    ("rates", "output", "steps"),
    [
        (1.0, 1 + 5 * (K + 1), 6),  # the prompt's step, then all drafts and one token each
        (1.0, 1 + 5 * (K + 1) - 2, 6),  # the last ones are for nobody
        (0.0, 6, 6),
        ((1.0, 1.0, 0.0), 1 + 4 * 3, 5),
    ],
)
def test_steps_of_an_answer(profile, method, rates, output, steps):
    result = run(alone(output), config(method, rates), profile)
    row = result.requests.iloc[0]
    useful = result.steps[result.steps["sampled"] > 0]
    assert (row.status, row.output_tokens, len(useful)) == ("finished", output, steps)
    assert row.finish_s - row.first_token_s >= (steps - 1) * 0.1 - 1e-9
    assert result.steps["sampled"].sum() == output


def test_a_client_sees_one_chunk_per_step(profile):
    """As vLLM's bench: a gap per chunk, of several tokens; TPOT divides by the tokens."""
    result = run(alone(1 + 5 * (K + 1)), config(SYNC, 1.0), profile)
    gaps = result.itls.row(0)
    step_s = 0.1
    assert gaps == pytest.approx([step_s] * 5)
    summary = result.summary()
    assert summary["mean_itl_ms"] == pytest.approx(1000 * step_s)
    assert summary["mean_tpot_ms"] == pytest.approx(1000 * 5 * step_s / 20)
    assert summary["total_output_tokens"] == 21


def test_what_vllms_bench_tells_of_drafts(profile):
    """16 verified drafts of 3; the first of each is accepted, the second in none, so the third in none."""
    summary = run(alone(33), config(SYNC, (1.0, 0.0, 0.0)), profile).summary()
    assert summary["spec_decode_num_drafts"] == 16
    assert summary["spec_decode_draft_tokens"] == 48
    assert summary["spec_decode_accepted_tokens"] == 16
    assert summary["spec_decode_acceptance_rate"] == pytest.approx(100 / 3)
    assert summary["spec_decode_acceptance_length"] == 2.0
    assert summary["spec_decode_per_position_acceptance_rates"] == [1.0, 0.0, 0.0]
    assert "spec_decode_num_drafts" not in simulate(alone(5), None, profile).summary()


def test_the_console_prints_them_as_vllm_does(profile):
    """Labels and formats of benchmark() in vllm/benchmarks/serve.py."""
    table = bench_table(run(alone(33), config(SYNC, (1.0, 0.0, 0.0)), profile).summary())
    expected = [
        "Speculative Decoding".center(50, "-"),
        "{:<40} {:<10.2f}".format("Acceptance rate (%):", 100 / 3),
        "{:<40} {:<10.2f}".format("Acceptance length:", 2.0),
        "{:<40} {:<10}".format("Drafts:", 16),
        "{:<40} {:<10}".format("Draft tokens:", 48),
        "{:<40} {:<10}".format("Accepted tokens:", 16),
        "Per-position acceptance (%):",
        *("{:<40} {:<10.2f}".format(f"  Position {i}:", rate) for i, rate in enumerate((100.0, 0.0, 0.0))),
        "=" * 50,
    ]
    assert table.splitlines()[-len(expected) :] == expected


def crowd(n: int = 200) -> list[Request]:
    return [Request(f"r{i}", 0.05 * i, 20 + i % 7, 40) for i in range(n)]


@pytest.mark.parametrize("method", [SYNC, ASYNC])
def test_drafts_fare_as_it_was_said(profile, method):
    result = run(crowd(), config(method, (0.8, 0.5, 0.2)), profile)
    summary = result.summary()
    assert summary["spec_decode_num_drafts"] > 2500
    assert summary["spec_decode_per_position_acceptance_rates"] == pytest.approx([0.8, 0.5, 0.2], abs=0.03)
    assert (result.requests["output_tokens"] == 40).all()
    steps = result.steps
    assert steps["num_draft_tokens"].sum() == summary["spec_decode_draft_tokens"]
    assert steps["num_accepted_tokens"].sum() == summary["spec_decode_accepted_tokens"]
    assert steps["sampled"].sum() == 200 * 40


def chunks(result) -> dict[str, int]:
    return dict(zip(result.requests["request_id"], np.diff(result.itls.offsets), strict=True))


def test_a_request_has_its_own_luck(profile):
    """The same seed, the same number of steps for its answer, whoever is beside it; another seed, another one."""
    settings = config(SYNC, 0.6)
    full = chunks(run(crowd(60), settings, profile))
    every_third = chunks(run(crowd(60)[::3], settings, profile))
    assert every_third == {name: full[name] for name in every_third}
    backwards = [Request(f"r{59 - i}", 0.0, 20, 40) for i in range(60)]
    assert chunks(run(backwards, settings, profile)) == full
    assert chunks(run(crowd(60), settings, profile, seed=1)) != full


def test_the_same_seed_gives_the_same_bytes(profile):
    settings = config(ASYNC, 0.6)
    first, second = (json.dumps(run(crowd(40), settings, profile, seed=9).summary()) for _ in range(2))
    assert first == second


def test_drafts_are_gone_with_a_preemption(profile):
    """Few blocks: requests are preempted, come back, and still get every token once."""
    settings = config(ASYNC, 0.6, num_gpu_blocks_override=40, max_model_len=256)
    result = run([Request(f"r{i}", 0.0, 60, 100) for i in range(12)], settings, profile, check=True)
    assert result.requests["preemptions"].sum() > 5
    assert (result.requests["output_tokens"] == 100).all()
    assert result.steps["sampled"].sum() == 1200


def test_decodes_that_verify_are_decodes(profile):
    """12 decodes of 4 tokens are no prompt; they run as one graph, which for 48 tokens is not padded."""
    steps = run([Request(f"r{i}", 0.0, 10, 41) for i in range(12)], config(SYNC, 1.0), profile, check=True).steps
    verifying = steps[steps["num_draft_tokens"] > 0]
    assert (verifying["decodes"] == verifying["num_seqs"]).all()
    assert (verifying["prefill_tokens"] == 0).all()
    assert (verifying["chunk_tokens"] == 0).all()
    assert (verifying["num_draft_tokens"] == 3 * verifying["num_seqs"]).all()


def tpot_ms(in_flight: int, **drafts) -> float:
    """Mean TPOT of Qwen3-14B on an H100, so many requests at a time."""
    requests = [Request(f"r{i}", 0.0, 200, 160) for i in range(2 * in_flight)]
    return run(requests, EngineConfig(**drafts), "h100-qwen3-14b", max_in_flight=in_flight).summary()["mean_tpot_ms"]


def test_speculation_pays_in_small_batches_and_costs_in_large_ones():
    """Few sequences wait for weights to be read, which drafts share; many already keep the arithmetic busy."""
    drafts = {"spec_method": "eagle3", "spec_model": "x", "spec_tokens": 4, "draft_acceptance": (0.7, 0.45, 0.25, 0.15)}
    assert tpot_ms(4, **drafts) < 0.6 * tpot_ms(4)
    assert tpot_ms(400, **drafts) > 1.1 * tpot_ms(400)
