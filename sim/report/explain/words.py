"""An explanation's parts in words, for the console and for a page.

Not for what holds a run back, which the findings say themselves. The one idea: both say the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.plurals import counted
from sim.report.units import percent

if TYPE_CHECKING:
    from sim.report.explain.explanation import Explanation, Gap, Knob

_GAP_CAUSES = {
    "decodes": "decodes only",
    "preemption": "preempted",
    "budget": "budget used up by others",
    "host": "host",
}


def binding(knob: Knob) -> str:
    """Whether a setting was at work."""
    return "yes" if knob.binding else "rarely" if knob.steps else "no"


def how_often(knob: Knob) -> str:
    """How often it was, or why it was not."""
    return f"{counted(knob.steps, 'step')}, {percent(knob.share)} of the time" if knob.steps else knob.why


def cause_of(gap: Gap) -> str:
    """What a request waited for: whose chunk, or what else."""
    cause = _GAP_CAUSES.get(gap.cause, "")
    if gap.num_steps > 1:
        return f"{gap.request_id} {cause} for {gap.num_steps:,} steps"
    if gap.cause == "chunk":
        return f"{gap.chunk_request_id}: {counted(gap.chunk_tokens, 'token')} after {gap.chunk_context:,}"
    return cause


def worst_gaps(told: Explanation) -> str:
    """What their table is called."""
    return f"The {len(told.gaps)} worst gaps between tokens" if len(told.gaps) > 1 else "The worst gap between tokens"


def work(told: Explanation) -> str:
    """What preemption cost."""
    thrash = told.thrash
    if not thrash.preemptions:
        return f"{counted(thrash.useful_tokens, 'token')} computed, none of them twice: no preemptions."
    return (
        f"{counted(thrash.useful_tokens, 'useful token')} and {thrash.recomputed_tokens:,} computed again"
        f" ({percent(thrash.recomputed_share)}): {'thrash' if thrash.thrashing else 'no thrash'}."
        f" {counted(thrash.preemptions, 'preemption')} of {counted(thrash.preempted_requests, 'request')},"
        f" at most {thrash.most_preemptions} of one"
        f" ({thrash.most_preempted}), {counted(thrash.cycling_requests, 'request')} 3 times or more."
    )


def load(told: Explanation) -> str:
    """Load against capacity."""
    saturation = told.saturation
    near = " Near its capacity: waiting times here are good for ordering settings, not as numbers."
    busy = f"{saturation.state}: {saturation.told}; the engine was busy {percent(saturation.busy_share)} of it."
    return busy + (near if saturation.ordering_only else "")
