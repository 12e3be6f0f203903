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


@contextmanager
def handling_ctrl_c(handler: Callable[[], None]) -> Iterator[None]:
    """Call `handler` instead of raising KeyboardInterrupt."""
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not usual or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, lambda _number, _frame: handler())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def ctrl_c_waits() -> Iterator[None]:
    """Raise KeyboardInterrupt only after the block: for what takes a few instants and must be done whole."""
    came: list[bool] = []
    with handling_ctrl_c(lambda: came.append(True)):
        yield
    if came:
        raise KeyboardInterrupt
