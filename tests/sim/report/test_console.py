"""The console says what `vllm bench serve` says: vLLM 0.32 printed the expected text (golden/bench_serve.json)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sim.report.console import bench_table, sim_table
from sim.report.summary import summarize

GOLDEN = json.loads((Path(__file__).parent / "golden/bench_serve.json").read_text())["cases"]


@pytest.mark.parametrize("name", GOLDEN)
def test_the_table_of_a_saved_result_is_what_vllm_printed_beside_it(name):
    assert bench_table(GOLDEN[name]["result"]) + "\n" == GOLDEN[name]["table"]


def test_the_simulators_table_fits_below_it_and_shows_its_block(toy_run):
    result = summarize(toy_run(blocks=1200, rate=20, prompt=300, output=200, requests=150))
    lines = sim_table(result).splitlines()
    assert all(len(line) <= 51 for line in lines)
    shown = {line[:40].strip(): line[41:].strip() for line in lines}
    assert shown["Preemptions:"] == str(result["sim"]["preemptions"]) != "0"
    assert shown["Peak KV cache usage (%):"] == "100.00"
    assert shown["HTTP and tokenizer (ms):"] == "12.00"
    assert "Cut short, unfinished requests:" not in shown


def test_a_run_at_its_capacity_and_a_cut_one_are_told_so(toy_run):
    text = sim_table(summarize(toy_run(rate=40, requests=400, stop_s=8.0)))
    assert "good for\nordering settings" in text
    assert "Cut short" in text
