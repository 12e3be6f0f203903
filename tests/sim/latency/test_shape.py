"""A step's totals, against plans added up by hand."""

from __future__ import annotations

from sim.core.step import StepPlan
from sim.latency import StepShape


def plan(scheduled: list[int], computed: list[int], partial: list[int] | None = None) -> StepPlan:
    made = StepPlan()
    made.num_scheduled_tokens, made.num_computed_tokens = scheduled, computed
    made.chunks = [i for i, n in enumerate(scheduled) if n > 1]
    made.partial = partial or []
    made.total_num_scheduled_tokens = sum(scheduled)
    return made


def test_pure_decode() -> None:
    shape = StepShape.from_plan(plan([1, 1, 1], [100, 200, 300]))
    assert shape == StepShape(
        num_tokens=3, num_seqs=3, decode_context=600, chunk_tokens=0, chunk_pairs=0.0, num_sampled=3
    )
    assert shape.mixed_context == 0


def test_a_prompt_alone_attends_to_itself_causally() -> None:
    """n tokens without context: n * n / 2 pairs, as token i sees i tokens."""
    shape = StepShape.from_plan(plan([1000], [0]))
    assert (shape.num_tokens, shape.chunk_tokens, shape.chunk_pairs) == (1000, 1000, 500_000.0)
    assert shape.decode_context == 0


def test_mixed_step_with_a_later_chunk_that_samples_nothing() -> None:
    """Rows of context 100 and 50; a chunk of 8 after 4000 (8 * 4000 + 8 * 8 / 2 pairs), not the prompt's last."""
    shape = StepShape.from_plan(plan([1, 8, 1], [100, 4000, 50], partial=[1]))
    assert shape == StepShape(
        num_tokens=10, num_seqs=3, decode_context=150, chunk_tokens=8, chunk_pairs=32_032.0, num_sampled=2
    )
    assert shape.mixed_context == 150


def test_chunking_a_prompt_loses_no_attention() -> None:
    """8192 tokens at once or in four chunks are the same query-key pairs."""
    whole = StepShape.from_plan(plan([8192], [0]))
    parts = [StepShape.from_plan(plan([2048], [start])) for start in range(0, 8192, 2048)]
    assert sum(part.chunk_pairs for part in parts) == whole.chunk_pairs
