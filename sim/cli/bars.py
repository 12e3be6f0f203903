"""The bars of `sim.cli.progress`: requests done, simulated time and speed, drawn with rich on stderr.

Not for who looks on at all (progress.py asks first; a terminal that cannot write over its last line is left alone
here). The one idea: each column has the width of the terminal from which on there is room for it.
"""

from __future__ import annotations

from contextlib import contextmanager
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from sim.plurals import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.progress import Task

_EVERY_S = 0.1
"""Wall seconds between two updates: the bar must not cost what it measures."""


class _DoneColumn(ProgressColumn):
    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit

    def render(self, task: Task) -> Text:
        """How many are done, of how many where that is known."""
        if task.total is None:
            return Text(counted(task.completed, self._unit))
        return Text(f"{task.completed:,.0f}/{counted(task.total, self._unit)}")


class _RateColumn(ProgressColumn):
    def render(self, task: Task) -> Text:
        """Requests per second of wall time."""
        return Text(f"{task.completed / task.elapsed:,.0f} requests/s" if task.elapsed else "")


def _moves(console: Console) -> bool:
    """Whether somebody looks on at a terminal that can write over its last line."""
    return console.is_terminal and not console.is_dumb_terminal


def _progress(*columns: tuple[ProgressColumn, int]) -> Progress:
    """A bar of the columns for which this terminal has room; each has the width from which on it is shown."""
    console = Console(stderr=True)
    shown = [column for column, least in columns if console.width >= least]
    return Progress(*shown, console=console, transient=True, disable=not _moves(console))


def _title() -> TextColumn:
    return TextColumn("{task.description}")


@contextmanager
def progress_bar(title: str, total: int | None = None) -> Iterator[Callable[[float, int], None]]:
    """`sim.cli.progress.progress_bar`, for somebody who looks on."""
    requests = _DoneColumn("request")
    simulated = TextColumn("{task.fields[simulated_s]:,.0f} s simulated")
    columns = ((_title(), 0), (BarColumn(bar_width=24), 110), (requests, 0), (simulated, 60), (_RateColumn(), 84))
    with _progress(*columns, (TimeElapsedColumn(), 40)) as progress:
        task = progress.add_task(title, total=total, simulated_s=0.0)
        next_s = 0.0

        def update(simulated_s: float, done: int) -> None:
            nonlocal next_s
            if monotonic() >= next_s or done == total:
                next_s = monotonic() + _EVERY_S
                progress.update(task, completed=done, simulated_s=simulated_s)

        yield update


@contextmanager
def working(title: str) -> Iterator[None]:
    """`sim.cli.progress.working`, for somebody who looks on."""
    console = Console(stderr=True)
    if not _moves(console):
        yield
        return
    with console.status(title):
        yield


class _PaceColumn(ProgressColumn):
    def render(self, task: Task) -> Text:
        """How many in a minute of wall time: these are things that take seconds."""
        return Text(f"{60 * task.completed / task.elapsed:,.0f}/min" if task.elapsed and task.completed else "")


class _LeftColumn(ProgressColumn):
    def render(self, task: Task) -> Text:
        """The time left, at the pace so far."""
        if task.total is None or not task.elapsed or not task.completed or task.finished:
            return Text("")
        left_s = (task.total - task.completed) * task.elapsed / task.completed
        return Text(f"about {timedelta(seconds=round(left_s))} left")


@contextmanager
def counting(title: str, unit: str, total: int | None = None) -> Iterator[Callable[[], None]]:
    """`sim.cli.progress.counting`, for somebody who looks on."""
    columns = ((_title(), 0), (BarColumn(bar_width=24), 80), (_DoneColumn(unit), 0), (_PaceColumn(), 60))
    with _progress(*columns, (TimeElapsedColumn(), 40), (_LeftColumn(), 60)) as progress:
        task = progress.add_task(title, total=total)
        yield lambda: progress.advance(task)
