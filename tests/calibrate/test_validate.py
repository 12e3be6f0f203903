"""validate: the same formulas on both sides, the client replayed and never the server, every bad file told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from calibrate.cli_validate import command
from calibrate.validate import COLUMNS, FIGURES, figures, read_measured, validate
from sim.cli.main import main
from sim.config import EngineConfig
from sim.experiment import simulate
from sim.latency import Profile
from workloads import Request

PROFILE = Profile.load("h100-qwen3-14b")

HEAD = ",".join(COLUMNS)
GOOD = "0.1,0.1,900,20,0.06,0.3"


def measured(
    profile: Profile = PROFILE, *, every_s: float = 0.1, requests: int = 60, cap: int | None = None
) -> pd.DataFrame:
    """A run of a server that is exactly as the profile says."""
    todo = [Request(str(i), i * every_s, 900 + i, 20) for i in range(requests)]
    done = simulate(todo, None, profile, max_in_flight=cap).requests
    table = done[["arrival_s", "send_s", "prompt_tokens", "output_tokens"]].copy()
    table["ttft_s"] = done["first_token_s"] - done["send_s"]
    table["e2e_s"] = done["finish_s"] - done["send_s"]
    return table


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    path = tmp_path / "open.csv"
    measured().to_csv(path, index=False)
    return path


def test_figures_by_hand() -> None:
    """Two requests: 11 tokens in 1.2 s, 1 token in 0.3 s. TPOT is the first one's only, (1.2 - 0.2) / 10."""
    run = pd.DataFrame({"send_s": [1.0, 2.0], "output_tokens": [11, 1], "ttft_s": [0.2, 0.3], "e2e_s": [1.2, 0.3]})
    found = figures(run)
    assert found["throughput"] == pytest.approx(12 / 1.3)
    assert found["ttft_mean"] == found["ttft_p50"] == pytest.approx(0.25)
    assert found["ttft_p99"] == pytest.approx(0.2 + 0.99 * 0.1)
    assert found["tpot_mean"] == found["tpot_p99"] == pytest.approx(0.1)
    assert found["e2e_mean"] == pytest.approx(0.75)


def test_a_perfect_server_has_no_errors(csv: Path) -> None:
    comparison = validate(read_measured(csv), PROFILE)
    assert comparison.errors == {name: pytest.approx(0.0, abs=1e-9) for name in FIGURES}


def test_a_server_of_half_the_speed() -> None:
    """Real steps twice as long: simulated TPOT is half of it, -50 %; TTFT less so, as the client's part is the same."""
    law = PROFILE.law
    times = ("step_s", "row_s", "weight_read_s", "token_s", "context_s", "mixed_context_s", "pair_s")
    slow = replace(PROFILE, law=replace(law, **{name: 2 * getattr(law, name) for name in times}))
    errors = validate(measured(slow, every_s=3.0, requests=10), PROFILE).errors
    assert errors["tpot_mean"] == pytest.approx(-0.5, abs=1e-6)
    assert -0.5 < errors["ttft_mean"] < -0.35


def test_when_the_real_client_could_send_is_not_replayed() -> None:
    """At a cap, send_s carries the real server's speed; only arrivals may be used."""
    run = measured(every_s=0.001, cap=2)
    expected = validate(run, PROFILE, max_in_flight=2).simulated
    late = run.assign(send_s=run["send_s"] * 3)
    assert validate(late, PROFILE, max_in_flight=2).simulated == expected


def test_the_cap_is_kept() -> None:
    run = measured(every_s=0.001, cap=2)
    assert run["send_s"].iloc[-1] > 5, "60 requests, two at a time"
    assert validate(run, PROFILE, max_in_flight=2).errors["throughput"] == pytest.approx(0, abs=1e-9)
    assert validate(run, PROFILE).errors["throughput"] > 2


def test_flags_stand_above_the_profile() -> None:
    """Two at a time by the server's own limit: requests queue there instead, and TTFT tells."""
    run = measured(every_s=0.001)
    limited = validate(run, PROFILE, EngineConfig(max_num_seqs=2))
    assert limited.errors["ttft_mean"] > 1


def test_json(csv: Path) -> None:
    done = CliRunner().invoke(command, ["--measured", str(csv), "--max-in-flight", "256", "--json"])
    assert done.exit_code == 0, done.output
    printed = json.loads(done.stdout)
    assert set(printed) == {"real", "simulated", "errors"}
    assert all(set(part) == set(FIGURES) for part in printed.values())
    assert printed["real"]["e2e_mean"] == pytest.approx(measured()["e2e_s"].mean())


def test_no_request_has_a_second_token(tmp_path: Path) -> None:
    """There is no TPOT then, and no NaN in the JSON."""
    path = tmp_path / "open.csv"
    path.write_text(f"{HEAD}\n0.1,0.1,900,1,0.06,0.06", encoding="utf-8")
    done = CliRunner().invoke(command, ["--measured", str(path), "--json"])
    assert "NaN" not in done.stdout
    assert json.loads(done.stdout)["errors"]["tpot_mean"] is None
    done = CliRunner().invoke(command, ["--measured", str(path)])
    assert done.exit_code == 0
    assert "nan" not in done.output
    assert done.stderr == "note: no TPOT or ITL where no answer has a second token: -, in JSON null\n"


