"""Host memory's blocks: written, read, and the least recently used gone first."""

from __future__ import annotations

from sim.core.host_tier import HostTier


def stored(num_blocks: int, *hashes: int) -> HostTier:
    tier = HostTier(num_blocks)
    assert tier.begin_store(hashes) == list(hashes)
    tier.end_store(hashes)
    return tier


def test_a_block_can_be_read_when_it_is_written() -> None:
    tier = HostTier(4)
    tier.begin_store([1, 2])
    assert tier.holds(1)
    assert not tier.is_readable(1)
    tier.end_store([1, 2])
    assert tier.is_readable(1)
    assert tier.num_used_blocks == 2


def test_what_is_there_is_not_stored_again() -> None:
    tier = stored(4, 1, 2)
    assert tier.begin_store([1, 2, 3]) == [3]


def test_the_least_recently_used_goes() -> None:
    """The head of a sequence counts as used last, so it stays longest."""
    tier = stored(3, 1, 2, 3)
    tier.use([1, 2])
    assert tier.begin_store([4, 5]) == [4, 5]
    assert [tier.holds(block) for block in (1, 2, 3)] == [True, False, False]


def test_what_is_read_or_written_or_offered_stays() -> None:
    tier = stored(3, 1, 2, 3)
    tier.begin_load([1])
    assert tier.begin_store([2, 4]) == [4]
    assert [tier.holds(block) for block in (1, 2, 3, 4)] == [True, True, False, True]
    assert tier.begin_store([5, 6]) is None, "only 2 may go: 1 is being read, 4 is being written"
    assert tier.holds(2)
    tier.end_load([1])
    tier.end_store([4])
    assert tier.begin_store([5, 6]) == [5, 6]


def test_more_than_there_is_room_for_is_not_stored() -> None:
    tier = HostTier(2)
    assert tier.begin_store([1, 2, 3]) is None
    assert tier.num_used_blocks == 0


def test_two_may_read_the_same() -> None:
    tier = stored(1, 1)
    tier.begin_load([1])
    tier.begin_load([1])
    tier.end_load([1])
    assert tier.begin_store([2]) is None
    tier.end_load([1])
    assert tier.begin_store([2]) == [2]
