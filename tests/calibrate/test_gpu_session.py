"""The prepared session for a GPU machine, rehearsed on a CPU."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from calibrate.gpu_session import GPU_PLANS, LIMIT_S, REHEARSAL, run
from sim.cli.main import cli


def test_the_session_stays_under_eight_minutes():
    assert LIMIT_S < 480
    assert sum(plan.limit_s for plan in GPU_PLANS) <= LIMIT_S


@pytest.mark.parametrize("plan", [*GPU_PLANS, *REHEARSAL])
def test_every_flag_of_the_plans_exists(plan, tmp_path):
    verb = cli.get_command(None, "calibrate").get_command(None, "run")
    known = {name for option in verb.params for name in (*option.opts, *option.secondary_opts)}
    assert {word for word in plan.command(tmp_path) if word.startswith("--")} <= known


def test_a_rehearsal_leaves_what_is_to_be_brought_home(tmp_path):
    pytest.importorskip("torch")
    plan = REHEARSAL[1]
    assert run([plan], tmp_path) == []
    told = json.loads((tmp_path / f"{plan.name}.run.json").read_text())
    assert told["errors"]["output_throughput"] is not None
    assert len(told["real_runs"]) == 2
    assert (tmp_path / f"{plan.name}.parquet").exists()
    assert json.loads((tmp_path / f"{plan.name}.profile.json").read_text())["engine"] == "torch"
    assert f"{plan.name}: done" in (tmp_path / "session.log").read_text()


def test_one_that_fails_costs_the_other_nothing(tmp_path):
    bad = replace(REHEARSAL[0], device="no such device", name="bad")
    late = replace(REHEARSAL[0], calibrate_s=1e6, name="late")
    assert run([bad, late], tmp_path) == ["bad", "late"]
    log = (tmp_path / "session.log").read_text()
    assert "bad: failed" in log
    assert "elpase: error" in log
    assert "Traceback" not in log
