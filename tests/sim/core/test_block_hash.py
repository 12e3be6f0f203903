"""Block identity: equal text after equal text is the same block, however it is cut into pieces."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.conformance import compare, read_cases
from sim.core.block_hash import BlockHasher, OwnTextHasher

GOLDEN = Path(__file__).parents[2] / "golden"


def tokens(pieces, output_content, n):
    """The text itself: each token named by its content and position."""
    text = [(content, position) for content, length in pieces for position in range(length)]
    return (text + [(output_content, position) for position in range(n)])[:n]


piece_lists = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 9)), min_size=1, max_size=5)


@given(a=piece_lists, b=piece_lists, block_size=st.integers(1, 8))
def test_blocks_are_equal_exactly_where_the_text_up_to_their_end_is(a, b, block_size):
    num_blocks = 6
    first = BlockHasher(tuple(a), 7, block_size).upto(num_blocks)
    second = BlockHasher(tuple(b), 7, block_size).upto(num_blocks)
    for index in range(num_blocks):
        end = (index + 1) * block_size
        same = tokens(a, 7, end) == tokens(b, 7, end)
        # Pieces that meet inside a block may be cut differently for the same text only if a content follows itself,
        # which starts from its position 0 again and so is another text.
        assert (first[index] == second[index]) == same


def test_hashes_are_made_once_and_in_any_portion():
    at_once = BlockHasher(((1, 10), (2, 30)), 3, 4).upto(12)
    hasher = BlockHasher(((1, 10), (2, 30)), 3, 4)
    for n in (1, 3, 3, 12):
        hasher.upto(n)
    assert hasher.hashes == at_once


def test_owners_never_share_a_block():
    first, second = OwnTextHasher(0).upto(1000), OwnTextHasher(1).upto(1000)
    assert len({*first, *second}) == 2000


@pytest.mark.parametrize(
    "family", ["prefix", "pressure", "priority", "midprio", "async_spec", "ties", "smallblocks", "wild"]
)
def test_own_text_hashed_late_decides_as_if_hashed_at_once(family, monkeypatch):
    """Recorded loads, each request with text of its own: hashing when blocks are freed must not show in any step."""
    for case in read_cases(GOLDEN / f"{family}.jsonl.gz"):
        case["config"]["enable_prefix_caching"] = True
        for index, spec in enumerate(case["requests"]):
            spec["prompt"] = [[2_000_000 + index, sum(n for _, n in spec["prompt"])]]
        case["steps"] = decisions(case, monkeypatch, BlockHasher)
        monkeypatch.setattr("sim.conformance.BlockHasher", lambda pieces, _output, _size: OwnTextHasher(pieces[0][0]))
        assert compare(case) is None, case["case"]


def decisions(case, monkeypatch, hasher):
    """What the core decides with plain hashing, as a recording."""
    from sim import conformance

    monkeypatch.setattr("sim.conformance.BlockHasher", hasher)
    driver = conformance._Driver({**case, "steps": []}, conformance.make_scheduler)
    recording: list[dict] = []
    schedule, process = driver._schedule, driver._process

    def record_schedule():
        driver.recorded = recording
        step, found = schedule()
        if step is not None:
            assert found is not None
            recording.append({**found[3], "finished": []})
            driver.steps += 1
        return step, None

    def record_process(step, plan):
        alive = {index: request.is_finished for index, request in driver.requests.items()}
        process(step, plan)
        if step is not None:
            recording[step]["finished"] = [
                driver.specs[index]["id"]
                for index, request in sorted(driver.requests.items())
                if request.is_finished and not alive[index]
            ]

    driver._schedule, driver._process = record_schedule, record_process
    driver.run()
    return recording
