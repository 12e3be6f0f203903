"""Findings about time in which no request's tokens are computed: the host's, and what CUDA graphs compute for nobody.

The one idea: both are there in every step, however few its tokens, so they weigh most where steps are short.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sim.plurals import counted
from sim.report.explain.explanation import Finding
from sim.report.explain.facts import MATTERS
from sim.report.units import percent

if TYPE_CHECKING:
    from sim.report.explain.facts import Facts

_WORST = 4
"""Numbers of tokens that are named."""


def find_host(facts: Facts) -> Finding | None:
    """The device waits for the host between steps."""
    run = facts.run
    starts_s, ends_s, host_s = run.column("start_s"), run.column("end_s"), run.column("host_s")
    gaps_s = np.concatenate(([0.0], np.maximum(0.0, starts_s[1:] - ends_s[:-1])))
    waited_s = np.minimum(host_s, gaps_s)
    share = float(waited_s.sum()) / run.span_s if run.span_s > 0 else 0.0
    if share < MATTERS:
        return None
    seqs, estimated = float(run.column("num_seqs").mean()), run.server.get("host_time") == "estimated"
    because = (
        (
            f"before a step of {counted(seqs, 'sequence')} the host takes {host_s.mean() * 1e3:,.2f} ms"
            f"{', by estimate' if estimated else ''}; the device then takes {run.step_s.mean() * 1e3:,.1f} ms"
        ),
        f"{counted(len(host_s), 'step')}: the device waited {waited_s.sum():,.1f} of {run.span_s:,.1f} s",
    )
    return Finding(
        "host",
        f"The GPU waits for the host {percent(share)} of the time.",
        because,
        _of_host(facts, share),
        share,
    )


def _of_host(facts: Facts, share: float) -> tuple[str, ...]:
    if facts.run.config.async_scheduling:
        return ("more requests in a step, or more drafts: a step's host time is shared by all of its tokens",)
    hidden = (
        f"async_scheduling on: the host works while the GPU does, up to 1 / (1 - {share:.2f}) = {1 / (1 - share):.2f}"
    )
    method = (facts.run.server.get("speculation") or {}).get("method")
    beside = "; with method ngram_gpu, as ngram ends it" if method == "ngram" else ""
    return (f"{hidden} times the throughput{beside}",)


def find_graphs(facts: Facts) -> Finding | None:
    """Decodes run wider than they are, or without a whole graph."""
    run, prices = facts.run, facts.prices
    decodes = (run.column("prefill_tokens") == 0) & (run.column("num_tokens") > 0)
    if prices is None or not decodes.any():
        return None
    rows = prices.spread(decodes)
    lost_s = prices.lost_to_graphs(rows)
    share = float(lost_s.sum()) / float(run.step_s[rows].sum()) * run.share(decodes)
    if share < MATTERS:
        return None
    counts = run.column("num_tokens")[rows]
    worst = sorted(set(counts.tolist()), key=lambda count: -float(lost_s[counts == count].sum()))[:_WORST]
    at = rows[int(np.argmax(np.where(counts == worst[0], lost_s, -1.0)))]
    tokens, padding = worst[0], int(run.column("num_paddings")[at])
    mode = str(run.frames.steps["runtime_mode"].iloc[int(at)])
    modes = run.frames.steps["runtime_mode"].astype(str).to_numpy()
    whole = int((decodes & (modes == "FULL")).sum())
    as_run = f"as {mode}" + (f" of {tokens + padding:,}" if padding else "")
    because = (
        f"{whole:,} of {counted(int(decodes.sum()), 'step')} of decodes alone ran as one whole graph",
        (
            f"most is lost by steps of {counted(tokens, 'token')}, which run {as_run}: by the profile's law"
            f" {lost_s[counts == tokens].max() * 1e3:,.1f} ms more than as a whole graph of {tokens:,}"
        ),
    )
    sizes = f"{', '.join(map(str, sorted(worst)))} among cudagraph_capture_sizes"
    change = sizes if tokens <= run.config.max_num_seqs * prices.law.graphs.query_len else "a larger max_num_seqs"
    if mode == "NONE" and not prices.law.graphs.sizes:
        change = "no enforce_eager, nor a cudagraph_mode of NONE"
    what = (
        f"CUDA graphs do not fit the decodes: {percent(share)} of the time goes to padding,"
        " or to kernels without a graph."
    )
    return Finding("cuda_graphs", what, because, (change,), share)
