"""`elpase validate` with files of many runs, pictures, and the profiles that are shipped for such truths."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from calibrate.derive_from_tables import SHIPPED
from calibrate.plots_run import plot_curves
from sim.cli.main import main
from sim.experiment import simulate
from sim.latency import Profile, profile_names
from workloads import Request

HEAD = "isl,osl,model,strategy,rate,dur_s,rps,lat_mean_s,ttft_mean,ttft_p50,itl_mean,itl_p50,out_tps"
SWEEP = f"""{HEAD}
64,32,Qwen/Qwen3-14B,synchronous,,3,1.5,0.5,20,19,12,12,50
64,32,Qwen/Qwen3-14B,throughput,,3,40,0.6,30,29,17,17,60
64,32,Qwen/Qwen3-14B,constant,5.5,3,5.4,0.7,21,20,12,12,70
64,32,Qwen/Qwen3-14B,constant,39.5,3,30,0.9,31,30,14,14,90
"""


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    path = tmp_path / "sweep.csv"
    path.write_text(SWEEP, encoding="utf-8")
    return path


def run(args: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stopped:
        main(["validate", *args])
    out, err = capsys.readouterr()
    return int(stopped.value.code or 0), out, err


def test_one_object_per_run(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(["--measured", str(sweep), "--select", "constant", "--json"], capsys)
    assert code == 0
    printed = [json.loads(line) for line in out.splitlines()]
    assert [entry["run"] for entry in printed] == ["64/32 constant 5.50/s", "64/32 constant 39.50/s"]
    for entry in printed:
        assert set(entry) == {"run", "real", "simulated", "errors"}
        for name, error in entry["errors"].items():
            assert error == pytest.approx(entry["simulated"][name] / entry["real"][name] - 1)


def test_constant_rates_below_a_load(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(["--measured", str(sweep), "--max-load", "0.8", "--json"], capsys)
    assert code == 0
    assert set(json.loads(out)) == {"real", "simulated", "errors"}, "one run is left"
    code, _, err = run(["--measured", str(sweep), "--max-load", "0.01"], capsys)
    assert code == 2
    assert "none of 4 runs is selected, first 64/32 synchronous" in err


def test_a_table_of_many_runs(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(["--measured", str(sweep), "--jobs", "2"], capsys)
    assert code == 0
    for label in ("64/32", "Mean ITL", "median", "largest"):
        assert label in out.replace("\n", " ") or label.split()[-1] in out


def test_a_picture_needs_curves(sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "curves.png"
    code, _, err = run(["--measured", str(sweep), "--select", "synchronous", "--plot", str(picture)], capsys)
    assert code == 2
    assert "--plot: expected one run with a timeseries.csv" in err
    assert not picture.exists()


def test_a_picture_of_curves(tmp_path: Path) -> None:
    """Drawn over themselves, the curves of a run are no distance apart."""
    frames = simulate([Request(str(i), 0.1 * i, 500, 40) for i in range(30)]).frames
    measured = frames.steps[["end_s", "running", "waiting"]].rename(columns={"end_s": "t"})
    path = tmp_path / "curves.svg"
    plot_curves("a run", measured, frames, path)
    text = path.read_text(encoding="utf-8")
    assert text.startswith("<?xml")
    assert "differ by 0.0 on average, waiting ones by 0.0" in text or path.stat().st_size > 10_000


def test_help_names_the_live_check(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(["--help"], capsys)
    assert code == 0
    assert "live" in out
    assert "--max-num-batched-tokens" in out


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_profile_is_what_its_recipe_says(name: str) -> None:
    profile, recipe = Profile.load(name), SHIPPED[name]
    assert name in profile_names()
    assert profile.tensor_parallel_size == recipe.tensor_parallel_size
    assert recipe.model in ("", profile.model)
    assert profile.provenance["command"] == f"python -m calibrate.derive_from_tables DATA_FOLDER {name}"
    assert profile.held_out["median_abs"] < 0.05
    assert name.startswith(profile.gpu), "named after the device whose kernels were timed"
    for share in (rate["share of the device's limit"] for rate in profile.provenance["implied"].values()):
        assert 0.2 < share < 1, "no rate is beyond the device's limit"


def test_flags_that_do_nothing_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(["--profile", "h100-qwen3-14b", "live", "--vllm-python", "x"], capsys)
    assert code == 2
    assert "--profile does nothing before live" in err
