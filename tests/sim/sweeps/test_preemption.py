"""Which mode of preemption is best where: who is compared with whom, what is lost, and what the ceiling is."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest

from sim import EngineConfig, InputError, Profile, compare_preemption, sweep
from sim.sweeps.preemption.comparison import KV, LINK, MODE, SEQS, ceilings, comparison_study, recompute_s, wins
from sim.sweeps.preemption.plots import plot_comparison
from sim.sweeps.study import Study, whole_workload

TIGHT = {"num_prompts": 12, "input_len": 64, "output_len": 200}
BLOCKS = 40
"""640 tokens, of which twelve requests would hold 12 x 264 at their ends, and 768 at their beginnings."""


def base(**more: object) -> Study:
    return Study(**{"workload": whole_workload("random", TIGHT), **more})


def study(modes=("recompute", "swap", "offload"), host_gib=20.0, engine=None, **axes) -> Study:
    return comparison_study(
        base(engine=engine or EngineConfig()), modes, {KV: [], LINK: [], SEQS: [], **axes}, host_gib
    )


@pytest.fixture(scope="module")
def tight():
    """Twelve requests at once in forty blocks, over a link of 1 GB/s and one of 50; real prices."""
    return compare_preemption(
        "random", config=EngineConfig(max_model_len=512), kv_blocks=[BLOCKS, 2000], pcie_bandwidth=[1.0, 50.0],
        max_num_seqs=[2, 64], jobs=1, **TIGHT,
    )  # fmt: skip


class TestStudy:
    def test_a_link_is_no_part_of_what_copies_nothing(self) -> None:
        knobs = [setting.knobs for setting in study(**{KV: [100], LINK: [16.0, 50.0]}).settings]
        assert [(one[MODE], one.get(LINK)) for one in knobs] == [
            ("recompute", None), ("swap", 16.0), ("swap", 50.0), ("offload", 16.0), ("offload", 50.0),
        ]  # fmt: skip
        assert all(one[KV] == 100 for one in knobs)

    def test_host_memory_is_the_same_for_both_that_use_it(self) -> None:
        """--swap-space is per GPU, --kv-offloading-size over all of them."""
        knobs = {
            s.knobs[MODE]: s.knobs for s in study(host_gib=8.0, engine=EngineConfig(tensor_parallel_size=2)).settings
        }
        assert knobs["swap"]["swap_space"] == 4.0
        assert knobs["offload"]["kv_offloading_size"] == 8.0
        assert knobs["recompute"].keys() == {MODE}

    @pytest.mark.parametrize(
        ("asked", "told"),
        [
            (
                {"modes": ["offlod"]},
                "modes: got 'offlod', expected any of recompute, swap, offload; did you mean 'offload'",
            ),
            ({"modes": []}, "kv_preemption: expected at least one value"),
            ({"modes": ["swap", "swap"]}, "each value once"),
            ({KV: [5, 5]}, "num_gpu_blocks_override: got 5, expected each value once"),
            ({"modes": ["recompute"], LINK: [16.0]}, "pcie_bandwidth: got 16.0, expected a mode that copies"),
            ({"engine": EngineConfig(kv_preemption="swap")}, "kv_preemption: a comparison takes it from modes"),
            ({"engine": EngineConfig(kv_offloading_size=3)}, "kv_offloading_size: a comparison takes it from host"),
        ],
        ids=str,
    )
    def test_refused(self, asked, told) -> None:
        with pytest.raises(InputError, match=told):
            study(**asked)


class TestAnswers:
    @staticmethod
    def table(*rows: dict[str, object]) -> pd.DataFrame:
        whole = {KV: 100, SEQS: math.nan, LINK: math.nan, "status": "ok", "p99_itl_ms": 10.0, "p99_ttft_ms": 10.0}
        return pd.DataFrame([{**whole, **row} for row in rows])

    def test_recompute_competes_at_every_link(self) -> None:
        table = self.table(
            {MODE: "recompute", "output_throughput": 100.0, "p99_itl_ms": 20.0},
            {MODE: "swap", LINK: 16.0, "output_throughput": 90.0, "p99_itl_ms": 30.0},
            {MODE: "swap", LINK: 50.0, "output_throughput": 125.0, "p99_itl_ms": 19.9},
        )
        found = {(win.place[LINK], win.column): win for win in wins(table)}
        assert len(found) == 2 * 3
        assert found[16.0, "output_throughput"].mode == "recompute"
        assert found[16.0, "output_throughput"].lead == pytest.approx(0.1)
        assert found[50.0, "output_throughput"].mode == "swap"
        assert found[50.0, "output_throughput"].lead == pytest.approx(0.2)
        assert found[16.0, "p99_itl_ms"].lead == pytest.approx(0.5)
        assert found[50.0, "p99_itl_ms"].even
        assert found[50.0, "p99_ttft_ms"].even

    def test_a_mode_that_did_not_run_does_not_win(self) -> None:
        table = self.table(
            {MODE: "recompute", "output_throughput": 100.0},
            {MODE: "offload", "output_throughput": math.nan, "status": "failed"},
        )
        assert [(win.mode, win.lead) for win in wins(table)] == [("recompute", None)] * 3

    def test_what_bounds_throughput(self) -> None:
        held = dict.fromkeys(("held_by_blocks", "held_by_gate", "held_by_watermark", "held_by_preemption"), 0.0)
        rows = [
            (KV, 1, [(8, 80.0, 8, 0), (16, 100.0, 12, 3), (64, 90.0, 12, 9)]),  # the KV, with thrash
            (KV, 2, [(8, 80.0, 8, 0), (16, 160.0, 16, 0)]),  # the knob
            (KV, 3, [(8, 80.0, 8, 0), (16, 80.5, 9, 0)]),  # what comes
        ]
        table = self.table(*(
            {MODE: "recompute", KV: kv, SEQS: seqs, "output_throughput": rate, "peak_running": peak,
             "preemptions": preempted, **held}
            for _, kv, line in rows for seqs, rate, peak, preempted in reversed(line)
        ))  # fmt: skip
        found = {one.setting[KV]: one for one in ceilings(table)}
        assert [(found[kv].enough, found[kv].most, found[kv].limit) for kv in (1, 2, 3)] == [
            (16, 100.0, "KV"), (16, 160.0, "max_num_seqs"), (8, 80.5, "load"),
        ]  # fmt: skip
        assert found[1].thrash == pytest.approx(0.1)
        assert found[2].thrash == 0.0

    def test_computing_again_costs_what_its_tokens_cost(self) -> None:
        """A linear law: so much per token and nothing else, so neither the victims' number nor the step matters."""
        profile = Profile.load("h100-qwen3-14b")
        law = type(profile.law).linear(step_s=0.01, token_s=1e-4)
        linear = type(profile)(**{**{n: getattr(profile, n) for n in profile.__dataclass_fields__}, "law": law})
        row = {"preemptions": 4.0, "recomputed_tokens": 1000.0, "mean_batch": 17.3}
        assert recompute_s(row, linear) == pytest.approx(1000 * 1e-4)
        assert recompute_s({**row, "recomputed_tokens": 0.0}, linear) == 0.0
        assert math.isnan(recompute_s({**row, "recomputed_tokens": math.nan}, linear))


