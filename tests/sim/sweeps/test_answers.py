"""What a table says, on tables whose answer can be seen."""

from __future__ import annotations

import pandas as pd
import pytest

from sim.errors import InputError
from sim.sweeps.answers import best_by_load, crossings, front, load_axis, parse_slo, sensitivity, within


def test_the_front_has_whoever_nobody_beats(table) -> None:
    rows = table(
        {"output_throughput": 100, "p99_itl_ms": 50, "p99_ttft_ms": 500},  # beaten by the next in all three
        {"output_throughput": 110, "p99_itl_ms": 40, "p99_ttft_ms": 400},
        {"output_throughput": 90, "p99_itl_ms": 40, "p99_ttft_ms": 100},  # the best TTFT
        {"output_throughput": 110, "p99_itl_ms": 40, "p99_ttft_ms": 400},  # an equal of the second
        {"output_throughput": 200, "p99_itl_ms": 900, "p99_ttft_ms": 9000},  # the best throughput
        {"status": "skipped"},
    )
    assert front(rows) == [False, True, True, True, True, False]


def test_bounds_are_columns() -> None:
    assert parse_slo(["ttft_p99=2000", "itl_p99=50", "e2el_mean=9e3", "tpot_median=20", "ttft_p99.9=5000"]) == {
        "p99_ttft_ms": 2000, "p99_itl_ms": 50, "mean_e2el_ms": 9000, "p50_tpot_ms": 20, "p99.9_ttft_ms": 5000,
    }  # fmt: skip


@pytest.mark.parametrize("pair", ["ttft=5", "ttft_p98=5", "p99_ttft=5", "ttft_p99", "ttft_p99=x", "ttft_p99=-1", ""])
def test_bounds_that_cannot_be_read(pair: str) -> None:
    with pytest.raises(InputError, match="--slo: got"):
        parse_slo([pair])


def test_within_is_all_bounds_and_a_row_that_did_not_run_is_not(table) -> None:
    rows = table({"p99_itl_ms": 50}, {"p99_itl_ms": 50.1}, {"status": "failed"}).to_dict("records")
    assert [within(row, {"p99_itl_ms": 50, "p99_ttft_ms": 500}) for row in rows] == [True, False, False]


class TestSensitivity:
    def effect(self, rows: pd.DataFrame, axes: dict[str, list[object]], knob: str):
        return next(effect for effect in sensitivity(rows, axes) if effect.knob == knob)

    def test_a_knob_above_the_concurrency_does_nothing(self, table) -> None:
        seqs = [8, 16, 32, 64]
        rows = table(*({"max_num_seqs": n, "p99_itl_ms": min(n, 16)} for n in seqs))
        effect = self.effect(rows, {"max_num_seqs": seqs}, "max_num_seqs")
        assert (effect.binding, effect.idle_from) == (True, 16)
        assert effect.changes["p99_itl_ms"] == 1.0
        assert effect.changes["output_throughput"] == 0.0

    def test_not_binding_is_the_same_in_every_column(self, table) -> None:
        axes = {"watermark": [0.0, 0.1], "max_num_seqs": [1, 2]}
        rows = table(*({"watermark": w, "max_num_seqs": n, "p99_itl_ms": n} for w in (0.0, 0.1) for n in (1, 2)))
        assert self.effect(rows, axes, "watermark").binding is False
        assert self.effect(rows, axes, "max_num_seqs").binding is True

    def test_it_binds_where_it_binds_beside_any_of_the_others(self, table) -> None:
        axes = {"rate_scale": [1, 2], "max_num_seqs": [4, 8, 16]}
        rows = table(
            *({"rate_scale": r, "max_num_seqs": n, "p99_itl_ms": min(n, 4 * r)} for r in (1, 2) for n in (4, 8, 16))
        )
        assert self.effect(rows, axes, "max_num_seqs").idle_from == 8

    def test_the_order_is_the_values_not_the_users(self, table) -> None:
        rows = table(*({"max_num_seqs": n, "p99_itl_ms": min(n, 16)} for n in (64, 8, 32, 16)))
        assert self.effect(rows, {"max_num_seqs": [64, 8, 32, 16]}, "max_num_seqs").idle_from == 16

    def test_in_how_many_settings_it_held_requests_back(self, table) -> None:
        """Under explain's names, where there is one."""
        told = ["max_num_seqs, KV blocks", "KV blocks", ""]
        rows = table(*({"max_num_seqs": n, "p99_itl_ms": n, "binding": told[n]} for n in range(3)))
        assert self.effect(rows, {"max_num_seqs": [0, 1, 2]}, "max_num_seqs").at_work == 1
        rows = rows.rename(columns={"max_num_seqs": "num_gpu_blocks_override"})
        assert self.effect(rows, {"num_gpu_blocks_override": [0, 1, 2]}, "num_gpu_blocks_override").at_work == 2
        rows = rows.rename(columns={"num_gpu_blocks_override": "block_size"})
        assert self.effect(rows, {"block_size": [0, 1, 2]}, "block_size").at_work is None

    def test_nothing_is_said_of_a_knob_with_one_value_that_ran(self, table) -> None:
        rows = table({"max_num_seqs": 1}, {"max_num_seqs": 2, "status": "skipped"})
        assert sensitivity(rows, {"max_num_seqs": [1, 2]}) == []


