"""Ctrl-C, taken where it does no harm. Not for what it then means. The one idea: a handler of our own, for a while.

Signals reach the main thread only, and a program may handle Ctrl-C in its own way: in both cases nothing changes here.
"""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


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
