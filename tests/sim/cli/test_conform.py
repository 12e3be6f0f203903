"""`elpase conform`: a flag that does nothing is refused."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("flag", ["--cases", "--seed", "--keep"])
def test_flags_of_live_cases_need_live(flag: str, elpase) -> None:
    assert elpase("conform", "a.jsonl", flag, "3").error.startswith(f"{flag} goes with --live")
