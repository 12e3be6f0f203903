"""A task's key says what its result depends on; its result is the same as a replay's."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from sim.config import EngineConfig
from sim.errors import InputError
from sim.experiment import simulate
from sim.latency.profile import Profile
from sim.sweeps.study import whole_workload
from sim.sweeps.task import Measure, Task, run
from sim.workload import open_from
from workloads import TraceError

HEADER = "arrival_s,prompt_tokens,output_tokens\n"


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text(HEADER + "0.5,100,5\n1.0,200,6\n")
    return path


@pytest.fixture
def task(constant_profile):
    def make(trace: object = "random", flags: dict[str, object] | None = None, **parts: object) -> Task:
        drawn = {"num_prompts": 20, "request_rate": 10.0} if trace == "random" else {}
        chosen = {"engine": EngineConfig(), "profile": constant_profile(0.01), "measure": Measure()} | parts
        return Task.of(workload=whole_workload(trace, drawn | (flags or {})), **chosen)

    return make


class TestKey:
    def test_equal_tasks_have_equal_keys(self, task, trace) -> None:
        assert task().key == task().key
        assert task(trace).key == task(trace).key

    @pytest.mark.parametrize(
        "other",
        [
            {"engine": EngineConfig(max_num_seqs=7)},
            {"flags": {"seed": 1}},
            {"flags": {"request_rate": 11.0}},
            {"flags": {"max_concurrency": 4}},
            {"measure": Measure({"ttft": 100.0})},
            {"measure": Measure(warmup_s=0.1)},
            {"outside": "clip"},
        ],
        ids=str,
    )
    def test_whatever_changes_the_result_changes_the_key(self, task, other) -> None:
        assert task(**other).key != task().key

    def test_a_profile_counts_by_its_content(self, task, constant_profile) -> None:
        assert task(profile=constant_profile(0.02)).key != task().key
        assert task(profile=constant_profile(0.01)).key == task().key

    def test_a_trace_counts_by_its_content(self, task, trace) -> None:
        before = task(trace).key
        trace.write_text(trace.read_text() + "2.0,5,5\n")
        assert task(trace).key != before

    def test_another_version_is_another_task(self, task, monkeypatch) -> None:
        before = task().key
        monkeypatch.setattr("sim.sweeps.task.__version__", "99.0")
        assert task().key != before

    def test_other_sources_are_another_task(self, task, monkeypatch) -> None:
        """A checkout changes without a new version, and what it then computes must not be taken for kept."""
        before = task().key
        monkeypatch.setattr("sim.sweeps.task.code_digest", lambda: "of other sources")
        assert task().key != before


def test_the_result_is_that_of_simulate(task, constant_profile) -> None:
    one = task(engine=EngineConfig(max_num_seqs=4))
    result = json.loads(run(one))
    alone = simulate(open_from(one.workload, 10_000), one.engine, constant_profile(0.01)).summary()
    for name in ("output_throughput", "p99_itl_ms", "mean_ttft_ms", "duration", "completed"):
        assert result["summary"][name] == alone[name]
    assert [name for name, value in result["summary"].items() if isinstance(value, list)] == ["binding"]
    assert len(run(one)) < 10_000  # bytes, whatever the number of requests


def test_pace_is_offered_over_taken(task, trace) -> None:
    """Two requests until 1.0 s; the first holds the only place for 6 steps of 10 ms... the server keeps up."""
    pace = json.loads(run(task(trace)))["summary"]["pace"]
    assert pace["offered_rps"] == 2.0
    assert pace["kept_up"] == pytest.approx(1.0, abs=0.02)
    trace.write_text(HEADER + "".join(f"{i / 1000},100,100\n" for i in range(1, 101)))
    slow = json.loads(run(task(trace, engine=EngineConfig(max_num_seqs=1))))["summary"]["pace"]
    # Each takes 100 steps of 10 ms: the last is taken in after 99 s, though it came at 0.1 s.
    assert slow["kept_up"] == pytest.approx(0.1 / 99, rel=0.05)


def test_all_at_once_has_no_pace(task) -> None:
    pace = json.loads(run(task(flags={"request_rate": None})))["summary"]["pace"]
    assert pace == {"offered_rps": None, "kept_up": None}


def test_what_cannot_run_is_told_before_it_runs(task, tmp_path) -> None:
    with pytest.raises(InputError, match="at least max_num_seqs"):
        task(engine=EngineConfig(max_num_batched_tokens=10, max_num_seqs=20))
    with pytest.raises(TraceError, match="a file, or a workload's name"):
        task(tmp_path / "none.csv")
    with pytest.raises(InputError, match="--format goes with a file"):
        task(flags={"format": "csv"})


def test_whatever_goes_wrong_in_a_run_is_its_result(task, trace, monkeypatch) -> None:
    one = task(trace)
    trace.write_text(HEADER + "0.5,100,5\nx,y,z\n")
    assert json.loads(run(one))["error"].startswith(f"{trace}:3: arrival_s: got 'x'")

    def bug(*_args: object, **_named: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("sim.sweeps.task.simulate", bug)
    assert json.loads(run(one))["error"].startswith("ZeroDivisionError: division by zero (test_task.py:")


def test_a_run_that_ctrl_c_cut_short_is_no_result(task, monkeypatch) -> None:
    def cut(*args: object, **named: object):
        result = simulate(*args, **named)
        return replace(result, record=replace(result.frames, meta={**result.frames.meta, "partial": True}))

    monkeypatch.setattr("sim.sweeps.task.simulate", cut)
    with pytest.raises(KeyboardInterrupt):
        run(task())


def test_notes_are_the_runs_warnings_once(task) -> None:
    """The shipped profile does not price another KV type."""
    flags = {"num_prompts": 3, "request_rate": 10.0}
    one = task(engine=EngineConfig(kv_cache_dtype="fp8"), profile=Profile.load("h100-qwen3-14b"), flags=flags)
    notes = json.loads(run(one))["notes"]
    assert len(notes) == 1
    assert "changes the KV blocks only" in notes[0]
