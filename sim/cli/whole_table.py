"""A table of figures on a terminal. The one idea: it is as wide as it must be: a number that is cut is another number.

Not for what stands in it. In a terminal that is narrower, its lines go on below themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from rich.table import Table

_ANY_WIDTH = 10_000


def show(table: Table) -> None:
    """Print a table whole."""
    console = Console()
    needed = console.measure(table, options=console.options.update(max_width=_ANY_WIDTH)).maximum
    Console(width=max(console.width, needed)).print(table)
