"""The sweep's and the comparison's pictures: what is in them can be read."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Annotation

from sim import EngineConfig, compare_preemption, sweep
from sim.sweeps import plots
from sim.sweeps.preemption import plots as preemption_plots

LOAD = {"num_prompts": 6, "input_len": 64, "output_len": 5}


@pytest.fixture
def drawn(monkeypatch):
    """Draw with one of the modules; the figure instead of a file."""

    def draw(module, result) -> Figure:
        kept: list[Figure] = []
        monkeypatch.setattr(module, "save_figure", lambda figure, _path: kept.append(figure))
        (module.plot_sweep if module is plots else module.plot_comparison)(result, None)
        kept[0].draw_without_rendering()
        return kept[0]

    return draw


@pytest.fixture
def crowded(constant_profile):
    """Ten settings on the front: two on each of five places, of which the last two are side by side at the right."""
    vary = {"max_num_seqs": [100, 200, 400, 800, 1600], "watermark": [0.0, 0.1]}
    result = sweep("random", vary, profile=constant_profile(0.01), jobs=1, **LOAD)
    places = np.repeat([100.0, 200.0, 300.0, 399.0, 400.0], 2)
    made = result.table.assign(output_throughput=places, p99_itl_ms=places, p99_ttft_ms=10 * places, front=True)
    return replace(result, table=made)


def names(panel) -> list[Annotation]:
    return [text for text in panel.texts if isinstance(text, Annotation)]


def test_names_are_inside_the_axes_and_apart_from_each_other(drawn, crowded) -> None:
    for panel in drawn(plots, crowded).axes:
        boxes = [name.get_window_extent() for name in names(panel)]
        assert len(boxes) == 10
        assert max(box.x1 for box in boxes) <= panel.get_window_extent().x1
        assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))


def test_one_setting_on_the_front(crowded) -> None:
    """However many there are."""
    table = crowded.table.assign(front=np.arange(len(crowded.table)) == 3)
    told = plots._headline(replace(crowded, table=table))
    assert told == f"1 of {len(table)} settings is on the front of throughput against both latencies"


def test_a_name_says_what_its_colour_does_not(drawn, crowded) -> None:
    figure = drawn(plots, crowded)
    [legend] = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["watermark 0.0", "watermark 0.1", "on the front"]
    told = [(name.get_text(), name.get_color()) for name in names(figure.axes[0])]
    assert sorted(told) == sorted(
        (str(seqs), color) for seqs in (100, 200, 400, 800, 1600) for color in plots.PALETTE[:2]
    )


def test_where_colours_do_not_suffice_a_name_says_all(drawn, constant_profile) -> None:
    vary = {"max_num_seqs": list(range(1, 15)), "watermark": [k / 100 for k in range(13)]}
    result = sweep("random", {name: values[:2] for name, values in vary.items()},
                   profile=constant_profile(0.01), jobs=1, **LOAD)  # fmt: skip
    rows = pd.concat([result.table.head(1)] * (14 * 13), ignore_index=True)
    knobs = pd.MultiIndex.from_product(vary.values(), names=vary).to_frame(index=False)
    table = rows.assign(**knobs, front=[row < 2 for row in range(len(rows))])
    figure = drawn(plots, replace(result, table=table, axes=vary))
    assert not figure.legends
    assert {(name.get_text(), name.get_color()) for name in names(figure.axes[0])} == {
        ("1, 0.0", plots.INK), ("1, 0.01", plots.INK),
    }  # fmt: skip


def test_a_panel_without_gaps_says_so(drawn, constant_profile) -> None:
    """Warnings are errors here: a scale of logarithms has no place for nothing."""
    load = LOAD | {"output_len": 1}
    figure = drawn(plots, sweep("random", {"max_num_seqs": [1, 2]}, profile=constant_profile(0.01), jobs=1, **load))
    told = [[text.get_text() for text in panel.texts if not isinstance(text, Annotation)] for panel in figure.axes]
    assert told == [["no answer has a second token"], []]


def test_a_trace_s_name_in_another_script_is_drawn_without_a_word(tmp_path, monkeypatch, constant_profile) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "\u65e5\u672c.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,50,5\n", encoding="utf-8")
    result = sweep("\u65e5\u672c.csv", {"max_num_seqs": [1, 2]}, profile=constant_profile(0.01), jobs=1)
    plots.plot_sweep(result, tmp_path / "sweep.png")


class TestComparison:
    @pytest.fixture
    def compared(self):
        return compare_preemption("random", config=EngineConfig(max_model_len=512), kv_blocks=[100],
                                  pcie_bandwidth=[1.0, 50.0], jobs=1, **LOAD)  # fmt: skip

    @pytest.mark.parametrize("throughput", [1000.0, 0.0])
    def test_a_curve_stays_away_from_the_top(self, drawn, compared, throughput) -> None:
        """Nearly the same throughput everywhere: what the data spans is no measure of the room above it."""
        table = compared.table.assign(
            output_throughput=[throughput * (1 + k / 1e6) for k in range(len(compared.table))]
        )
        panel = drawn(preemption_plots, replace(compared, table=table)).axes[0]
        low, high = panel.get_ylim()
        assert low == 0
        assert high >= 1.1 * throughput
        assert high > 0

    @pytest.mark.parametrize("throughput", [1000.0, 0.0])
    def test_names_of_lines_that_end_side_by_side_are_apart(self, drawn, throughput) -> None:
        axes = {"kv_blocks": [100, 150, 200, 250], "max_num_seqs": [2, 4]}
        result = compare_preemption("random", config=EngineConfig(max_model_len=512), modes=["recompute"], jobs=1,
                                    **axes, **LOAD)  # fmt: skip
        table = result.table.assign(output_throughput=[throughput + k for k in range(len(result.table))])
        figure = drawn(preemption_plots, replace(result, table=table))
        panel = figure.axes[3]
        boxes = [name.get_window_extent() for name in names(panel)]
        assert len(boxes) == 4
        assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
        frame = panel.get_window_extent()
        assert max(box.y1 for box in boxes) <= frame.y1
        assert min(box.y0 for box in boxes) >= frame.y0 - 0.05 * frame.height

    def test_one_mode_is_compared_with_nothing(self, drawn, compared) -> None:
        alone = compared.table[compared.table["kv_preemption"] == "recompute"]
        figure = drawn(preemption_plots, replace(compared, table=alone, wins=compared.wins[:1]))
        assert figure.texts[0].get_text() == "Preemption by recompute"

    def test_a_comparison_that_was_stopped_before_its_first_run(self, drawn, compared) -> None:
        stopped = replace(compared, table=compared.table.assign(status="not run"), wins=[], ceilings=[])
        figure = drawn(preemption_plots, stopped)
        assert figure.texts[0].get_text().startswith("Whatever becomes of a victim's KV")
