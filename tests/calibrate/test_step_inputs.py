"""A step's arrays: who computes which token, and where its K and V go."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrate.harness.inputs import InputBatch, Piece

BLOCK = 4


def _batch() -> tuple[InputBatch, int, int]:
    """Sequence a: tokens 100.. in blocks 7, 3; sequence b: tokens 200.. in blocks 5, 9, 2."""
    batch = InputBatch(max_rows=4, max_tokens=12, block_size=BLOCK)
    a, b = batch.add(np.arange(100, 106)), batch.add(np.arange(200, 210))
    batch.hold(a, [7, 3], 2)
    batch.hold(b, [5, 9, 2], 3)
    return batch, a, b


def test_a_decode_row_and_a_chunk_lie_one_after_the_other_the_row_first():
    batch, a, b = _batch()
    inputs = batch.inputs([Piece(b, 3, 6, samples=False), Piece(a, 5, 1, samples=True)])
    assert inputs.num_decodes == 1
    assert inputs.tokens.tolist() == [105, 203, 204, 205, 206, 207, 208]
    assert inputs.positions.tolist() == [5, 3, 4, 5, 6, 7, 8]
    # Position 5 of a is in its second block (3), offset 1; b goes from block 5's last slot over block 9 to block 2.
    assert inputs.slots.tolist() == [13, 23, 36, 37, 38, 39, 8]
    assert inputs.sampled.tolist() == [0]
    assert [piece.row for piece in inputs.sampling] == [a]
    assert inputs.chunks == [(6, 3)]
    assert inputs.decodes == [5]


def test_a_sampled_token_is_the_next_step_s_input():
    batch, a, _ = _batch()
    batch.append(a, 6, 42)
    assert batch.inputs([Piece(a, 6, 1, samples=True)]).tokens.tolist() == [42]


def test_a_dropped_row_is_given_to_the_next_sequence_without_old_blocks():
    batch, a, _ = _batch()
    batch.drop(a)
    again = batch.add(np.arange(3))
    assert again == a
    assert batch.num_blocks(again) == 0
    batch.hold(again, [1], 1)
    assert batch.inputs([Piece(again, 0, 3, samples=True)]).slots.tolist() == [4, 5, 6]


def test_every_sampling_piece_names_its_last_token():
    batch, a, b = _batch()
    inputs = batch.inputs([Piece(a, 0, 4, samples=True), Piece(b, 0, 3, samples=True)])
    assert inputs.sampled.tolist() == [3, 6]


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 20), st.booleans()), min_size=1, max_size=8))
def test_slots_of_a_step_are_all_different_and_never_block_0(rows):
    batch = InputBatch(len(rows), 32, BLOCK)
    pieces, block = [], 1
    for count, start, samples in rows:
        row = batch.add(np.zeros(count + start, dtype=np.int64))
        total = -(-(count + start) // BLOCK)
        batch.hold(row, list(range(block, block + total)), total)
        block += total
        pieces.append(Piece(row, start, count, samples))
    inputs = batch.inputs(pieces)
    assert len(set(inputs.slots.tolist())) == inputs.num_tokens == sum(count for count, _, _ in rows)
    assert inputs.slots.min() >= BLOCK
    assert sorted(zip(inputs.counts.tolist(), inputs.starts.tolist(), strict=True)) == sorted(
        (count, start) for count, start, _ in rows
    )


def test_more_rows_than_there_are_is_a_bug_of_the_caller():
    batch = InputBatch(1, 8, BLOCK)
    batch.add(np.arange(2))
    with pytest.raises(IndexError):
        batch.add(np.arange(2))
