"""The part of the page that says why: what `explain` found, which settings were at work, and the worst gaps.

Not for finding out (`sim.report.explain`). The one idea: findings first, with what to change, then the evidence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.report.explain.words import binding, cause_of, how_often, load, work, worst_gaps
from sim.report.page.html import paragraph, prose, section, table, text

if TYPE_CHECKING:
    from sim.report.explain import Explanation, Finding

_NAME, _TITLE = "explain", "Why it is as slow as it is"


def why_section(told: Explanation) -> str:
    """Findings, load and work in a line each, settings, gaps, and what could not be told."""
    found = "".join(f"<li>{_finding(finding)}</li>" for finding in told.findings)
    return section(
        _NAME,
        _TITLE,
        f'<ol class="findings">{found}</ol>'
        if found
        else paragraph("Nothing holds this run back: there is nothing to change."),
        paragraph(f"Load: {load(told)}"),
        paragraph(f"Work: {work(told)}"),
        *(paragraph(f"Note: {note}.", "soft") for note in told.notes),
        _knobs(told),
        _gaps(told),
    )


def not_explained(reason: str) -> str:
    """A run that has no explanation, and why."""
    return section(_NAME, _TITLE, paragraph(f"Not explained: {reason}."))


def _finding(finding: Finding) -> str:
    because = "".join(f"<li>{prose(line)}</li>" for line in finding.because)
    change = "".join(f'<li class="change">{prose(line)}</li>' for line in finding.change)
    return f"<b>{prose(finding.what)}</b><ul>{because}{change}</ul>"


def _knobs(told: Explanation) -> str:
    rows = [(knob.name, knob.value, binding(knob), how_often(knob)) for knob in told.knobs]
    return table("Settings, and whether they were at work", ("setting", "value", "binding", ""), rows, wordy=(3,))


def _gaps(told: Explanation) -> str:
    if not told.gaps:
        return ""
    rows = [
        (
            f"{1000 * gap.gap_s:,.0f}", f"{gap.end_s:,.2f}", f"{gap.num_requests:,}", f"{gap.num_tokens:,}",
            f"{gap.decodes:,}", cause_of(gap),
        )
        for gap in told.gaps
    ]  # fmt: skip
    words = text(
        "waited: requests with that gap; tokens, decodes: of its longest step; cause: the largest chunk in it."
    )
    head = ("ms", "end (s)", "waited", "tokens", "decodes", "cause")
    return f'{table(worst_gaps(told), head, rows, wordy=(5,))}<p class="soft">{words}</p>'
