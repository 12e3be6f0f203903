"""A flag or a seed that can change nothing in a sweep is told, and one that can in some setting is not."""

from __future__ import annotations

from pathlib import Path

import pytest

SMALL = ("sweep", "random", "--num-prompts", 5, "--request-rate", 10, "--input-len", 50, "--output-len", 3, "--jobs", 1)
VARIED = ("--vary", "max_num_seqs=1,2")
GOES_WITH = "goes with --kv-preemption swap or --kv-offloading-size: nothing is copied here"


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (
            ("--vary", "max_num_seqs=1", "--vary", "max-num-seqs=2"),
            "--vary: got 'max-num-seqs=2', expected each knob once",
        ),
        ((*VARIED, "--link-vars", "max_num_seqs=max_concurrency"), "--link-vars goes with --serve-params and --bench"),
        (
            (*VARIED, "--best", "mean_ttft_ms"),
            "--best goes with one load that varies: rate_scale, request_rate, max_con",
        ),
        ((*VARIED, "--pcie-bandwidth", 10), f"--pcie-bandwidth {GOES_WITH}"),
        ((*VARIED, "--pcie-latency", 10), f"--pcie-latency {GOES_WITH}"),
        (("--vary", "pcie_bandwidth=10,20"), f"--pcie-bandwidth {GOES_WITH}"),
        ((*VARIED[:-1], "max_num_seqs=1,2", "--backend", "ray"), "--jobs goes with --backend local"),
    ],
    ids=str,
)
def test_refused(elpase, args, told) -> None:
    assert told in elpase(*SMALL, *args).error


@pytest.mark.parametrize(
    "args",
    [
        ("--vary", "kv_preemption=recompute,swap", "--pcie-bandwidth", 10),
        ("--kv-offloading-size", 1, "--vary", "pcie_bandwidth=10,20"),
        ("--vary", "request_rate=5,10", "--best", "mean_ttft_ms"),
    ],
    ids=str,
)
def test_not_refused_where_one_setting_is_changed_by_it(elpase, args) -> None:
    small = [arg for arg in SMALL if arg not in ("--request-rate", 10)] if "request_rate=5,10" in args else SMALL
    done = elpase(*small, *args)
    assert done.code == 0, done.err
    assert "skipped" not in done.out


def test_replay_too(elpase) -> None:
    assert f"--pcie-latency {GOES_WITH}" in elpase("replay", *SMALL[1:-2], "--pcie-latency", 10).error


def test_replications_of_what_has_no_chance_in_it(elpase, tmp_path: Path) -> None:
    """A file's requests are the same whatever the seed; an interval of 0 would look like certainty."""
    trace = tmp_path / "mine.csv"
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n0.0,100,5\n0.1,120,4\n")
    told = "note: the same whatever the seed: nothing here is drawn"
    args = ("--jobs", 1, *VARIED, "--replications", 2)
    assert told in elpase("sweep", trace, *args).err
    assert told not in elpase("sweep", trace, *args[:-2]).err
    assert told not in elpase(*SMALL[:-2], *args).err


def test_one_reason_for_all_is_told_as_it_is(elpase) -> None:
    error = elpase("sweep", "none.csv", "--jobs", 1, *VARIED).error
    assert error.startswith("none.csv: ")
