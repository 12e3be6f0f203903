"""Types of numbers on the command line.

The one idea: NaN is within every range for a comparison, and infinity within half of them, so both are looked for.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click import Context, Parameter


class FiniteRange(click.FloatRange):
    """A finite number in a range."""

    def convert(self, value: Any, param: Parameter | None, ctx: Context | None) -> Any:
        """As `click.FloatRange`, without NaN and infinity."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number