AXES = {"max_num_batched_tokens": [512, 2048], "request_rate": [1.0, 5.0]}


class TestCrossing:
    """Two budgets: 10 + load against 16 - load: equal at load 3."""

    @pytest.fixture
    def rows(self, table) -> pd.DataFrame:
        latency = {512: lambda load: 10 + load, 2048: lambda load: 16 - load}
        return table(
            *(
                {"max_num_batched_tokens": b, "request_rate": r, "mean_e2el_ms": latency[b](r)}
                for b in AXES["max_num_batched_tokens"]
                for r in AXES["request_rate"]
            )
        )

    def runs(self, rows: pd.DataFrame, *noise: float) -> pd.DataFrame:
        """Each setting's runs: what its row says, and so much to it, the same for all settings at one seed."""
        return pd.DataFrame(
            {"setting": number, "seed": seed, "mean_e2el_ms": row["mean_e2el_ms"] + add}
            for number, row in rows.iterrows()
            for seed, add in enumerate(noise)
        )

    def test_the_best_at_each_load_and_where_it_changes(self, rows) -> None:
        bests = best_by_load(rows, self.runs(rows, 0.0), AXES, "mean_e2el_ms")
        assert [(b.load, b.knobs["max_num_batched_tokens"], b.value) for b in bests] == [
            (1.0, 512, 11),
            (5.0, 2048, 11),
        ]
        assert bests[0].ahead == pytest.approx(15 / 11 - 1)
        assert bests[0].sure is None
        [crossing] = crossings(rows, bests, AXES, "mean_e2el_ms")
        assert crossing.at == pytest.approx(3.0)
        assert (crossing.low, crossing.high) == (1.0, 5.0)

    def test_common_random_numbers_make_a_small_lead_sure(self, rows) -> None:
        """The seeds differ by 100 ms, the settings by 4: told apart, as each seed is asked of both."""
        [first, _] = best_by_load(rows, self.runs(rows, 0.0, 100.0, 50.0), AXES, "mean_e2el_ms")
        assert first.sure is True

    def test_a_lead_within_chance(self, rows) -> None:
        runs = self.runs(rows, 0.0, 0.0, 0.0)
        runs.loc[runs["setting"] == 0, "mean_e2el_ms"] += [-9.0, 9.0, 0.0]
        [first, _] = best_by_load(rows, runs, AXES, "mean_e2el_ms")
        assert first.sure is False

    def test_more_is_better_of_rates(self, rows) -> None:
        rows["output_throughput"] = [1.0, 2.0, 3.0, 1.0]
        runs = rows.assign(setting=rows.index, seed=0)
        bests = best_by_load(rows, runs, AXES, "output_throughput")
        assert [b.knobs["max_num_batched_tokens"] for b in bests] == [2048, 512]

    def test_without_one_load_axis_nothing_is_said(self, rows) -> None:
        assert load_axis({"request_rate": [1, 2], "rate_scale": [1, 2]}) is None
        assert load_axis({"request_rate": [1, 2], "rate_scale": [1]}) == "request_rate"
        assert best_by_load(rows, self.runs(rows, 0.0), {"request_rate": [1.0, 5.0]}, "mean_e2el_ms") == []
