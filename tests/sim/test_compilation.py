"""`--compilation-config`: keys and modes as vLLM 0.32's CompilationConfig takes and refuses them."""

from __future__ import annotations

from typing import Any

import pytest

from sim.compilation import read_compilation
from sim.errors import InputError


@pytest.mark.parametrize(
    ("said", "mode", "graphs"),
    [
        ({}, None, None),
        ({"mode": 3, "cudagraph_mode": 2}, "VLLM_COMPILE", "FULL"),
        ({"mode": "dynamo_trace_once", "cudagraph_mode": "full_and_piecewise"}, "DYNAMO_TRACE_ONCE",
         "FULL_AND_PIECEWISE"),
        ({"mode": None, "cudagraph_mode": 0}, None, "NONE"),
        ('{"mode": 0, "cudagraph-mode": "piecewise"}', "NONE", "PIECEWISE"),
    ],
)  # fmt: skip
def test_modes(said: Any, mode: str | None, graphs: str | None) -> None:
    found = read_compilation(said)
    assert (found["mode"], found["cudagraph_mode"]) == (mode, graphs)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"mode": 7}, "compilation_config.mode: got 7, expected one of NONE, STOCK_TORCH_COMPILE"),
        ({"mode": -1}, "mode: got -1"),
        ({"mode": "1"}, "mode: got '1'"),
        ({"mode": True}, "mode: got True"),
        ({"cudagraph_mode": "foo"}, "cudagraph_mode: got 'foo', expected one of NONE, PIECEWISE"),
        ({"cudagraph_mode": 3}, "cudagraph_mode: got 3"),
        ({"level": 3}, "compilation_config: got 'level', expected a key that vLLM 0.32 has"),
        ({"full_cuda_graph": True}, "got 'full_cuda_graph'"),
        ({"cudagraph_mod": "FULL"}, "did you mean 'cudagraph_mode'"),
    ],
)
def test_what_vllm_refuses(said: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_compilation(said)
    assert message in str(caught.value)
