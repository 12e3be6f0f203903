"""Measuring within a budget: what is kept, what is left out and why, and how it goes on."""

from __future__ import annotations

import math

import pytest

from calibrate import measure as module
from calibrate.grid import GridStep
from calibrate.measure import Effort, Pace, Table, describe, measure, summary
from calibrate.samples import Origin
from calibrate.samples_file import read_samples
from sim.errors import InputError

ORIGIN = Origin(device="a device", model="m", dtype="float32", engine="torch", engine_version="2")
PLENTY = Effort(budget_s=60.0, repeats=3, per_step_s=1.0)


class Full(Exception):
    pass


class Runner:
    """Takes 1 ms per token, and has no room for more than 1000 of them."""

    block_size = 16
    kv_tokens = 100_000

    def __init__(self):
        self.timed = []

    def seconds(self, step, repeats, limit_s):
        if step.num_tokens > 1000:
            raise Full
        self.timed.append(step)
        return [1e-3 * step.num_tokens * factor for factor in (1.0, 0.9, 1.2)][:repeats]

    def padded(self, step):
        return step.num_tokens + 1, "full"


STEPS = [GridStep((), (10,) * n) for n in (1, 2, 4)] + [GridStep(((20, 5),), (7,))]


def test_a_sample_has_the_median_and_the_whole_composition(tmp_path):
    table = Table.open(tmp_path / "s.parquet", ORIGIN)
    assert measure(STEPS, Runner(), table, PLENTY, memory_error=Full) == 4
    samples = read_samples(tmp_path / "s.parquet")
    assert samples.seconds.tolist() == pytest.approx([1e-3, 2e-3, 4e-3, 21e-3])
    assert samples.chunks.tolist() == [(), (), (), ((20, 5),)]
    assert samples.decodes.tolist()[3] == (7,)
    assert samples.padded_tokens.tolist() == [2, 3, 5, 22]
    assert set(samples.graph) == {"full"}
    assert samples.repeats.tolist() == [3] * 4
    assert samples.regime.tolist() == ["decode"] * 3 + ["mixed"]
    assert samples.origins[0].device == "a device"


def test_what_is_there_is_not_timed_again(tmp_path):
    path = tmp_path / "s.parquet"
    measure(STEPS[:2], Runner(), Table.open(path, ORIGIN), PLENTY, memory_error=Full)
    runner = Runner()
    table = Table.open(path, ORIGIN)
    assert measure(STEPS, runner, table, PLENTY, memory_error=Full) == 2
    assert runner.timed == STEPS[2:]
    assert len(read_samples(path)) == 4


@pytest.mark.parametrize(
    ("other", "told"),
    [({"device": "another"}, "device"), ({"dtype": "bfloat16"}, "dtype"), ({"engine_version": "3"}, "engine_version")],
)
def test_a_table_of_something_else_is_not_gone_on_with(tmp_path, other, told):
    path = tmp_path / "s.parquet"
    measure(STEPS[:1], Runner(), Table.open(path, ORIGIN), PLENTY, memory_error=Full)
    changed = Origin(
        **{f: getattr(ORIGIN, f) for f in ("device", "model", "dtype", "engine", "engine_version")} | other
    )
    with pytest.raises(InputError, match=told):
        Table.open(path, changed)


def test_a_step_without_room_is_skipped_and_recorded(tmp_path):
    table = Table.open(tmp_path / "s.parquet", ORIGIN)
    steps = [STEPS[0], GridStep(((2000, 0),), ()), GridStep((), (60_000, 60_000)), STEPS[1]]
    assert measure(steps, Runner(), table, PLENTY, memory_error=Full) == 2
    skipped = read_samples(tmp_path / "s.parquet").origins[0].notes["skipped"]
    assert skipped == {"2000@0": "out of memory", "2 x 60000": "more context than the KV cache holds"}


def test_no_step_takes_a_tenth_of_the_budget(tmp_path):
    """Six small steps tell that 900 tokens need 0.9 s, twice: too much of 10 s."""
    table = Table.open(tmp_path / "s.parquet", ORIGIN)
    small = [GridStep((), (10,) * n) for n in range(1, 8)]
    effort = Effort(budget_s=10.0, repeats=3, per_step_s=1.0)
    measure([*small, GridStep((), (10,) * 900)], Runner(), table, effort, memory_error=Full)
    assert table.skipped == {"900 x 10": "would take too much of the time budget"}


def test_when_the_time_is_up_what_was_timed_is_on_disk(tmp_path, monkeypatch):
    now = iter(range(1000))
    monkeypatch.setattr(module.time, "monotonic", lambda: float(next(now)))
    table = Table.open(tmp_path / "s.parquet", ORIGIN)
    timed = measure(STEPS * 100, Runner(), table, Effort(6.0, 3, 1.0), memory_error=Full)
    assert 0 < timed < 100
    assert len(read_samples(tmp_path / "s.parquet")) == timed


def test_an_interrupt_keeps_what_was_timed(tmp_path):
    class Interrupted(Runner):
        def seconds(self, step, repeats, limit_s):
            if len(self.timed) == 2:
                raise KeyboardInterrupt
            return super().seconds(step, repeats, limit_s)

    table = Table.open(tmp_path / "s.parquet", ORIGIN)
    with pytest.raises(KeyboardInterrupt):
        measure(STEPS, Interrupted(), table, PLENTY, memory_error=Full)
    assert len(read_samples(tmp_path / "s.parquet")) == 2


def test_spread_is_half_the_middle_two_thirds():
    assert summary([1.0]) == (1.0, pytest.approx(math.nan, nan_ok=True))
    median, spread = summary([0.84, 1.0, 1.16])
    assert median == 1.0
    assert spread == pytest.approx(0.16 * 0.68)


def test_the_pace_is_learnt_from_what_was_timed():
    pace = Pace()
    for rows in (1, 3, 9, 27, 40, 50):
        pace.learn(GridStep((), (100,) * rows), 0.01 + 0.002 * rows)
    assert pace.foresee(GridStep((), (100,) * 200)) == pytest.approx(0.41, rel=0.05)


def test_steps_are_described_in_a_few_words():
    assert describe(GridStep(((512, 2048),), (1000, 1100))) == "512@2048 + 2 x 1050"
