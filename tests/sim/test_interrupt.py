"""Ctrl-C is taken where it does no harm, and nowhere else than asked; what ends a process lets it clear away."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading

import pytest

from sim.interrupt import SecondCtrlC, ctrl_c_waits, exiting_on, handling_ctrl_c

pytestmark = pytest.mark.usefixtures("ctrl_c_as_usual")


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


class TestExit:
    """In a process of its own: it ends."""

    def run(self, body: str) -> subprocess.CompletedProcess[str]:
        script = (
            "import signal, time\nfrom sim.interrupt import exiting_on\n"
            "def term(): signal.raise_signal(signal.SIGTERM)\n"
            f"with exiting_on(signal.SIGTERM):\n{textwrap.indent(textwrap.dedent(body), '    ')}"
        )
        return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)

    def test_what_was_begun_is_cleared_away(self) -> None:
        done = self.run("""
            try:
                term()
            finally:
                print("cleared away")
            print("gone on")
            """)
        assert (done.returncode, done.stdout, done.stderr) == (143, "cleared away\n", "")

    @pytest.mark.parametrize(
        "lost",
        [
            "class Last:\n    def __del__(self): term()\nLast()",
            "try: term()\nexcept BaseException: pass",
            "import weakref\nclass A: pass\na = A()\nr = weakref.ref(a, lambda _: term())\ndel a",
        ],
        ids=["finalizer", "caught", "weak reference"],
    )
    def test_it_is_raised_again_where_it_got_lost(self, lost: str) -> None:
        """As in the loading of a compiled module, which clears whatever a handler raised meanwhile."""
        done = self.run(
            f"{lost}\nprint('gone on', flush=True)\nfor _ in range(3000): time.sleep(0.01)\nprint('ended')\n"
        )
        assert (done.returncode, done.stdout) == (143, "gone on\n")

    def test_clearing_away_takes_its_time(self) -> None:
        """Longer than the pause after which it would be raised again, with an error of its own, and asked twice."""
        done = self.run("""
            try:
                term()
            finally:
                for _ in range(30):
                    try:
                        time.sleep(0.02)
                        raise FileNotFoundError
                    except FileNotFoundError:
                        time.sleep(0.01)
                term()
                print("cleared away")
            """)
        assert (done.returncode, done.stdout, done.stderr) == (143, "cleared away\n", "")

    def test_a_handler_of_somebody_else_stays(self) -> None:
        def theirs(_number: int, _frame: object) -> None: ...

        before = signal.signal(signal.SIGTERM, theirs)
        try:
            with exiting_on(signal.SIGTERM):
                assert signal.getsignal(signal.SIGTERM) is theirs
        finally:
            signal.signal(signal.SIGTERM, before)

    def test_afterwards_all_is_as_it_was(self) -> None:
        before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
        try:
            with pytest.raises(SystemExit) as caught, exiting_on(signal.SIGHUP):
                signal.raise_signal(signal.SIGHUP)
            assert caught.value.code == 129
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
            assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
            assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
        finally:
            signal.signal(signal.SIGHUP, before)
