"""Ctrl-C is taken where it does no harm, and nowhere else than asked."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from sim.interrupt import SecondCtrlC, ctrl_c_waits, handling_ctrl_c


@pytest.fixture(autouse=True)
def ctrl_c_as_usual():
    """As a terminal leaves it: pytest-xdist's workers ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_the_handler_is_called_inside_and_only_there() -> None:
    came: list[str] = []
    with handling_ctrl_c(lambda: came.append("inside")):
        ctrl_c()
    assert came == ["inside"]
    with pytest.raises(KeyboardInterrupt):
        ctrl_c()


def test_it_waits_for_the_block_and_then_is_raised() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), ctrl_c_waits():
        ctrl_c()
        done.append("the rest of the block")
    assert done
    with ctrl_c_waits():
        pass


def test_the_inner_of_two_blocks_counts_and_what_waited_goes_to_the_outer() -> None:
    came: list[str] = []
    with handling_ctrl_c(lambda: came.append("outer")):
        with handling_ctrl_c(lambda: came.append("inner")):
            ctrl_c()
        ctrl_c()
        with ctrl_c_waits():
            ctrl_c()
            came.append("rest of the block")
    assert came == ["inner", "outer", "rest of the block", "outer"]


def test_the_first_is_told_and_the_second_raised() -> None:
    told: list[str] = []
    second = SecondCtrlC(lambda: told.append("once"))
    with pytest.raises(KeyboardInterrupt), handling_ctrl_c(second):
        ctrl_c()
        assert second.first_came
        ctrl_c()
    assert told == ["once"]


def test_a_programs_own_handler_stays() -> None:
    came: list[str] = []
    signal.signal(signal.SIGINT, lambda *_: came.append("theirs"))
    with handling_ctrl_c(lambda: came.append("ours")):
        ctrl_c()
    assert came == ["theirs"]


def test_another_thread_gets_no_signals_and_no_error() -> None:
    done = []

    def work() -> None:
        with handling_ctrl_c(lambda: None):
            done.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [signal.default_int_handler]
