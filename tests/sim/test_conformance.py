"""The core decides as vLLM 0.32 did, at every recorded step."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from sim.conformance import Conformance, compare, read_cases
from sim.errors import InputError

TESTS = Path(__file__).parents[1]
GOLDEN = sorted((TESTS / "golden").glob("*.jsonl.gz"))
RECORDED = sorted((TESTS / "recorded").glob("*.jsonl.gz"))


@pytest.mark.parametrize("path", GOLDEN + RECORDED, ids=lambda path: path.name.split(".")[0])
def test_every_recorded_step_of_the_real_scheduler_is_equal(path):
    result = Conformance()
    for case in read_cases(path):
        result.add(case)
    assert result.first_difference is None
    assert result.equal == result.steps


def test_the_golden_files_hold_what_the_readme_claims():
    """369,968 steps in 706 cases; 189,339 of them synchronous and without speculation."""
    cases = [case for path in GOLDEN for case in read_cases(path)]
    plain = [case for case in cases if not case["config"]["async_scheduling"] and not speculates(case)]
    assert (len(cases), sum(len(case["steps"]) for case in cases)) == (706, 369_968)
    assert (len(plain), sum(len(case["steps"]) for case in plain)) == (277, 189_339)
    own = [case for path in RECORDED for case in read_cases(path)]
    assert (len(own), sum(len(case["steps"]) for case in own)) == (65, 9_866)


def speculates(case: dict) -> bool:
    return bool(case["config"].get("num_speculative_tokens"))


def first_case(family: str = "basic") -> dict:
    return next(read_cases(next(path for path in GOLDEN if path.name.startswith(family))))


@pytest.mark.parametrize(
    ("key", "change"),
    [
        ("n", lambda step: dict(reversed(step["n"].items()))),
        ("free", lambda step: step["free"] + 1),
        ("finished", lambda step: [*step["finished"], "r0"]),
        ("waiting", lambda step: [*step["waiting"], "r0"]),
        ("preempted", lambda _: ["r0"]),
        ("admitted", lambda _: {"r0": 16}),
        ("drafts", lambda _: {"r0": 1}),
    ],
)
def test_each_compared_key_is_really_compared(key, change):
    path = next(path for path in GOLDEN if path.name.startswith("pressure"))
    case, at = next(
        (case, i) for case in read_cases(path) for i, step in enumerate(case["steps"]) if len(step["n"]) > 1
    )
    case["steps"][at][key] = change(case["steps"][at])
    difference = compare(case)
    assert difference is not None
    assert (difference.step, difference.key) == (at, key)
    assert set(difference.state_before) == {"running", "waiting", "free"}


def test_a_missing_and_a_surplus_step_are_differences():
    case = first_case()
    last = case["steps"].pop()
    assert compare(case).key == "steps"
    case["steps"] += [last, last]
    assert compare(case).step == len(case["steps"]) - 1


def test_a_setting_that_is_not_known_is_skipped_by_name():
    result = Conformance()
    case = first_case()
    case["config"] |= {"num_speculative_tokens": 2, "spec_method": "oracle"}
    result.add(case)
    case["config"] = first_case()["config"] | {"no_such_setting": 1}
    result.add(case)
    assert result.skipped == {"spec_method oracle": 1, "no_such_setting": 1}
    assert not result.ok, "nothing was compared, so nothing was shown"


@pytest.mark.parametrize(
    ("content", "line", "told"),
    [
        ("", None, "no cases"),
        ("not json\n", 1, "not a recorded case"),
        ('{"case": "a"}\n', 1, "config"),
        ("[1, 2]\n", 1, "not a recorded case"),
        ("7\n", 1, "not a recorded case"),
        ("[" * 100_000, 1, "not a recorded case"),
    ],
)
def test_a_bad_file_is_told_in_one_line(tmp_path, content, line, told):
    path = tmp_path / "bad.jsonl"
    path.write_text(content)
    with pytest.raises(InputError) as error:
        list(read_cases(path))
    assert error.value.line == line
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_a_truncated_gzip_is_told_in_one_line(tmp_path):
    path = tmp_path / "cut.jsonl.gz"
    whole = gzip.compress((json.dumps(first_case()) + "\n").encode())
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"cut\.jsonl\.gz:1: not a file of recorded cases"):
        list(read_cases(path))
