"""`from sim import sweep`: a study in a few lines, its results as frames."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sim import EngineConfig, InputError, Sweep, sweep
from sim.sweeps.plots import plot_sweep

LOAD = {"num_prompts": 20, "request_rate": 10.0, "input_len": 100, "output_len": 5}


@pytest.fixture
def small(constant_profile):
    return lambda vary, **more: sweep("random", vary, profile=constant_profile(0.01), jobs=1, **LOAD, **more)


def test_a_study_in_a_few_lines(small) -> None:
    result = small(
        {"max_num_seqs": [1, 4], "rate_scale": [1.0, 2.0]}, replications=2, slo={"ttft_p99": 500}, goodput={"ttft": 100}
    )
    assert isinstance(result, Sweep)
    assert result.table.shape[0] == 4
    assert result.runs.shape[0] == 8
    assert result.table["front"].any()
    assert result.best.knobs == {"max_num_seqs": 4}
    assert [best.load for best in result.bests] == [1.0, 2.0]
    assert "Largest change along each knob" in str(result)


def test_numpy_values_and_a_profile_as_a_knob(constant_profile, tmp_path) -> None:
    slow, quick = constant_profile(0.02), constant_profile(0.01)
    result = sweep(
        "random", {"max_num_seqs": np.array([1, 2])}, EngineConfig(async_scheduling=False), quick, jobs=1, **LOAD
    )
    assert result.table["max_num_seqs"].to_list() == [1, 2]
    with pytest.raises(InputError, match="two settings are the same"):  # they have one name
        sweep("random", {"profile": [slow, quick]}, jobs=1, **LOAD)


def test_settings_are_asked_the_same_questions(small) -> None:
    """Common random numbers: the same requests at the same times, whatever the server; twice as fast, the same gaps."""
    result = small({"max_num_seqs": [1, 4], "rate_scale": [1.0, 2.0]}, replications=3)
    offered = result.runs.pivot_table("offered_rps", ["seed"], ["max_num_seqs", "rate_scale"])
    assert offered[1, 1.0].to_list() == offered[4, 1.0].to_list()
    assert offered[1, 2.0].to_list() == pytest.approx([2 * rate for rate in offered[1, 1.0]])
    assert result.runs["total_output_tokens"].nunique() == 1


def test_a_workload_flag_that_does_not_exist(small) -> None:
    with pytest.raises(InputError, match="workload: got 'num_prompt'"):
        sweep("random", {"max_num_seqs": [1]}, num_prompt=3)


@pytest.mark.parametrize(
    "vary",
    [
        {"max_num_seqs": [1, 4]},
        {"max_num_seqs": [1, 4], "rate_scale": [1.0, 2.0]},
        {"max_num_seqs": [1, 4], "watermark": [0.0, 0.1]},
    ],
    ids=str,
)
def test_the_picture_is_drawn_and_the_same_each_time(small, vary, tmp_path) -> None:
    result = small(vary, slo={"itl_p99": 30})
    for name in ("one.svg", "two.svg"):
        plot_sweep(result, tmp_path / name)
    text = (tmp_path / "one.svg").read_text()
    assert text == (tmp_path / "two.svg").read_text()
    assert len(text) > 1000


def test_a_picture_of_a_sweep_that_was_stopped_before_its_first_run(small, tmp_path) -> None:
    result = small({"max_num_seqs": [1, 4]})
    plot_sweep(replace(result, table=result.table.assign(status="not run")), tmp_path / "none.svg")
    assert len((tmp_path / "none.svg").read_text()) > 1000


def test_where_no_setting_can_run_the_reason_is_raised(small) -> None:
    with pytest.raises(InputError, match="max_num_seqs: got 0, expected 1 or more"):
        small({"max_num_seqs": [0]})


def test_saved_files(small, tmp_path) -> None:
    small({"max_num_seqs": [1, 4]}, out=tmp_path).save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "bench_sweep", "sweep.csv", "sweep.json", "sweep.parquet", "sweep.png", "tasks",
    ]  # fmt: skip
