"""The figures over time: what is in each panel, and what each shows in words.

The one idea: all panels share one stretch of time, so that a full cache, a queue and slow tokens are seen together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sim.report.page.html import paragraph, plot, section
from sim.report.page.numbers import Sampling, end_s, per_step
from sim.report.units import as_duration, as_seconds, percent
from sim.report.words import run_headline

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sim.report.frames import Frames

_ZOOM = (("in", "Zoom in"), ("out", "Zoom out"), ("back", "Earlier"), ("on", "Later"), ("all", "Whole run"))


def panels(frames: Frames) -> list[dict[str, Any]]:
    """What page.js draws, from the top: a name, its curves with their colours, a limit where there is one."""
    config = frames.meta.get("config")
    limits: Mapping[str, Any] = config if isinstance(config, dict) else {}
    waiting = [_curve("waiting", "orange", "in the server's queue")]
    if per_step(frames)["held"].any():
        waiting.append(_curve("held", "brown", "held back by the client's cap"))
    return [
        _panel("running", "Requests running", [_curve("running", "blue")], limit=_limit(limits, "max_num_seqs")),
        _panel("waiting", "Requests waiting", waiting),
        _panel("kv", "KV cache usage", [_curve("kv", "green")], unit=" %", full=True, whole=False),
        _panel(
            "step_tokens",
            "Tokens in a step",
            [_curve("num_tokens", "orange", "prompts and decodes"), _curve("decodes", "blue", "decodes alone")],
            limit=_limit(limits, "max_num_batched_tokens"),
        ),
        _panel("tokens_per_s", "Output tokens per second", [_curve("", "purple")]),
    ]


def _curve(key: str, color: str, label: str = "") -> dict[str, str]:
    return {"key": key, "color": color, "label": label}


def _panel(name: str, title: str, series: list[dict[str, str]], **more: Any) -> dict[str, Any]:
    return {"id": name, "title": title, "series": series, "whole": True} | more


def _limit(config: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    value = config.get(name)
    return {"value": value, "label": f"{name} {value}"} if isinstance(value, int) else None


def over_time_section(frames: Frames, made: Sampling) -> str:
    """The toolbar and the panels."""
    buttons = "".join(f'<button type="button" data-zoom="{name}">{word}</button>' for name, word in _ZOOM)
    return section(
        "time",
        "Over time",
        paragraph(f"{run_headline(frames)}."),
        paragraph(_how(made), "soft"),
        f'<div class="toolbar" role="group" aria-label="Stretch of time shown">{buttons}'
        '<span class="range" id="range" aria-live="polite"></span></div>',
        *(plot(p["id"], p["title"], _alt(p, frames), _keys(p, frames)) for p in panels(frames)),
    )


def _how(made: Sampling) -> str:
    """How to read the figures, and what was left out of them."""
    told = "Lines are means, shades peaks, of what one pixel covers."
    if made.bin_s is None:
        told += " Every step is there: zoom in to see single ones."
    else:
        told += (
            f" {made.moments:,} steps are too many for a page: it holds means and peaks of {as_seconds(made.bin_s)}"
            " each. All of them are in steps.parquet."
        )
    if made.marks_left_out:
        told += f" {made.marks_left_out:,} of the preempting steps have no mark."
    return told + " Drag to zoom, double-click for the whole run; or use the buttons, or the keys +, -, arrows and Esc."


def _keys(panel: dict[str, Any], frames: Frames) -> list[tuple[str, str]]:
    told = [(curve["label"], curve["color"]) for curve in panel["series"] if curve["label"]]
    if panel["id"] == "kv" and (frames.steps["preempted"] > 0).any():
        told.append(("steps that preempted", "red"))
    return told if len(told) > 1 or panel["id"] == "kv" else []


def _alt(panel: dict[str, Any], frames: Frames) -> str:
    if not len(frames.steps):
        return f"{panel['title']}: nothing ran."
    span = as_duration(end_s(frames))
    steps = frames.steps
    if panel["id"] == "tokens_per_s":
        return f"{panel['title']} over {span}: {steps['sampled'].sum() / end_s(frames):,.0f} on average."
    step_s = (steps["end_s"] - steps["start_s"]).to_numpy(dtype=np.float64)
    told = []
    for curve in panel["series"]:
        values = per_step(frames)[curve["key"]].astype(np.float64)
        mean, peak = float((values * step_s).sum()) / step_s.sum(), float(values.max())
        of = f"{curve['label']}: " if curve["label"] else ""
        told.append(
            f"{of}mean {percent(mean / 100)}, at most {percent(peak / 100)}"
            if panel["id"] == "kv"
            else f"{of}mean {mean:,.1f}, at most {peak:,.0f}"
        )
    return f"{panel['title']} over {span}. {'; '.join(told)}."
