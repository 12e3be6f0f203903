"""Copies on the link: one after another each way, both ways sharing, nothing lost."""

from __future__ import annotations

import pytest

from sim.engine.link import Link, Way
from sim.host import HostLink

MB = 1_000_000


def link(latency_s: float = 0.0, both: float = 150.0) -> Link:
    """Blocks of 1 MB, 100 MB/s one way."""
    return Link(HostLink(MB, 100.0 * MB, both * MB, latency_s))


def test_one_copy_takes_its_latency_and_its_bytes():
    pcie = link(latency_s=0.5)
    assert pcie.end_of(pcie.copy(Way.OUT, 200, 1.0)) == pytest.approx(1.0 + 0.5 + 2.0)
    assert pcie.busy_s == pytest.approx(2.5)


def test_copies_one_way_queue():
    pcie = link(latency_s=0.5)
    first, second = pcie.copy(Way.IN, 100, 0.0), pcie.copy(Way.IN, 100, 0.1)
    assert pcie.end_of(second) == pytest.approx(3.0)
    assert pcie.end_of(first) == pytest.approx(1.5)


def test_both_ways_share_what_the_link_carries():
    """150 MB/s together: 75 each while both flow. 75 MB are through after 1 s, the other 125 MB go on alone."""
    pcie = link()
    out, into = pcie.copy(Way.OUT, 75, 0.0), pcie.copy(Way.IN, 200, 0.0)
    assert pcie.end_of(into) == pytest.approx(1.0 + 1.25)
    assert out.end_s == pytest.approx(1.0)
    assert pcie.busy_s == pytest.approx(2.25)


def test_a_link_that_carries_both_ways_in_full_shares_nothing():
    pcie = link(both=250.0)
    pcie.copy(Way.OUT, 100, 0.0)
    assert pcie.end_of(pcie.copy(Way.IN, 100, 0.0)) == pytest.approx(1.0)


def test_a_copy_that_comes_later_slows_the_one_that_flows():
    """100 MB alone for 0.5 s, then at 75 MB/s beside the other."""
    pcie = link()
    first = pcie.copy(Way.OUT, 100, 0.0)
    pcie.copy(Way.IN, 100, 0.5)
    assert pcie.end_of(first) == pytest.approx(0.5 + 50 / 75)


def test_a_copy_that_waits_for_its_first_byte_slows_nobody():
    pcie = link(latency_s=0.5)
    pcie.copy(Way.OUT, 100, 0.0)
    late = pcie.copy(Way.IN, 100, 1.0)
    assert pcie.end_of(late) == pytest.approx(2.5)


def test_time_may_pass_in_pieces():
    """Ends do not depend on how often anybody looks."""
    ends = []
    for looks in ((), (0.1, 0.2, 0.30001, 0.9, 1.4)):
        pcie = link(latency_s=0.01)
        copies = [pcie.copy(Way.OUT, 90, 0.0), pcie.copy(Way.IN, 70, 0.05)]
        for now_s in looks:
            pcie.advance(now_s)
        ends.append([pcie.end_of(copy) for copy in copies])
    assert ends[0] == pytest.approx(ends[1])


def test_an_idle_link_is_not_busy():
    pcie = link()
    pcie.end_of(pcie.copy(Way.OUT, 100, 0.0))
    pcie.advance(50.0)
    pcie.end_of(pcie.copy(Way.OUT, 100, 60.0))
    assert pcie.busy_s == pytest.approx(2.0)
