"""Numbers as a person reads them: times in the unit that fits, shares in percent.

Not for what is said of them. The one idea: pictures, pages, tables and sentences spell a number alike.
"""

from __future__ import annotations

import math


def as_ms(value: float) -> str:
    """Three figures that a person reads: 0.85 ms, 11.8 ms, 140 ms, 1.4 s, 95 s."""
    if value < 1000:
        return f"{value:.3g} ms"
    return f"{value / 1000:.3g} s" if value < 1e6 else f"{value / 1000:,.0f} s"


def as_seconds(value: float) -> str:
    """A length of time in the unit that a person reads: 0.41 s, 12 s, 3.33 min, 2 h, 10,417 days."""
    units = ((86400.0, "days"), (3600.0, "h"), (60.0, "min"))
    unit_s, name = next((unit for unit in units if value >= unit[0]), (1.0, "s"))
    count = value / unit_s
    return f"{count:,.0f} {name}" if count >= 100 else f"{count:.3g} {name}"


def as_duration(value_s: float) -> str:
    """As a person says it: 8.2 s, 6 min 8 s, 1 h 2 min."""
    if value_s < 60:
        return f"{value_s:.3g} s"
    whole_s = round(value_s)
    if whole_s < 3600:
        return f"{whole_s // 60} min {whole_s % 60} s"
    return f"{whole_s // 3600} h {whole_s % 3600 // 60} min"


def percent(share: float) -> str:
    """A share in two figures: 100 %, 21 %, 0.7 %; one that would round to nothing is told apart from nothing."""
    value = 100 * share
    if 0.0 < value < 0.01:
        return "< 0.01 %"
    return f"{value:.0f} %" if value >= 10 else f"{value:.2g} %"


def percent_tenths(share: float) -> str:
    """The same to a tenth, for columns: 7.9 %, 12.3 %; - for NaN."""
    return "-" if math.isnan(share) else f"{100 * share:.1f} %"


def signed_percent(share: float) -> str:
    """An error or a change: +3.9 %, -0.2 %, 0.0 %; - for NaN."""
    if math.isnan(share):
        return "-"
    tenths = round(100 * share, 1)
    return f"{tenths:+.1f} %" if tenths else "0.0 %"
