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