def test_the_clients_cap_has_vllm_benchs_name_too(csv: Path) -> None:
    ours, theirs = (
        CliRunner().invoke(command, ["--measured", str(csv), flag, "2", "--json"]).stdout
        for flag in ("--max-in-flight", "--max-concurrency")
    )
    assert ours == theirs
    assert ours != CliRunner().invoke(command, ["--measured", str(csv), "--json"]).stdout


def test_table(csv: Path) -> None:
    done = CliRunner().invoke(
        command, ["--measured", str(csv), "--max-num-batched-tokens", "512", "--max-num-seqs", "64"]
    )
    assert done.exit_code == 0, done.output
    for label in ("Output throughput", "Mean TTFT", "Median TTFT", "P99 TTFT", "Mean TPOT", "P99 TPOT", "Mean E2EL"):
        assert label in done.output


def one_line(args: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as stopped:
        main(["validate", *args])
    assert stopped.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "open.csv: empty"),
        (HEAD, "open.csv: no rows"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n2023,1,2", "open.csv:1: missing column arrival_s, expected columns"),
        (HEAD.replace(",", ";") + "\n" + GOOD.replace(",", ";"), "open.csv:1: missing column arrival_s"),
        (f"{HEAD}\n{GOOD}\n0.2,0.2,900,20,0.06", "open.csv:3: e2e_s: got"),
        (f"{HEAD}\n{GOOD}\n0.2,0.2,900,20,0.06,0.3,7,8", "open.csv: not a CSV file"),
        (f"{HEAD}\n{GOOD}\n-0.2,0.2,900,20,0.06,0.3", "open.csv:3: arrival_s: got '-0.2', expected seconds >= 0"),
        (f"{HEAD}\n0.2,0.2,0,20,0.06,0.3", "open.csv:2: prompt_tokens: got '0', expected an integer >= 1"),
        (f"{HEAD}\n0.2,0.2,9.5,20,0.06,0.3", "open.csv:2: prompt_tokens: got '9.5', expected an integer >= 1"),
        (f"{HEAD}\n0.2,0.2,900,many,0.06,0.3", "open.csv:2: output_tokens: got 'many', expected an integer >= 1"),
        (f"{HEAD}\n0.2,0.2,900,20,nan,0.3", "open.csv:2: ttft_s: got 'nan', expected seconds >= 0"),
        (f"{HEAD}\n0.2,inf,900,20,0.1,0.3", "open.csv:2: send_s: got 'inf', expected seconds >= 0"),
        (f"{HEAD}\n0.2,0.2,900,20,0.1,1e300", "open.csv:2: e2e_s: got '1e300', expected seconds >= 0, at most 1"),
        (f"{HEAD}\n0.2,0.2,900,20,0.4,0.3", "open.csv:2: e2e_s: got '0.3', expected at least ttft_s"),
        (f"{HEAD}\n0.2,0.2,900,20,0,0", "open.csv:2: ttft_s: got '0', expected seconds > 0"),
        (f"{HEAD}\n0.2,0.2,99999,20,0.1,0.3", "open.csv:2: 1 of 1 request did not finish"),
        (f"{HEAD}\n2,2,99999,20,0.1,0.3\n1,1,9,20,0.1,0.3", "open.csv:2: 1 of 2 requests did not finish"),
        (f"{HEAD}\n{GOOD}\n0.2,0.1,900,20,0.1,0.3", "open.csv:3: send_s: got '0.1', expected at least arrival_s"),
    ],
)
def test_bad_files(content: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "open.csv"
    path.write_text(content, encoding="utf-8")
    assert told in one_line(["--measured", str(path)], capsys)


def test_binary_and_missing_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "open.csv"
    assert "open.csv" in one_line(["--measured", str(path)], capsys)
    path.write_bytes(b"\x1f\x8b\x08\x00\xff\xfe")
    assert "open.csv: not a CSV file" in one_line(["--measured", str(path)], capsys)
    packed = tmp_path / "open.csv.gz"
    packed.write_bytes(b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\x00\x01")
    assert "open.csv.gz" in one_line(["--measured", str(packed)], capsys)
    assert str(tmp_path) in one_line(["--measured", str(tmp_path)], capsys)


@pytest.mark.parametrize("content", ["[" * 100_000, '{"a": ' + "9" * 5000 + "}", "{", "[]", ""])
def test_a_result_that_is_no_json(content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bench.json").write_text(content)
    told = one_line(["--measured", str(tmp_path / "bench.json")], capsys)
    assert told.startswith(f"elpase: error: {tmp_path / 'bench.json'}")
    assert "expected a result of vllm bench serve" in told


def test_unknown_profile(csv: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "profile: got 'b300', expected" in one_line(["--measured", str(csv), "--profile", "b300"], capsys)


def test_rows_are_replayed_in_order_of_arrival(csv: Path, tmp_path: Path) -> None:
    shuffled = tmp_path / "shuffled.csv"
    pd.read_csv(csv).sample(frac=1, random_state=0).to_csv(shuffled, index=False)
    pd.testing.assert_frame_equal(read_measured(shuffled).drop(columns="line"), read_measured(csv).drop(columns="line"))


def test_a_run_whose_clock_counts_since_1970_is_the_same_run(csv: Path, tmp_path: Path) -> None:
    later = pd.read_csv(csv)
    later[["arrival_s", "send_s"]] += 1_700_000_000
    later.to_csv(tmp_path / "later.csv", index=False)
    ours, theirs = (validate(read_measured(path), PROFILE) for path in (csv, tmp_path / "later.csv"))
    assert theirs.errors == {name: pytest.approx(error, abs=1e-3) for name, error in ours.errors.items()}
