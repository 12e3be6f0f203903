"""vLLM's parameter files and its folder of results, as its own code reads and writes them (benchmarks/sweep, 0.32)."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from sim.errors import InputError
from sim.sweeps.settings import Setting
from sim.sweeps.study import Outcome
from sim.sweeps.vllm_files import linked, read_params, write_bench_sweep


@pytest.fixture
def params(tmp_path):
    def write(document: object) -> Path:
        path = tmp_path / "params.json"
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        return path

    return write


def test_a_list_of_records_and_an_object_of_named_ones(params) -> None:
    records = [{"max-num-seqs": 32}, {"max-num-seqs": 64, "enable_prefix_caching": False}]
    assert [s.knobs for s in read_params(params(records), "server")] == [
        {"max_num_seqs": 32}, {"max_num_seqs": 64, "enable_prefix_caching": False},
    ]  # fmt: skip
    [slow] = read_params(params({"slow": {"request_rate": 1}}), "client")
    assert slow.client == {"_benchmark_name": "slow", "request_rate": 1}
    assert slow.knobs == {"request_rate": 1}


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ("[", "not JSON"),
        ("[" * 100_000, "not JSON that can be read: nested too deep"),
        ("3", "expected a list of records"),
        ('{"a": 3}', "expected an object of records"),
        ("[]", "the grid is empty"),
        ([{"max_num_seq": 3}], "did you mean 'max_num_seqs'"),
        ([{"request_rate": 3}], "request_rate: expected a knob of the server"),
        ([{"_benchmark_name": "a"}, {"_benchmark_name": "a"}], "_benchmark_name: got 'a', expected each name once"),
    ],
)
def test_files_that_will_not_do(params, document, told) -> None:
    path = params(document)
    with pytest.raises(InputError, match=told) as error:
        read_params(path, "server")
    assert str(error.value).startswith(str(path))


def test_linked_knobs_are_equal() -> None:
    settings = [Setting({"max_num_seqs": n}, {"max_concurrency": m}) for n in (1, 2) for m in (1, 2)]
    kept = linked(settings, ["max_num_seqs=max_concurrency"])
    assert [list(s.knobs.values()) for s in kept] == [[1, 1], [2, 2]]
    assert linked(settings, []) == settings
    with pytest.raises(InputError, match="--link-vars"):
        linked(settings, ["max_num_seqs"])


SUMMARY = {"output_throughput": 5.0, "request_rate": "inf", "sim": {"steps": 3}, "pace": {}, "binding": []}


def test_the_layout_is_vllms(tmp_path) -> None:
    """Folder names, file names and keys as run_combs writes them; its plots read every summary.json below."""
    settings = [
        Setting({"max-num-seqs": 32}, {"request_rate": 2.0}),
        Setting({"_benchmark_name": "a/b", "max_num_seqs": 64}, {}),
        Setting({"max_num_seqs": 0}, {}),
    ]
    results = [[Outcome("ok", SUMMARY)] * 2, [Outcome("ok", SUMMARY)], [Outcome("skipped", reason="no")]]
    write_bench_sweep(tmp_path, settings, results)
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()) == [
        "SERVE--a_b/run=0.json",
        "SERVE--a_b/summary.json",
        "SERVE--max-num-seqs=32-BENCH--request_rate=2.0/run=0.json",
        "SERVE--max-num-seqs=32-BENCH--request_rate=2.0/run=1.json",
        "SERVE--max-num-seqs=32-BENCH--request_rate=2.0/summary.json",
        "summary.csv",
    ]
    [first, second] = json.loads(next(tmp_path.glob("SERVE--max*/summary.json")).read_text())
    assert first == {"output_throughput": 5.0, "request_rate": 2.0, "run_number": 0, "max-num-seqs": 32}
    assert second["run_number"] == 1
    table = pd.read_csv(tmp_path / "summary.csv", index_col=0)
    assert table["output_throughput"].to_list() == [5.0] * 3
    assert list(table.index) == [0, 1, 2]


def test_a_long_name_fits_a_file_system(tmp_path) -> None:
    settings = [Setting({}, {f"random_input_len{i}": 10**9 for i in range(n)}) for n in (20, 21)]
    write_bench_sweep(tmp_path, settings, [[Outcome("ok", SUMMARY)]] * 2)
    assert len(list(tmp_path.rglob("summary.json"))) == 2
