"""A run measured without its beginning and its end, where the server fills up and runs empty.

Not for choosing requests to send (`workloads.Selection`). The one idea: latencies are of the requests that arrived in
the window, rates are of what came out in it; without cuts both are the whole run's.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from sim.errors import InputError
from sim.report.frames import Frames, Itls
from sim.report.summary import duration_s, summarize

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sim.report.summary import SummaryOptions


def summarize_window(frames: Frames, options: SummaryOptions, warmup_s: float, cooldown_s: float) -> dict[str, object]:
    """`summarize` (without lists) of the window from `warmup_s` after the start to `cooldown_s` before the run's end.

    `duration` is the window's. Token and request rates count what was sampled and finished in it; goodput, and all
    else, the requests that arrived in it. Raises InputError where the window is empty.
    """
    begin_s, end_s = warmup_s, duration_s(frames) - cooldown_s
    arrived_s = frames.requests["arrival_s"].to_numpy(dtype=np.float64)
    inside = (arrived_s >= begin_s) & (arrived_s < end_s)
    if not inside.any():
        raise InputError(f"no request arrives between --warmup-s {warmup_s:g} and --cooldown-s {cooldown_s:g}")
    part = _part(frames, inside, begin_s, end_s)
    whole = summarize(part, options, detailed=False)
    return whole | _rates(frames, whole, end_s - begin_s, begin_s, end_s, duration_s(part))


def _part(frames: Frames, inside: NDArray[np.bool_], begin_s: float, end_s: float) -> Frames:
    gaps = np.diff(frames.itls.offsets)
    itls = Itls(
        frames.itls.values_s[np.repeat(inside, gaps)], np.concatenate(([0], np.cumsum(gaps[inside]))).astype(np.int64)
    )
    steps = frames.steps[(frames.steps["start_s"] >= begin_s) & (frames.steps["start_s"] < end_s)]
    return replace(
        frames, requests=frames.requests[inside].reset_index(drop=True), itls=itls, steps=steps.reset_index(drop=True)
    )


def _rates(
    frames: Frames, whole: dict[str, object], span_s: float, begin_s: float, end_s: float, part_s: float
) -> dict[str, object]:
    finished_s = frames.requests["finish_s"]
    finished = frames.requests[(finished_s >= begin_s) & (finished_s < end_s)]
    ends_s = frames.steps["end_s"]
    tokens = float(frames.steps["sampled"][(ends_s >= begin_s) & (ends_s < end_s)].sum())
    goodput = whole["request_goodput"]
    assert goodput is None or isinstance(goodput, float)
    return {
        "duration": span_s,
        "request_throughput": len(finished) / span_s,
        "request_goodput": None if goodput is None else goodput * part_s / span_s,
        "output_throughput": tokens / span_s,
        "total_token_throughput": (tokens + float(finished["prompt_tokens"].sum())) / span_s,
    }
