"""Which CUDA graphs a server captures, and what becomes of a batch of 97. Rules of vLLM 0.32."""

from __future__ import annotations

from typing import Any

import pytest

from sim.config import EngineConfig
from sim.errors import InputError
from sim.latency.graph_flags import graphs_of, mode_of, settled_graphs
from sim.latency.graphs import GraphMode, Graphs, capture_sizes

FULL, PIECEWISE, NONE = GraphMode.FULL, GraphMode.PIECEWISE, GraphMode.NONE


def graphs(capability: tuple[int, int] = (9, 0), **flags: Any) -> Graphs:
    said = {"max_model_len": 4096, "max_num_batched_tokens": 8192, "max_num_seqs": 256, "num_gpu_blocks_override": 999}
    return settled_graphs(EngineConfig(**{**said, **flags}).settle(), capability)


def test_a_batch_of_97_with_100_seats() -> None:
    """104 is no size for 100 requests: between 96 and 100 no whole graph is left, only the pieces of 104."""
    before = graphs(max_num_seqs=100, cudagraph_capture_sizes=(1, 2, 4, *range(8, 201, 8)))
    assert before.run(96, 96, 0) == (96, FULL)
    assert before.run(97, 97, 0) == (104, PIECEWISE)
    after = graphs(max_num_seqs=100, cudagraph_capture_sizes=(1, 2, 4, *range(8, 201, 8), 100))
    assert after.run(97, 97, 0) == (100, FULL)
    assert after.run(101, 99, 3) == (104, PIECEWISE)
    assert graphs(max_num_seqs=100) == after, "vLLM 0.32 adds max_num_seqs by itself"


@pytest.mark.parametrize(
    ("flags", "decode", "mixed", "large"),
    [
        ({}, (8, FULL), (8, PIECEWISE), (600, NONE)),
        ({"compilation_config": {"cudagraph_mode": "full_decode_only"}}, (8, FULL), (5, NONE), (600, NONE)),
        ({"compilation_config": '{"cudagraph_mode": "PIECEWISE"}'}, (8, PIECEWISE), (8, PIECEWISE), (600, NONE)),
        ({"compilation_config": {"cudagraph_mode": "FULL"}}, (8, FULL), (8, FULL), (600, NONE)),
        ({"compilation_config": {"cudagraph_mode": "NONE"}}, (5, NONE), (5, NONE), (600, NONE)),
        ({"compilation_config": {"mode": 0}}, (8, FULL), (5, NONE), (600, NONE)),
        ({"compilation_config": {"mode": "stock_torch_compile"}}, (5, NONE), (5, NONE), (600, NONE)),
        ({"optimization_level": 0}, (5, NONE), (5, NONE), (600, NONE)),
        ({"optimization_level": 1}, (8, PIECEWISE), (8, PIECEWISE), (600, NONE)),
        ({"optimization_level": 3}, (8, FULL), (8, PIECEWISE), (600, NONE)),
        ({"enforce_eager": True}, (5, NONE), (5, NONE), (600, NONE)),
        ({"performance_mode": "interactivity"}, (5, FULL), (5, PIECEWISE), (600, NONE)),
        ({"max_cudagraph_capture_size": 4}, (5, NONE), (5, NONE), (600, NONE)),
        ({"cudagraph_capture_sizes": (6, 6, 20)}, (6, FULL), (6, PIECEWISE), (600, NONE)),
    ],
)
def test_how_steps_run(flags: dict[str, Any], decode: Any, mixed: Any, large: Any) -> None:
    found = graphs(**flags)
    assert found.run(5, 5, 0) == decode
    assert found.run(5, 2, 4) == mixed
    assert found.run(600, 600, 0) == large


def test_only_hoppers_attention_is_captured_for_any_step() -> None:
    said = {"compilation_config": {"cudagraph_mode": "FULL"}}
    assert graphs((9, 0), **said).run(5, 2, 4) == (8, FULL)
    assert graphs((8, 9), **said).run(5, 2, 4) == (8, PIECEWISE)


DRAFTS = {"spec_method": "ngram", "spec_tokens": 2, "draft_acceptance": 0.5}


def test_decodes_that_verify_drafts_are_whole_graphs_of_whole_decodes() -> None:
    """3 tokens each: sizes go up to whole multiples; a decode without its drafts fits none of them."""
    found = graphs(max_num_seqs=10, **DRAFTS)
    assert found.sizes == (1, 2, 3, 4, 6, 8, 12, 16, 24, 30, 32, 40, 48, 56)
    assert found.run(3 * 5, 5, 0) == (18, FULL)
    assert found.run(3 * 10, 10, 0) == (30, FULL)
    assert found.run(13, 5, 0) == (16, PIECEWISE)
    assert found.run(5, 5, 0) == (6, PIECEWISE)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"compilation_config": {"cudagraph_mode": "half"}}, "one of NONE, PIECEWISE"),
        ({"compilation_config": "{"}, "a JSON object"),
        ({"cudagraph_capture_sizes": ()}, "a list of batch sizes"),
        ({"cudagraph_capture_sizes": (0,)}, "a list of batch sizes"),
        ({"compilation_config": {"cudagraph_capture_sizes": 8}}, "a list of batch sizes"),
        ({"compilation_config": {"max_cudagraph_capture_size": "8"}}, "a whole number"),
        ({"cudagraph_capture_sizes": (8,), "max_cudagraph_capture_size": 9}, "8, the largest"),
        ({"cudagraph_capture_sizes": (8,), "compilation_config": {"cudagraph_capture_sizes": [8]}}, "none beside"),
    ],
)
def test_what_is_refused(flags: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        graphs(**flags)


def test_sizes_of_decodes_with_drafts() -> None:
    """Numbers of requests, 1, 2, 4, 8, ... and max_num_seqs, times their tokens: as vLLM 0.32 gave them."""
    assert capture_sizes(8192, 10, query_len=3) == (1, 2, 3, 4, 6, 8, 12, 16, 24, 30, 32, 40, 48, 56)


@pytest.mark.parametrize("mode", ["NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"])
@pytest.mark.parametrize("drafts", [{}, DRAFTS])
def test_mode_and_sizes_are_all_there_is_to_graphs(mode: str, drafts: dict[str, Any]) -> None:
    """A result names both: whoever reads it has the same graphs again."""
    found = graphs(compilation_config={"cudagraph_mode": mode}, **drafts)
    assert mode_of(found) == mode
    assert graphs_of(mode, found.sizes, found.query_len, 256) == found
