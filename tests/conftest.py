"""A profile whose steps all take the same time, so that queueing theory has the answer; Ctrl-C as a terminal leaves it.

And what the mark plain_python does: on the compiled build such a test is skipped.
"""

from __future__ import annotations

import signal
from importlib.machinery import EXTENSION_SUFFIXES

import pytest

import sim.core.block_pool
from sim.latency.domain import Domain
from sim.latency.model import FusedLaw
from sim.latency.profile import ClientTerms, Profile

ANY = (0.0, float("inf"))
COMPILED = str(sim.core.block_pool.__file__).endswith(tuple(EXTENSION_SUFFIXES))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """The mark says what a test does that compiled modules do not let happen."""
    for mark in item.iter_markers("plain_python"):
        if COMPILED:
            pytest.skip(f"compiled: {mark.args[0]}")


@pytest.fixture
def ctrl_c_as_usual():
    """As a terminal leaves it: pytest-xdist's workers ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def constant_profile():
    """Makes a profile with steps of `step_s` seconds, whatever is in them."""

    def make(step_s: float, *, request_s: float = 0.0, response_s: float = 0.0) -> Profile:
        law = FusedLaw(
            step_s=step_s,
            row_s=0.0,
            weight_read_s=0.0,
            batch_slowdown=0.0,
            token_s=0.0,
            sharpness=1.0,
            context_s=0.0,
            mixed_context_s=0.0,
            pair_s=0.0,
        )
        return Profile(
            name="constant",
            model="qwen3-14b",
            gpu="h100",
            tensor_parallel_size=1,
            dtype="bfloat16",
            engine="none",
            engine_version="0",
            law=law,
            domain=Domain(ANY, ANY, ANY, ANY),
            client=ClientTerms(request_s, response_s),
            server={},
            kv_bytes_per_token=1,
            device_memory_bytes=1,
        )

    return make
