"""CUDA graphs: vLLM's own capture sizes, the staircase that they make, and what a price has to do with it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.errors import InputError
from sim.latency import Domain, FusedLaw, Graphs, Profile, StepShape, capture_sizes

TO_248 = (1, 2, 4, *range(8, 249, 8))


@pytest.mark.parametrize(
    ("budget", "seqs", "sizes"),
    [  # as vLLM 0.32's own VllmConfig._set_cudagraph_sizes gave them
        (8192, 1024, (*TO_248, *range(256, 513, 16))),
        (2048, 256, (*TO_248, *range(256, 513, 16))),
        (8192, 64, (1, 2, 4, *range(8, 129, 8))),
        (8192, 37, (1, 2, 4, 8, 16, 24, 32, 37, 40, 48, 56, 64, 72)),
        (8192, 500, (*TO_248, *range(256, 497, 16), 500, 512)),
        (100, 60, (1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 60, 64, 72, 80, 88, 96, 100)),
        (100, 1000, (1, 2, 4, *range(8, 97, 8), 100)),
        (300, 200, (*TO_248, 256, 272, 288, 300)),  # 200 is one of the first
        (8192, 1, (1, 2)),
    ],
)
def test_the_sizes_that_vllm_captures(budget: int, seqs: int, sizes: tuple[int, ...]) -> None:
    assert capture_sizes(budget, seqs) == sizes


def test_blackwell_captures_up_to_1024() -> None:
    assert capture_sizes(8192, 1024, capability=(10, 0))[-1] == 1024
    assert capture_sizes(8192, 1024, capability=(12, 0))[-1] == 512


def test_the_smallest_graph_that_holds_a_step() -> None:
    decodes_only, all_steps = Graphs((1, 2, 4, 8)), Graphs((1, 2, 4, 8), mixed=True)
    assert [decodes_only.padded(n, 0) for n in range(1, 11)] == [1, 2, 4, 4, 8, 8, 8, 8, 9, 10]
    assert [decodes_only.padded(n, 2) for n in range(2, 6)] == [2, 3, 4, 5]
    assert [all_steps.padded(n, 2) for n in range(2, 11)] == [2, 4, 4, 8, 8, 8, 8, 9, 10]
    assert Graphs().padded(3, 0) == 3


@pytest.mark.parametrize("sizes", [(0, 1), (2, 1), (1, 1), (-4,)])
def test_impossible_sizes(sizes: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="expected ascending batch sizes from 1"):
        Graphs(sizes)


LAW = FusedLaw(
    step_s=1e-3, row_s=0, weight_read_s=0, batch_slowdown=0, token_s=1e-5, sharpness=1, context_s=0,
    mixed_context_s=0, pair_s=0, elementwise_s=1e-5, eager_s=5e-3, graphs=Graphs((1, 2, 4, 8)),
)  # fmt: skip


def decodes(n: int) -> StepShape:
    return StepShape(n, n, 0, 0, 0.0, n)


def chunk(n: int) -> StepShape:
    return StepShape(n, 1, 0, n, 0.0, 1)


def test_a_price_climbs_by_graphs() -> None:
    """1 ms, and 20 us for each token that the graph computes; without a graph the tokens as they are, and 5 ms more."""
    assert LAW.price(decodes(5)).device_s == LAW.price(decodes(8)).device_s == pytest.approx(1.16e-3)
    assert LAW.price(decodes(9)).device_s == pytest.approx(6.18e-3)
    assert LAW.price(chunk(5)).device_s == pytest.approx(6.10e-3)


def test_piecewise_graphs_pad_chunks_but_are_not_one_graph() -> None:
    law = replace(LAW, graphs=Graphs((1, 2, 4, 8), mixed=True))
    assert law.price(chunk(5)).device_s == pytest.approx(6.16e-3)
    assert law.price(chunk(9)).device_s == pytest.approx(6.18e-3)


def test_a_profile_keeps_its_graphs(constant_profile, tmp_path) -> None:
    some = (0.0, 1e6)
    profile = replace(constant_profile(1e-3), law=LAW, domain=Domain(some, some, some, some))
    profile.save(tmp_path / "p.json")
    assert Profile.load(tmp_path / "p.json").law == LAW


def test_a_clipped_shape_can_be_priced() -> None:
    """Counts stay whole numbers, as a graph is looked up by them."""
    domain = Domain((1.0, 6.0), (1.0, 6.0), (0.0, 10.0), (0.0, 10.0))
    assert LAW.price(domain.clip(decodes(50))).device_s == pytest.approx(1.16e-3)
