"""How many of something, in words. Not for numbers with units (`sim.report.units`). The one idea: one is no plural."""

from __future__ import annotations


def counted(number: float, noun: str) -> str:
    """How many of something whose plural has an s: 1 step, 2,000 requests, no 1 requests."""
    told = f"{number:,.0f}"
    return f"{told} {noun}" if told == "1" else f"{told} {noun}s"
