"""What `workloads` offers, and what it does not load."""

from __future__ import annotations

import pickle
import subprocess
import sys

import workloads


def test_exported_names():
    assert sorted(workloads.__all__) == [
        "BUILTIN_NAMES",
        "FORMATS",
        "Request",
        "Selection",
        "Trace",
        "TraceError",
        "builtin",
        "open_workload",
        "read_trace",
        "synthetic",
    ]
    assert all(callable(getattr(workloads, name)) for name in ("builtin", "open_workload", "read_trace", "synthetic"))


def test_importing_workloads_loads_no_heavy_library():
    code = "import sys, workloads; print([m for m in ('pandas', 'scipy', 'sim', 'matplotlib') if m in sys.modules])"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.strip() == "[]"


def test_an_error_survives_the_way_back_from_another_process():
    error = workloads.TraceError(file="t.csv", line=3, field="tokens", value="-5", expected="an integer >= 0")
    assert str(error) == "t.csv:3: tokens: got '-5', expected an integer >= 0"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_an_error_stays_one_line_whatever_the_value():
    error = workloads.TraceError(file="t\n.csv", field="tokens", value="a\nb" * 1000, expected="one\nline")
    assert str(error).isprintable()
    assert len(str(error)) < 200