class TestRun:
    def row(self, tight, mode, link=None, kv=BLOCKS, seqs=64) -> pd.Series:
        table = tight.table
        here = (table[MODE] == mode) & (table[KV] == kv) & (table[SEQS] == seqs)
        return table[here & (table[LINK].isna() if link is None else table[LINK] == link)].iloc[0]

    def test_who_computes_and_who_copies(self, tight) -> None:
        assert len(tight.table) == 2 * 2 * 5
        again, swapped, offloaded = (
            self.row(tight, "recompute"),
            self.row(tight, "swap", 1.0),
            self.row(tight, "offload", 1.0),
        )
        assert again["preemptions"] > 0
        assert again["recomputed_tokens"] > 0 == again["host_bytes"] == again["host_copy_s"]
        assert again["lost_s"] == again["recompute_s"] > 0
        assert swapped["recomputed_tokens"] == 0 == swapped["recompute_s"]
        assert swapped["lost_s"] == swapped["host_copy_s"] > 0
        assert swapped["host_bytes"] == 2 * swapped["host_bytes_out"] > 0
        assert swapped["counterfactual"]
        assert offloaded["host_bytes_out"] > 0
        assert not offloaded["counterfactual"]

    def test_a_slower_link_costs_swap_in_proportion(self, tight) -> None:
        slow, quick = self.row(tight, "swap", 1.0), self.row(tight, "swap", 50.0)
        per_byte = [row["host_copy_s"] / row["host_bytes"] for row in (slow, quick)]
        assert 30 < per_byte[0] / per_byte[1] <= 50  # the launch takes as long on both
        assert slow["output_throughput"] < quick["output_throughput"]

    def test_with_room_for_all_modes_are_one(self, tight) -> None:
        rows = [
            self.row(tight, mode, link, 2000) for mode, link in (("recompute", None), ("swap", 1.0), ("offload", 50.0))
        ]
        assert {row["preemptions"] for row in rows} == {0}
        assert len({row["output_throughput"] for row in rows[:2]}) == 1
        assert all(win.even for win in tight.wins if win.place[KV] == 2000)

    def test_the_kv_is_the_ceiling(self, tight) -> None:
        limits = {(one.setting[KV], one.setting[MODE]): one.limit for one in tight.ceilings}
        assert limits[BLOCKS, "recompute"] == limits[BLOCKS, "swap"] == "KV"
        assert limits[2000, "recompute"] == "load"

    def test_best_by_names_figures(self, tight) -> None:
        slow = self.row(tight, "swap", 1.0)
        assert "output_throughput" not in slow["best_by"]
        named = {name for told in tight.table["best_by"] for name in told.split(",") if name}
        assert named == {win.column for win in tight.wins if not win.even}

    def test_text_and_files(self, tight, tmp_path) -> None:
        text = str(tight)
        assert "* a counterfactual: vLLM's V0 swapped, V1 does not." in text
        assert f"{BLOCKS} blocks, recompute: " in text
        assert "the KV is the ceiling, not the knob" in text
        tight.save(tmp_path)
        assert sorted(path.name for path in tmp_path.iterdir()) == [
            f"preemption.{end}" for end in ("csv", "json", "parquet", "png")
        ]
        table, document = (
            pd.read_csv(tmp_path / "preemption.csv"),
            json.loads((tmp_path / "preemption.json").read_text()),
        )
        assert len(table) == len(document["rows"]) == len(pd.read_parquet(tmp_path / "preemption.parquet")) == 20
        assert {"elpase_version", "vllm_semantics", "trace", "profile", "seed", "best_by"} <= set(table)
        assert len(document["wins"]) == len(tight.wins) == 2 * 2 * 2 * 3
        assert document["provenance"]["profile"] == "h100-qwen3-14b"

    def test_the_picture_is_the_same_each_time(self, tight, tmp_path) -> None:
        for name in ("one.svg", "two.svg"):
            plot_comparison(tight, tmp_path / name)
        text = (tmp_path / "one.svg").read_text()
        assert text == (tmp_path / "two.svg").read_text()

    def test_a_place_that_cannot_be_is_a_row_that_says_why(self, tmp_path) -> None:
        few = compare_preemption(
            "random", ["recompute"], EngineConfig(max_model_len=512), kv_blocks=[10, BLOCKS], jobs=1, **TIGHT
        )
        assert few.table["status"].to_list() == ["skipped", "ok"]
        assert "skipped: max_model_len: got 512" in str(few)
        assert np.isnan(few.table["lost_share"].iloc[0])
        few.save(tmp_path)


@pytest.mark.parametrize("trace", ["", "none.csv"])
def test_where_nothing_can_run_there_is_the_reason_and_no_table(trace: str) -> None:
    for ask in (lambda: compare_preemption(trace, jobs=1), lambda: sweep(trace, {"max_num_seqs": [1, 2]}, jobs=1)):
        with pytest.raises(InputError, match="TRACE: got ''" if not trace else "none.csv: file: got 'No such file"):
            ask()
