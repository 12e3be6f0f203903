"""Why a run is as slow as it is: which settings were at work, what caused the worst gaps, and what to change.

    explain("out/")  ->  Explanation: findings with their arithmetic, then the evidence

Not for what happened (`sim.report.summary`), nor for trying the advice: it is arithmetic over the run's own steps,
priced by the run's profile, and the next run is the proof. The one idea: a cause is named only where the run shows
that it was at work and the arithmetic shows that lifting it would help.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sim.errors import InputError
from sim.latency.profile import Profile, profile_names
from sim.report.explain.explanation import Ending, Explanation, Finding, Gap, Itl, Knob, Saturation, Thrash, TtftPart
from sim.report.explain.facts import Facts
from sim.report.explain.gaps import itl, worst_gaps
from sim.report.explain.knobs import endings, knobs
from sim.report.explain.load import saturation, thrash, ttft_parts
from sim.report.explain.of_concurrency import find_client_cap, find_overload, find_seqs
from sim.report.explain.of_copies import find_copies, find_full_link
from sim.report.explain.of_drafts import find_drafts
from sim.report.explain.of_memory import find_memory, find_thrash
from sim.report.explain.of_overheads import find_graphs, find_host
from sim.report.explain.of_steps import find_large_budget, find_small_budget, find_threshold, find_unchunked
from sim.report.explain.prices import Prices
from sim.report.explain.run import Run, of_folder, of_frames
from sim.report.frames import Frames

if TYPE_CHECKING:
    import os

__all__ = [
    "Ending", "Explanation", "Finding", "Gap", "Itl", "Knob", "Saturation", "Thrash", "TtftPart", "explain",
]  # fmt: skip

_OF_SETTINGS = (
    find_thrash,
    find_memory,
    find_seqs,
    find_client_cap,
    find_small_budget,
    find_unchunked,
    find_threshold,
)
"""What can keep requests waiting and can be set."""
_OF_TIME = (find_copies, find_full_link, find_host, find_drafts, find_graphs)
"""What takes time from all steps, whoever waits."""
_OF_CONCURRENCY = ("thrash", "kv_blocks", "admission_gate", "watermark", "max_num_seqs", "max_concurrency")
"""Beside these, and alone, a load can be too much: when no number of requests at once would carry it."""


def explain(source: str | os.PathLike[str] | Frames, profile: Profile | str | None = None) -> Explanation:
    """Explain a run: the folder that `elpase replay --out` wrote, or the `frames` of a `Result`.

    profile: the one that the run was priced with; by default the shipped one that the run names. Without it nothing is
    priced, and `notes` says so. Raises InputError, in one line, for what is not a whole run of this version.
    """
    run = of_frames(source) if isinstance(source, Frames) else of_folder(Path(source))
    prices, notes = _prices(run, profile)
    facts = Facts(run, prices, saturation(run), thrash(run), itl(run), worst_gaps(run))
    return Explanation(
        run=_facts(run),
        findings=_findings(facts),
        endings=endings(run),
        knobs=knobs(run),
        gaps=facts.gaps,
        itl=facts.itl,
        ttft=ttft_parts(run),
        thrash=facts.thrash,
        saturation=facts.saturation,
        notes=tuple(notes),
    )


def _findings(facts: Facts) -> tuple[Finding, ...]:
    found = [finding for find in _OF_SETTINGS for finding in [find(facts)] if finding is not None]
    # Without prices it cannot be told whether what was found is enough of a cause.
    may_not_be_enough = facts.prices is not None and all(finding.cause in _OF_CONCURRENCY for finding in found)
    if (may_not_be_enough or not found) and (overload := find_overload(facts)):
        found.append(overload)
    if not any(finding.cause == "budget_too_small" for finding in found) and (tail := find_large_budget(facts)):
        found.append(tail)
    found += [finding for find in _OF_TIME for finding in [find(facts)] if finding is not None]
    # Thrash first, as it makes all else worse; then by time.
    return tuple(sorted(found, key=lambda finding: (finding.cause != "thrash", -finding.share)))


def _prices(run: Run, profile: Profile | str | None) -> tuple[Prices | None, list[str]]:
    """The law to price with, or why there is none."""
    name = run.frames.meta.get("profile")
    if profile is None:
        if name not in profile_names():
            return None, [f"nothing is priced: {name} is not a shipped profile, and its file was not given"]
        profile = str(name)
    profile = Profile.load(profile) if isinstance(profile, str) else profile
    if profile.name != name:
        raise InputError(field="profile", value=profile.name, expected=f"{name}, which priced the run")
    prices = Prices(run, profile)
    if not prices.explains():
        return None, [f"nothing is priced: the run was priced with another file of the name {name}"]
    return prices, []


def _facts(run: Run) -> dict[str, object]:
    meta = run.frames.meta
    return {
        **{name: meta.get(name) for name in ("elpase_version", "vllm_semantics", "profile", "seed", "trace")},
        "num_requests": len(run.frames.requests),
        "num_steps": len(run.step_s),
        "span_s": run.span_s,
        "config": meta.get("config"),
    }
