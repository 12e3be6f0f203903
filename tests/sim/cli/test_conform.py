"""`elpase conform`: a flag that does nothing is refused."""

from __future__ import annotations

import json

import pytest


@pytest.mark.parametrize("flag", ["--cases", "--seed", "--keep"])
def test_flags_of_live_cases_need_live(flag: str, elpase) -> None:
    assert elpase("conform", "a.jsonl", flag, "3").error.startswith(f"{flag} goes with --live")


def test_one_case_that_is_skipped(elpase, tmp_path) -> None:
    case = {"case": "a", "config": {"no_such_setting": 1}, "requests": [], "steps": []}
    file = tmp_path / "a.jsonl"
    file.write_text(json.dumps(case))
    assert "\nskipped 1 case: no_such_setting is not known to this version\n" in elpase("conform", file).out
    file.write_text(2 * f"{json.dumps(case)}\n")
    assert "\nskipped 2 cases: " in elpase("conform", file).out


CONFIG = {"max_num_batched_tokens": 64, "max_num_seqs": 2, "max_model_len": 64, "num_gpu_blocks": 9}
REQUEST = {"id": "r0", "arrival_step": 0, "arrival_time": 0.0, "prompt": [[1, 8]], "max_tokens": 2, "priority": 0}


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ({"case": 1}, "case: not what is recorded there, got 1"),
        ({"config": 3}, "config: not what is recorded there, got 3"),
        ({"config": {"max_num_seqs": 2}}, "config: not the settings of a scheduler"),
        ({"config": {**CONFIG, "max_num_seqs": "x"}}, "config: not the settings of a scheduler"),
        ({"config": {**CONFIG, "max_num_seqs": 0}}, "max_num_seqs: got 0, expected at least 1"),
        ({"requests": 4}, "requests: not what is recorded there, got 4"),
        ({"requests": [3]}, "got 3, expected requests: an object"),
        ({"requests": [{}]}, "requests: id: a key is missing"),
        ({"requests": [{**REQUEST, "prompt": [3]}]}, "requests: prompt: got [3], expected pairs [content id, tokens]"),
        ({"requests": [{**REQUEST, "stop_at": "x"}]}, "requests: stop_at: not what is recorded there, got 'x'"),
        ({"requests": [{**REQUEST, "abort_step": None}]}, "requests: abort_step: not what is recorded there"),
        ({"steps": [7]}, "got 7, expected steps: an object"),
        ({"steps": [{}]}, "steps: finished: a key is missing"),
    ],
)
def test_a_case_of_something_else(parts: dict[str, object], told: str, elpase, tmp_path) -> None:
    case = {"case": "a", "config": CONFIG, "requests": [REQUEST], "steps": [{"finished": []}], **parts}
    file = tmp_path / "a.jsonl"
    file.write_text(f"{json.dumps(case)}\n")
    assert elpase("conform", file).error.startswith(f"{file}:1: {told}")
