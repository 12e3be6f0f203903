"""A bar for long work: requests done, simulated time and speed. On stderr, and only where somebody looks on.

Not for drawing it (bars.py). The one idea: rich takes as long to load as some hundred requests to simulate, so it is
loaded only where there may be somebody.
"""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

_SAID_TO_BE_TERMINALS = ("FORCE_COLOR", "TTY_COMPATIBLE")
"""Environment variables that rich believes more than it does the operating system."""


def progress_bar(title: str, total: int | None = None) -> AbstractContextManager[Callable[[float, int], None]]:
    """Gives what to call with the simulated seconds and the requests done; `total` of them, where that is known."""
    if not _may_be_seen():
        return nullcontext(lambda _simulated_s, _done: None)
    from sim.cli import bars

    return bars.progress_bar(title, total)


def working(title: str) -> AbstractContextManager[None]:
    """A line that something is being done, as long as it is, where somebody looks on."""
    if not _may_be_seen():
        return nullcontext()
    from sim.cli import bars

    return bars.working(title)


def counting(title: str, unit: str, total: int | None = None) -> AbstractContextManager[Callable[[], None]]:
    """Gives what to call whenever one more `unit` is done, of `total` where that is known."""
    if not _may_be_seen():
        return nullcontext(lambda: None)
    from sim.cli import bars

    return bars.counting(title, unit, total)


def _may_be_seen() -> bool:
    """Whether stderr is a terminal, or said to be one. What that is worth is rich's to decide."""
    if sys.stderr is None:  # as Python has it where it was closed (`2>&-`)
        return False
    return sys.stderr.isatty() or any(name in os.environ for name in _SAID_TO_BE_TERMINALS)
