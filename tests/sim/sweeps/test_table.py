"""Means and confidence intervals, against the textbook's."""

from __future__ import annotations

import math

import pytest

from sim.sweeps.settings import Setting, grid
from sim.sweeps.study import Outcome
from sim.sweeps.table import half_width, record, runs_table, settings_table


def test_half_width_is_students() -> None:
    """Of 4, 6, 8: deviation 2, t(0.975, 2) = 4.3027."""
    assert half_width([4.0, 6.0, 8.0]) == pytest.approx(4.3027 * 2 / math.sqrt(3), rel=1e-4)
    assert half_width([5.0, 5.0]) == 0.0
    assert math.isnan(half_width([5.0]))


def summary(throughput: float) -> dict[str, object]:
    counts = "rejected preemptions preempted_requests recomputed_tokens prefix_hit_rate steps mean_batch"
    sizes = "mean_step_tokens peak_running peak_waiting peak_kv_usage extrapolated_share"
    sim = dict.fromkeys(f"{counts} {sizes}".split(), 1)
    load = {"busy_share": 0.5, "queued_share": 0.25, "ordering_only": True, "held_back_by": {"tokens": 0.125}}
    pace = {"offered_rps": None, "kept_up": 0.5}
    return {
        "output_throughput": throughput,
        "request_goodput": None,
        "sim": {**sim, "load": load},
        "pace": pace,
        "binding": ["max_num_seqs"],
    }


def test_a_record_is_flat_numbers() -> None:
    numbers = record(summary(7.0))
    assert numbers["output_throughput"] == 7.0
    assert (numbers["held_by_tokens"], numbers["ordering_only"], numbers["kept_up"]) == (0.125, 1.0, 0.5)
    assert math.isnan(numbers["request_goodput"])
    assert math.isnan(numbers["offered_rps"])
    assert all(isinstance(value, float) for value in numbers.values())


def test_a_row_per_setting_with_means_and_intervals() -> None:
    settings = grid({"max_num_seqs": [1, 2, 3]})
    outcomes = [
        [Outcome("ok", summary(4.0)), Outcome("ok", summary(8.0))],
        [Outcome("skipped", reason="too small")] * 2,
        [Outcome("ok", summary(4.0)), Outcome("failed", reason="boom")],
    ]
    runs = runs_table(settings, outcomes, seed=5)
    assert runs["seed"].to_list() == [5, 6] * 3
    table = settings_table(settings, runs)
    assert table["status"].to_list() == ["ok", "skipped", "failed"]
    assert table["reason"].to_list() == ["", "too small", "boom"]
    assert table["replications"].to_list() == [2, 0, 1]
    assert table["binding"].to_list() == ["max_num_seqs", "", "max_num_seqs"]
    assert table["output_throughput"].to_list()[0] == 6.0
    # t(0.975, 1) = 12.706; the deviation of 4 and 8 is 2 sqrt(2).
    assert table["output_throughput_ci95"].to_list()[0] == pytest.approx(12.706 * 2, rel=1e-4)
    assert math.isnan(table["output_throughput"][1])


def test_one_replication_has_no_intervals() -> None:
    settings = grid({"max_num_seqs": [1]})
    table = settings_table(settings, runs_table(settings, [[Outcome("ok", summary(4.0))]], 0))
    assert not [name for name in table.columns if name.endswith("_ci95")]


def test_a_knob_that_some_settings_do_not_say() -> None:
    """Records of a parameter file: the table has them all before its numbers, whole numbers whole."""
    settings = [Setting(), Setting(server={"spec_method": "ngram", "spec_tokens": 3})]
    runs = runs_table(settings, [[Outcome("ok", summary(4.0))]] * 2, 0)
    table = settings_table(settings, runs)
    assert list(table.columns[:3]) == ["spec_method", "spec_tokens", "status"]
    assert table["spec_method"].to_list() == [None, "ngram"]
    assert table["spec_tokens"].map(repr).to_list() == ["None", "3"]
    assert table["output_throughput"].to_list() == [4.0, 4.0]
