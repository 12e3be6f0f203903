"""What a user says beside a profile: it acts, or it is told that it does not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from sim.config import EngineConfig
from sim.errors import InputError
from sim.experiment import ExtrapolationWarning, settle, simulate, unpriced
from sim.latency.profile import DEFAULT_PROFILE, PROFILES, Profile
from workloads import Request

PROFILE = Profile.load(DEFAULT_PROFILE)
MEASURED_BLOCKS = 18_038


def blocks(**flags) -> int:
    return settle(EngineConfig(**flags), PROFILE).num_gpu_blocks


@pytest.mark.parametrize(
    "flags", [{}, {"dtype": "bfloat16"}, {"kv_cache_dtype": "bfloat16"}, {"kv_cache_dtype": "auto"}, {"dtype": "auto"}]
)
def test_naming_what_the_profile_has_changes_nothing(flags):
    assert blocks(**flags) == MEASURED_BLOCKS
    assert unpriced(EngineConfig(**flags), PROFILE) == []


def test_four_byte_weights_and_kv_leave_far_fewer_blocks():
    """Weights take 27.5 GiB more, and each block is twice as large."""
    assert blocks(dtype="float32") < blocks(dtype="float16") / 4


def test_more_memory_is_never_fewer_blocks():
    sizes = [blocks(gpu_memory_utilization=share) for share in (0.85, 0.9, 0.92, 0.93, 0.95)]
    assert sizes == sorted(set(sizes))


@pytest.mark.parametrize(
    "flags", [{"tensor_parallel_size": 2}, {"dtype": "float32"}, {"kv_cache_dtype": "fp8"}], ids=lambda f: next(iter(f))
)
def test_what_the_profile_cannot_price_is_told(flags):
    assert len(unpriced(EngineConfig(**flags), PROFILE)) == 1
    with pytest.warns(ExtrapolationWarning, match="changes the KV blocks only"):
        simulate([Request("a", 0.0, 10, 2)], EngineConfig(max_model_len=1024, **flags), PROFILE)


@pytest.mark.parametrize(
    ("name", "value"),
    [("block_size", "16"), ("max_model_len", ""), ("max_num_batched_tokens", 1.5), ("enable_prefix_caching", 1)],
)
def test_a_setting_of_the_wrong_type_in_a_profile_is_told(tmp_path, name, value):
    document = json.loads((PROFILES / f"{DEFAULT_PROFILE}.json").read_text())
    document["server"][name] = value
    path = tmp_path / "p.json"
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match=f"{name}: got"):
        settle(EngineConfig(), Profile.load(path))


@pytest.mark.parametrize(("name", "value"), [("batch_slowdown", 1e30), ("step_s", 1e300)])
def test_a_coefficient_beyond_all_measure_is_told(tmp_path, name, value):
    document = json.loads((PROFILES / f"{DEFAULT_PROFILE}.json").read_text())
    document["law"]["coefficients"][name]["value"] = value
    path = tmp_path / "p.json"
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match=name):
        Profile.load(path)


def test_blocks_that_do_not_fit_name_the_block_size():
    with pytest.raises(InputError, match="block_size: got 1000000"):
        blocks(block_size=1_000_000)


def elpase(*args: str, cwd) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", "import sys; from sim.cli.main import main; main(sys.argv[1:])", *args]
    return subprocess.Popen(command, cwd=cwd, text=True, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)


def test_a_pipe_is_refused_instead_of_waited_for(tmp_path):
    os.mkfifo(tmp_path / "trace")
    process = elpase("replay", "trace", cwd=tmp_path)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "a regular file; save it first" in told


def test_sigterm_leaves_nothing_behind(tmp_path):
    process = elpase("replay", "azure-conv", "--no-leap", "--out", "out", cwd=tmp_path)
    end_s = time.monotonic() + 240  # of a busy machine
    while process.poll() is None and not list(tmp_path.glob(".out.*.partial")) and time.monotonic() < end_s:
        time.sleep(0.02)
    assert process.poll() is None, process.communicate()
    assert list(tmp_path.glob(".out.*.partial"))
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []
