"""`elpase profiles`: every profile that ships, with what a user chooses by."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from sim.cli.main import main
from sim.cli.profiles import describe
from sim.latency import DEFAULT_PROFILE, profile_names


def told(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    with pytest.raises(SystemExit) as caught:
        main(["profiles", *args])
    assert caught.value.code == 0
    return capsys.readouterr().out


def test_json_has_every_profile(capsys: pytest.CaptureFixture[str]) -> None:
    listed = json.loads(told(capsys, "--json"))
    assert [row["name"] for row in listed] == profile_names()
    default = next(row for row in listed if row["name"] == DEFAULT_PROFILE)
    assert (default["gpu"], default["engine"], default["engine_version"]) == ("h100", "vllm", "0.23.0")
    assert default["domain"]["num_tokens"][1] >= 8192


@pytest.mark.parametrize("columns", ["40", "80", "200"])
def test_the_table_has_every_profile_on_one_line_of_80(
    columns: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    lines = told(capsys).splitlines()
    assert lines[0].split() == ["profile", "GPUs", "tokens", "sequences", "context", "error"]
    table = lines[1 : lines.index("")]
    assert [line.split()[0] for line in table] == profile_names()
    assert {len(line) for line in lines[: len(table) + 1]} == {len(lines[0])}
    assert max(map(len, lines)) <= 80
    assert f"Default: {DEFAULT_PROFILE}" in lines[-1]
    row = next(line for line in table if line.startswith("h100-llama-2-70b-tp4 "))
    assert row.split()[1:4] == ["4", "x", "h100"]


def test_held_out_errors_stand_before_the_fits_own(constant_profile) -> None:
    profile = replace(constant_profile(0.01), residuals={"decode": {"median_abs": 0.01}})
    assert describe(profile)["held_out_error"] is None
    assert describe(profile)["fit_errors"] == {"decode": 0.01}
    assert describe(replace(profile, held_out={"median_abs": 0.03}))["held_out_error"] == 0.03
