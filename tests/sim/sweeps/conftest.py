"""Tables of made numbers, and small studies that run in a blink."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from sim.sweeps.settings import combined, grid
from sim.sweeps.study import Study, whole_workload

COLUMNS = {"output_throughput": 100.0, "p99_itl_ms": 50.0, "p99_ttft_ms": 500.0, "mean_e2el_ms": 1000.0}


@pytest.fixture
def table():
    """A settings table: each row's knobs and the figures that matter, the others as in COLUMNS."""

    def make(*rows: dict[str, object]) -> pd.DataFrame:
        made = []
        for row in rows:
            knobs = {name: value for name, value in row.items() if name not in {*COLUMNS, "status", "binding"}}
            about = {
                "status": row.get("status", "ok"),
                "reason": "",
                "binding": row.get("binding", ""),
                "replications": 1,
            }
            ran = about["status"] == "ok"
            made.append({**knobs, **about, **{n: row.get(n, d) if ran else math.nan for n, d in COLUMNS.items()}})
        return pd.DataFrame(made)

    return make


@pytest.fixture
def study(constant_profile):
    """Requests on a profile with steps of 10 ms; `vary`: knob -> values."""

    def make(vary: dict[str, list[object]], **settings: object) -> Study:
        flags = {"num_prompts": 20, "request_rate": 10.0, "input_len": 100, "output_len": 5}
        flags |= {name: settings.pop(name) for name in list(settings) if name in whole_workload("random", {})}
        defaults = {"profile": constant_profile(0.01), "workload": whole_workload("random", flags)}
        return Study(**(defaults | {"settings": combined(grid(vary))} | settings))

    return make
