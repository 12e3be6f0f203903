"""New random cases against a real vLLM, where one is named; the generator's promises in any case."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from calibrate.live_conformance import conform_live
from sim.conformance import Conformance, compare, read_cases
from sim.core.config import SchedulerConfig
from sim.errors import InputError
from sim.random_cases import REGIMES, random_cases

VLLM = os.environ.get("ELPASE_VLLM_PYTHON")


def test_cases_are_the_same_for_the_same_seed_and_cover_all_features():
    cases = list(random_cases(160, 3))
    assert cases == list(random_cases(160, 3))
    assert cases != list(random_cases(160, 4))
    assert {case["case"].split("-")[0] for case in cases} == set(REGIMES)
    configs = [case["config"] for case in cases]
    assert {config["async_scheduling"] for config in configs} == {True, False}
    assert {config.get("spec_method", "ngram") for config in configs if "num_speculative_tokens" in config} == {
        "ngram",
        "eagle",
        "draft_model",
    }
    for key in ("max_num_active_seqs", "max_num_scheduled_tokens", "long_prefill_token_threshold_adaptive"):
        assert any(key in config for config in configs), key
    for key in ("stop_at", "abort_step"):
        assert any(key in request for case in cases for request in case["requests"]), key


def test_every_case_is_one_that_vllm_takes():
    """Settings are valid, ids differ, and a prompt leaves room for a token."""
    for case in random_cases(400, 11):
        config = SchedulerConfig(**case["config"])
        assert len({request["id"] for request in case["requests"]}) == len(case["requests"])
        for request in case["requests"]:
            assert 1 <= sum(n for _, n in request["prompt"]) < config.max_model_len


def test_cases_can_be_driven_to_their_end():
    """Without a recording the first step is the first difference, so the driver gets that far with every case."""
    for case in random_cases(40, 5):
        difference = compare({**case, "steps": []})
        assert difference is not None
        assert (difference.step, difference.key) == (0, "steps")


def test_an_interpreter_without_vllm_is_told(tmp_path):
    with pytest.raises(InputError, match="no such interpreter"):
        conform_live(Conformance(), tmp_path / "python", 1, 0, lambda: None)


@pytest.mark.skipif(not VLLM, reason="ELPASE_VLLM_PYTHON names no interpreter with vLLM")
def test_new_cases_of_a_real_vllm_are_equal(tmp_path):
    result = Conformance()
    kept = tmp_path / "kept.jsonl.gz"
    refused = conform_live(result, Path(str(VLLM)), 24, 2026, lambda: None, kept)
    assert result.first_difference is None
    assert result.cases + len(refused) == 24
    assert result.equal == result.steps > 1_000
    assert len(list(read_cases(kept))) == result.cases
