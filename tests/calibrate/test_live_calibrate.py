"""From a server's log and a client's result back to the law that made both: the server here is the simulator."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from calibrate.live import Bed, Cell, Load, Setting, figures, scheduler_config
from calibrate.live_calibrate import client_s, leveled, live_profile, run_steps, sent
from calibrate.live_model import SMALL_LLAMA
from calibrate.live_runs import Run
from calibrate.live_validation import Plan, _compare
from calibrate.samples import Samples, TimedStep
from sim.errors import InputError
from sim.experiment import simulate
from sim.latency import ClientTerms, Domain, FusedLaw, Profile
from sim.report.summary import SummaryOptions
from workloads import Request

LAW = FusedLaw(
    step_s=0.010, row_s=3e-4, weight_read_s=0.0, batch_slowdown=0.0, token_s=1.6e-4, sharpness=1.0, context_s=5e-7,
    mixed_context_s=0.0, pair_s=1.6e-7, host_step_s=0.002, host_row_s=6e-5,
)  # fmt: skip
REQUEST_S = 0.015
BED = Bed()
CALIBRATION = Cell(Setting(1024), Load(80, ramp=(1, 12)))
FACTS = {
    "device": "a CPU", "device_memory_bytes": 1 << 34, "is_cpu": True, "engine_version": "0.32.0",
    "model_config": SMALL_LLAMA,
}  # fmt: skip


@pytest.fixture(scope="module")
def true() -> Profile:
    wide = (0.0, 1e12)
    return Profile(
        "true", "live", "a CPU", 1, "float32", "vllm", "0.32.0", LAW, Domain(wide, wide, wide, wide),
        ClientTerms(REQUEST_S), {}, 1024, 1 << 34, model_config=SMALL_LLAMA,
    )  # fmt: skip


def requests(n: int, rate: float, seed: int) -> list[Request]:
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(1 / np.linspace(rate / 4, 2 * rate, n)))
    return [
        Request(str(i), float(at), int(rng.integers(200, 600)), int(rng.integers(32, 96)))
        for i, at in enumerate(arrivals)
    ]


def run(folder: Path, profile: Profile, cell: Cell, trace: list[Request]) -> Run:
    """The files that a real run leaves, of a simulated one."""
    folder.mkdir()
    result = simulate(trace, scheduler_config(BED, cell.setting, 8192), profile)
    summary = result.summary(SummaryOptions(percentiles=(50.0, 99.0)))
    (folder / "bench.json").write_text(json.dumps(summary), encoding="utf-8")
    lines = []
    for index, step in enumerate(result.steps.itertuples()):
        prompts, decodes = step.num_seqs - step.decodes, step.decodes
        elapsed_ms = (step.end_s - step.start_s) * 1e3
        lines.append(
            f"{1.7e9 + step.end_s:.6f} (APIServer pid=7) INFO 01-20 10:00:00 [loggers.py:199] Engine 000: Iteration"
            f"({index}): {prompts} context requests, {step.prefill_tokens} context tokens, {decodes} generation "
            f"requests, {decodes} generation tokens, iteration elapsed time: {elapsed_ms:.2f} ms, CPU KV cache usage: "
            "1.0%"
        )
    (folder / "server.log").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return Run(folder, {"preemptions": 0, "num_gpu_blocks": 8192})


@pytest.fixture(scope="module")
def calibrated(true: Profile, tmp_path_factory: pytest.TempPathFactory) -> Profile:
    made = run(tmp_path_factory.mktemp("live") / "run", true, CALIBRATION, requests(80, 4.0, seed=0))
    return live_profile([made], BED, CALIBRATION, scheduler_config(BED, CALIBRATION.setting, 8192), FACTS)


@pytest.mark.parametrize("budget", [128, 2048])
def test_other_settings_are_foretold(true: Profile, calibrated: Profile, budget: int) -> None:
    """The law, the host and the client that were calibrated at one budget hold at others."""
    config = scheduler_config(BED, Setting(budget), 8192)
    trace = requests(60, 5.0, seed=1)
    options = SummaryOptions(percentiles=(50.0, 99.0))
    real = figures(simulate(trace, config, true).summary(options))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # steps of 2,048 tokens are beyond what was calibrated
        found = figures(simulate(trace, config, calibrated).summary(options))
    assert found == pytest.approx(real, rel=0.03)


def test_coefficients_come_back(calibrated: Profile) -> None:
    law = calibrated.law
    assert law.token_s == pytest.approx(LAW.token_s, rel=0.05)
    assert law.step_s == pytest.approx(LAW.step_s, rel=0.1)
    assert (law.host_step_s, law.host_row_s) == pytest.approx((LAW.host_step_s, LAW.host_row_s), rel=0.2)
    assert calibrated.client.request_s == pytest.approx(REQUEST_S, abs=0.003)


def test_the_level_is_that_of_all_steps_not_of_the_typical_one(true: Profile) -> None:
    """One step in ten takes twice as long: a run takes a tenth longer, and so must the simulated one."""
    steps = []
    for i in range(200):
        n = 100 + i
        seconds = float(LAW.device_s(float(n), 1.0, 0.0, 0.0, n * n / 2))
        steps.append(TimedStep.of([(n, 0)], [], seconds * (2.0 if i % 10 == 0 else 1.0), host_seconds=0.003))
    found = leveled(true, Samples.of_steps(steps)).law
    assert found.token_s == pytest.approx(1.1 * LAW.token_s, rel=0.01)
    assert found.step_s == pytest.approx(1.1 * LAW.step_s, rel=0.01)
    assert found.host_step_s + found.host_row_s == pytest.approx(0.003)
    assert found.sharpness == LAW.sharpness


def test_a_client_is_never_faster_than_light(true: Profile, tmp_path: Path) -> None:
    made = run(tmp_path / "run", true, CALIBRATION, requests(20, 4.0, seed=2))
    slow = replace(true, client=ClientTerms(0.1))
    assert client_s([made], slow, scheduler_config(BED, CALIBRATION.setting, 8192)) == 0.0


def test_a_log_of_another_run_is_refused(true: Profile, tmp_path: Path) -> None:
    made = run(tmp_path / "run", true, CALIBRATION, requests(20, 4.0, seed=3))
    other = run(tmp_path / "other", true, CALIBRATION, requests(20, 4.0, seed=4))
    made.log.write_bytes(other.log.read_bytes())
    with pytest.raises(InputError, match="logged steps can come from the requests of"):
        list(run_steps(made, CALIBRATION))


def test_what_was_sent(true: Profile, tmp_path: Path) -> None:
    trace = requests(10, 4.0, seed=5)
    found = sent(run(tmp_path / "run", true, CALIBRATION, trace))
    assert [(r.prompt_tokens, r.output_tokens) for r in found] == [(r.prompt_tokens, r.output_tokens) for r in trace]


def test_runs_beside_their_simulation(true: Profile, tmp_path: Path) -> None:
    """With the law that made them every figure is inside, and budgets keep their order."""
    budgets = [Cell(Setting(budget), Load(40)) for budget in (128, 2048)]
    made = {cell: [run(tmp_path / cell.name, true, cell, requests(40, 5.0, seed=6))] for cell in budgets}
    for each in made.values():
        each[0].facts["load_average"] = 1.0
    calibration = [replace(each[0], facts={**each[0].facts}) for each in list(made.values())[:1]]
    outcome = _compare(Plan(BED), true, made, calibration)
    assert outcome.inside == len(outcome.checks) == 10
    assert {(o.figure, o.lower, o.higher, o.kept) for o in outcome.orders} == {
        ("itl_p99", "128", "2048", True),
        ("ttft_mean", "2048", "128", True),
    }
    assert outcome.preemptions == []
    assert outcome.document()["real_runs"] == 3
