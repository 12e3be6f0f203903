"""A bar for long work: simulated time, requests done and their rate. On stderr, and only where somebody looks on."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import Progress, ProgressColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.progress import Task

_EVERY = 64
"""Requests between two updates: the bar must not cost what it measures."""


class _RateColumn(ProgressColumn):
    def render(self, task: Task) -> Text:
        """Requests per second of wall time."""
        return Text(f"{task.completed / task.elapsed:,.0f} requests/s" if task.elapsed else "")


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[float, int], None]]:
    """Yields what to call with the simulated seconds and the requests done."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TextColumn("{task.completed:,.0f} requests"),
        TextColumn("{task.fields[simulated_s]:,.0f} s simulated"),
        _RateColumn(),
        TimeElapsedColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(title, total=None, simulated_s=0.0)

        def update(simulated_s: float, done: int) -> None:
            if done % _EVERY == 0:
                progress.update(task, completed=done, simulated_s=simulated_s)

        yield update
