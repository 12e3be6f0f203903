"""A live validation's plan and verdicts; the servers themselves are for the opt-in test."""

from __future__ import annotations

from itertools import pairwise

import pytest

from calibrate.live import (
    Bed,
    Cell,
    Check,
    Load,
    Preemptions,
    Setting,
    cells,
    checks,
    figures,
    orders,
    rates,
    scheduler_config,
)


def test_a_servers_flags() -> None:
    flags = Bed().server_flags(Setting(512, num_gpu_blocks_override=100))
    pairs = dict(pairwise(flags))
    assert pairs["--max-num-batched-tokens"] == "512"
    assert pairs["--num-gpu-blocks-override"] == "100"
    assert {"--no-async-scheduling", "--enable-logging-iteration-details", "--no-enable-prefix-caching"} <= set(flags)
    assert "--num-gpu-blocks-override" not in Bed().server_flags(Setting(512))


def test_a_benchmarks_flags() -> None:
    flags = Bed(seed=7).bench_flags(Load(30, 2.5, input_len=100))
    pairs = dict(pairwise(flags))
    assert (pairs["--request-rate"], pairs["--num-prompts"], pairs["--random-input-len"]) == ("2.5", "30", "100")
    assert pairs["--seed"] == "7"
    assert "inf" in Bed().bench_flags(Load(30))
    ramped = Bed().bench_flags(Load(30, ramp=(1, 12)))
    assert ramped[ramped.index("--ramp-up-end-rps") + 1] == "12"
    assert "--request-rate" not in ramped


def test_the_simulated_server_is_the_real_one() -> None:
    config = scheduler_config(Bed(), Setting(512, 100), 100)
    assert (config.max_num_batched_tokens, config.num_gpu_blocks, config.block_size) == (512, 100, 32)
    assert not config.async_scheduling
    assert not config.enable_prefix_caching


def test_rates_go_up_to_saturation() -> None:
    assert rates(6.66) == (2.3, 4.7, None)


def test_cells() -> None:
    starved = Cell(Setting(512, 100), Load(60))
    found = cells((128, 512), (2.0, 5.0, None), 60, starved)
    assert len(found) == 2 * 3 + 1
    assert found[-1] is starved
    assert len({cell.name for cell in found}) == len(found)
    assert [cell.load.num_prompts for cell in found[:3]] == [26, 60, 60]  # slow runs are not longer than fast ones


RESULT = {
    "output_throughput": 100.0, "mean_ttft_ms": 50.0, "mean_tpot_ms": 10.0, "p50_itl_ms": 9.0, "p99_itl_ms": 40.0,
}  # fmt: skip


def test_figures_are_read_by_vllms_keys() -> None:
    assert figures({**RESULT, "other": "x"}) == {
        "throughput": 100.0, "ttft_mean": 50.0, "tpot_mean": 10.0, "itl_p50": 9.0, "itl_p99": 40.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("simulated", "inside"), [(89.9, False), (90.1, True), (115.0, True), (131.9, True), (132.1, False)]
)
def test_inside_is_the_real_range_and_a_tenth(simulated: float, inside: bool) -> None:
    assert Check("cell", "throughput", (100.0, 120.0, 110.0), simulated).inside is inside


def test_every_figure_of_every_cell_is_checked() -> None:
    real = {"a": [figures(RESULT)] * 3, "b": [figures(RESULT)]}
    made = checks(real, {"a": figures(RESULT), "b": {**figures(RESULT), "itl_p99": 80.0}})
    assert len(made) == 10
    assert [(check.cell, check.figure) for check in made if not check.inside] == [("b", "itl_p99")]


def test_orders_are_of_pairs_under_one_load() -> None:
    made = [
        Check("small", "itl_p99", (10.0, 11.0), 12.0),
        Check("middle", "itl_p99", (20.0, 21.0), 30.0),
        Check("large", "itl_p99", (20.5, 25.0), 28.0),
        Check("other", "itl_p99", (1.0, 1.0), 1.0),
    ]
    names = {"small": ("128", "inf"), "middle": ("512", "inf"), "large": ("2048", "inf"), "other": ("128", "2")}
    found = {(order.lower, order.higher): (order.clear, order.kept) for order in orders(made, names, ["itl_p99"])}
    assert found == {("128", "512"): (True, True), ("128", "2048"): (True, True), ("512", "2048"): (False, False)}


@pytest.mark.parametrize(("simulated", "inside"), [(39, False), (40, True), (66, True), (67, False)])
def test_preemptions(simulated: int, inside: bool) -> None:
    assert Preemptions("starved", (50, 55), simulated).inside is inside


def test_preemptions_that_the_real_server_never_had() -> None:
    assert Preemptions("x", (0, 0), 3).error == float("inf")
    assert Preemptions("x", (0, 0), 0).inside
