"""`elpase preemption` from end to end, and what it refuses."""

from __future__ import annotations

import json

import pytest

import sim.sweeps.preemption.files

SMALL = ("random", "--num-prompts", 8, "--input-len", 64, "--output-len", 100, "--max-model-len", 512, "--jobs", 1)


@pytest.fixture
def preemption(elpase, monkeypatch):
    """The verb on a small workload, in this process, without the picture."""
    monkeypatch.setattr(
        sim.sweeps.preemption.files, "plot_comparison", lambda _comparison, path: path.write_text("a picture")
    )
    return lambda *args: elpase("preemption", *SMALL, *args)


def test_table_files_and_going_on(preemption, tmp_path) -> None:
    args = ("--kv-blocks", "40,80", "--pcie-bandwidth", "16,50", "--out", tmp_path / "out")
    done = preemption(*args)
    assert (done.code, done.err) == (0, f"elpase: wrote {tmp_path / 'out'}/\n")
    assert done.out.count("swap*") == done.out.count("  offload  ") == 4
    assert {p.name for p in (tmp_path / "out").iterdir()} == {*sim.sweeps.preemption.files.FILES, "tasks"}
    kept = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "out/tasks").iterdir()}
    assert preemption(*args).out == done.out
    assert {p.name: p.stat().st_mtime_ns for p in (tmp_path / "out/tasks").iterdir()} == kept


def test_json_and_a_seed(preemption) -> None:
    done = preemption("--modes", "recompute,offload", "--num_gpu_blocks_override", "40", "--seed", 3, "--json")
    found = json.loads(done.out)
    assert found["provenance"]["seed"] == 3
    assert [row["kv_preemption"] for row in found["rows"]] == ["recompute", "offload"]
    assert [row["num_gpu_blocks_override"] for row in found["rows"]] == [40, 40]
    assert {win["column"] for win in found["wins"]} == {"output_throughput", "p99_itl_ms", "p99_ttft_ms"}


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (
            ("--modes", "offlod"),
            "modes: got 'offlod', expected any of recompute, swap, offload; did you mean 'offload'?",
        ),
        (("--modes", ""), "'' is not a list such as A,B,C."),
        (("--kv-blocks", "40,,80"), "'40,,80' is not a list such as A,B,C."),
        (("--kv-blocks", "40,x"), "'x' is not a whole number"),
        (("--kv-blocks", "40,40"), "num_gpu_blocks_override: got 40, expected each value once"),
        (("--pcie-bandwidth", "fast"), "'fast' is not a number."),
        (("--pcie-bandwidth", "0", "--modes", "swap"), "pcie_bandwidth: got 0.0, expected GB/s, more than 0"),
        (("--pcie-bandwidth", "16", "--modes", "recompute"), "expected a mode that copies: swap or offload"),
        (("--host-memory", "9", "--modes", "recompute"), "--host-memory goes with a mode that copies: swap or offload"),
        (("--pcie-latency", "9", "--modes", "recompute"), "--pcie-latency goes with --kv-preemption swap or --kv-off"),
        (("--host-memory", "-1"), "Invalid value for '--host-memory'"),
        (("--kv-preemption", "swap"), "No such option '--kv-preemption'; the modes to compare are --modes"),
        (("--swap-space", "4"), "'--swap-space'; --host-memory says how much swap and offload may fill"),
        (("--kv-offloading-size", "4"), "'--kv-offloading-size'; --host-memory says how much"),
        (("--kv-blocks", "5"), "max_model_len: got 512, expected at most 64"),
    ],
    ids=str,
)
def test_refused(preemption, args, told) -> None:
    done = preemption(*args)
    assert done.code == 2
    assert told in done.error
