"""Which settings there are: products, names, refusals."""

from __future__ import annotations

from dataclasses import fields

import pytest

from sim.config import EngineConfig
from sim.errors import InputError
from sim.sweeps.settings import KNOBS, Setting, combined, grid, knob
from sim.sweeps.study import Study, whole_workload


def test_all_combinations_the_last_axis_fastest() -> None:
    settings = grid({"max_num_seqs": [1, 2], "request-rate": [3.0, 4.0]})
    assert [list(s.knobs.values()) for s in settings] == [[1, 3.0], [1, 4.0], [2, 3.0], [2, 4.0]]
    assert settings[0] == Setting(server={"max_num_seqs": 1}, client={"request_rate": 3.0})


def test_a_list_of_records_is_one_axis() -> None:
    records = [Setting(server={"max_num_seqs": n, "watermark": n / 100}) for n in (1, 2)]
    knobs = [s.knobs for s in combined(records, grid({"limit": [7, 8]}))]
    assert [(k["max_num_seqs"], k["watermark"], k["limit"]) for k in knobs] == [
        (1, 0.01, 7), (1, 0.01, 8), (2, 0.02, 7), (2, 0.02, 8),
    ]  # fmt: skip


def test_a_knob_in_two_places_is_an_error() -> None:
    with pytest.raises(InputError, match="max_num_seqs: expected to be varied in one place only"):
        combined([Setting(server={"max-num-seqs": 3})], grid({"max_num_seqs": [1]}))


def test_every_flag_of_the_server_is_a_knob_and_the_workloads() -> None:
    assert {field.name for field in fields(EngineConfig)} <= KNOBS
    assert {"request_rate", "rate_scale", "burstiness", "max_concurrency", "random_input_len", "trace"} <= KNOBS
    assert knob("--max-num-seqs") == knob("max_num_seqs") == "max_num_seqs"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("max_num_seq", "did you mean 'max_num_seqs'"),
        ("request-rat", "did you mean 'request_rate'"),
        ("qqq", "expected a flag of vllm serve or of the workload, trace or profile$"),
        ("seed", "--replications"),
    ],
)
def test_an_unknown_knob_says_which_one_was_meant(name: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        knob(name)


@pytest.mark.parametrize(("values", "told"), [([], "at least one value"), ([4, 4], "got 4, expected each value once")])
def test_axes_that_make_no_sense(values: list[object], told: str) -> None:
    with pytest.raises(InputError, match=told):
        grid({"max_num_seqs": values})


def test_a_setting_is_told_to_do_nothing_only_where_it_does_nothing_in_all() -> None:
    """A link is none of recompute's, but of swap's; that chunks of images stay whole is nobody's."""
    engine = EngineConfig(pcie_bandwidth=8.0, disable_chunked_mm_input=True)
    modes = (Setting({"kv_preemption": "recompute"}), Setting({"kv_preemption": "swap"}))
    workload = whole_workload("random", {})
    (told,) = Study(workload=workload, engine=engine, settings=modes).notes()
    assert told.startswith("--disable-chunked-mm-input has no effect")
    with pytest.raises(InputError, match="--pcie-bandwidth goes with --kv-preemption swap"):
        Study(workload=workload, engine=engine, settings=modes[:1])
