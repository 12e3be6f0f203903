"""Signals, taken where they do no harm. Not for what they then mean. The one idea: a handler of our own, for a while.

Signals reach the main thread only, and a program may handle them in its own way: in both cases nothing changes here.
"""

from __future__ import annotations

import signal
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_AGAIN_S = 0.1


class _Handler:
    """A handler of ours, so that one within another is told from a program's own."""

    def __init__(self, handler: Callable[[], None]) -> None:
        self._handler = handler

    def __call__(self, _number: int, _frame: object) -> None:
        self._handler()


@contextmanager
def handling_ctrl_c(handler: Callable[[], None]) -> Iterator[None]:
    """Call `handler` instead of raising KeyboardInterrupt. Within another such block this one's handler counts."""
    before = signal.getsignal(signal.SIGINT)
    usual = before is signal.default_int_handler or isinstance(before, _Handler)
    if not usual or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, _Handler(handler))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def ctrl_c_waits() -> Iterator[None]:
    """Let Ctrl-C take effect only after the block: for what takes a few instants and must be done whole."""
    came: list[bool] = []
    with handling_ctrl_c(lambda: came.append(True)):
        yield
    if came:
        signal.raise_signal(signal.SIGINT)


class SecondCtrlC:
    """A handler that forgives one Ctrl-C, of which `tell` hears, and raises KeyboardInterrupt at the next."""

    def __init__(self, tell: Callable[[], None]) -> None:
        self.first_came = False
        """Set it where one has been taken elsewhere."""
        self._tell = tell

    def __call__(self) -> None:
        if self.first_came:
            raise KeyboardInterrupt
        self.first_came = True
        self._tell()


@contextmanager
def exiting_on(*stops: signal.Signals) -> Iterator[None]:
    """End by SystemExit (128 + the signal's number) on signals that would end a process on the spot, so that what was
    begun is cleared away.
    """
    exits = _Exit()
    ours = [stop for stop in stops if signal.getsignal(stop) is signal.SIG_DFL]
    for stop in ours:
        signal.signal(stop, exits)
    try:
        yield
    finally:
        exits.withdraw()
        for stop in ours:
            signal.signal(stop, signal.SIG_DFL)


class _Exit:
    """Raises SystemExit until it is one that goes up: what a handler raises is lost where it comes within a finalizer,
    or while a compiled module loads. While it goes up, nothing more is raised into what clears away.
    """

    def __init__(self) -> None:
        self._raised: SystemExit | None = None

    def __call__(self, number: int, _frame: object) -> None:
        if self._raised is None:
            self._raised = SystemExit(128 + number)
            signal.signal(signal.SIGALRM, self)
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
        if not self._goes_up():
            raise self._raised

    def _goes_up(self) -> bool:
        """Whether some `finally` or `except` further out is at work on it."""
        error = sys.exc_info()[1]
        while error is not None and error is not self._raised:
            error = error.__context__
        return error is not None

    def withdraw(self) -> None:
        """Nothing is to be raised any more."""
        if self._raised is not None:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
