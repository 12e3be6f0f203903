"""What drafting and verifying cost: shares of a law whose every term is known."""

from __future__ import annotations

import pytest

from sim.core.step import StepPlan
from sim.drafters import NO_DRAFTER, DrafterSize
from sim.latency import FusedLaw, Graphs, StepShape
from sim.latency.drafter import drafting_s

LAW = FusedLaw(
    step_s=0.0, row_s=1e-6, weight_read_s=1e-2, batch_slowdown=0.0, token_s=1e-5, sharpness=1.0, context_s=1e-7,
    mixed_context_s=2e-7, pair_s=1e-9,
)  # fmt: skip


def plan(rows: list[tuple[int, int]], drafts: dict[int, int]) -> StepPlan:
    """(tokens, context before) of each request, and which of these tokens are drafts."""
    made = StepPlan()
    made.num_scheduled_tokens = [n for n, _ in rows]
    made.num_computed_tokens = [before for _, before in rows]
    made.chunks = [i for i, (n, _) in enumerate(rows) if n > 1]
    made.num_drafts = drafts
    made.total_num_scheduled_tokens = sum(n for n, _ in rows)
    return made


def test_a_decode_that_verifies_drafts_reads_its_context_once():
    """4 tokens of one sequence after 1000: a decode row with more tokens, no chunk of a prompt."""
    verifying = StepShape.from_plan(plan([(4, 1000), (1, 500)], {0: 3}))
    assert verifying == StepShape(5, 2, 1500, 0, 0.0, 2, num_drafts=3)
    beside_a_prompt = StepShape.from_plan(plan([(4, 1000), (100, 0)], {0: 3}))
    assert beside_a_prompt == StepShape(104, 2, 1000, 100, 5000.0, 2, num_drafts=3)


def test_verifying_costs_tokens_and_rows():
    plain, verifying = StepShape(10, 10, 9000, 0, 0.0, 10), StepShape(40, 10, 9000, 0, 0.0, 10, num_drafts=30)
    more = LAW.price(verifying).device_s - LAW.price(plain).device_s
    assert more == pytest.approx(30 * 1e-5 + 30 * 1e-6)


def test_passes_of_a_drafter():
    """The first over all tokens of the step, two more over one each; the context is read in every one."""
    drafter = DrafterSize(passes=3, weights_read=0.1, weights_kept=0.1, kv=0.05)
    shape = StepShape(40, 10, 9000, 0, 0.0, 10, num_drafts=30)
    first, later = 1e-2 + 40 * 1e-5 + 10 * 1e-6, 1e-2 + 10 * 1e-5 + 10 * 1e-6
    assert drafting_s(LAW, drafter, shape) == pytest.approx(0.1 * (first + 2 * later) + 0.05 * 3 * 9000 * 1e-7)
    assert drafting_s(LAW, NO_DRAFTER, shape) == 0.0


def test_a_drafter_takes_prompts_in_as_well():
    drafter = DrafterSize(passes=1, weights_read=0.1, weights_kept=0.1, kv=0.05)
    shape = StepShape(100, 1, 0, 100, 5000.0, 1)
    assert drafting_s(LAW, drafter, shape) == pytest.approx(0.1 * (1e-2 + 100e-5 + 1e-6) + 0.05 * 5000e-9)


def test_graphs_of_whole_decodes():
    """10 decodes of 4 tokens are one graph of 40; 39 tokens are not, and are launched piece by piece."""
    graphs = Graphs((8, 40), mixed=True, query_len=4)
    law = FusedLaw(0.0, 0.0, 0.0, 0.0, 1e-5, 1.0, 0.0, 0.0, 0.0, eager_s=1.0, graphs=graphs)
    assert law.price(StepShape(40, 10, 0, 0, 0.0, 10, 30)).device_s == pytest.approx(40e-5)
    assert law.price(StepShape(39, 10, 0, 0, 0.0, 10, 29)).device_s == pytest.approx(1 + 40e-5)
