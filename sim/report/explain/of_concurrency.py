"""Findings about how many requests run at once, and about a load that no setting carries."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from sim.plurals import counted
from sim.report.explain.explanation import Finding
from sim.report.explain.facts import MATTERS
from sim.report.explain.knobs import waiting_for_blocks
from sim.report.units import percent

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from sim.report.explain.facts import Facts

_ROOM = 0.8
"""Load that leaves room for bursts."""


def find_seqs(facts: Facts) -> Finding | None:
    """max_num_seqs (or max_num_active_seqs) keeps requests waiting, and more of them would be served quicker."""
    run, cap = facts.run, facts.run.config.seqs_cap
    steps = run.limit == "seqs"
    share = run.share(steps)
    if share < MATTERS or not facts.concurrency_helps(steps):
        return None
    name = "max_num_active_seqs" if run.config.max_num_active_seqs else "max_num_seqs"
    usage = float(run.kv_usage[steps].mean())
    fit = counted(facts.fit_on_average, "request")
    because = (
        f"{cap:,} of {cap:,} ran while {run.mean('waiting', steps):,.0f} waited on average",
        f"KV usage was {percent(usage)} then; the blocks hold some {fit} of these lengths",
        *_gain_sum(facts, steps, cap),
    )
    what = f"{name} {cap:,} keeps requests waiting {percent(share)} of the time"
    if facts.fit_on_average <= cap:
        if run.share(waiting_for_blocks(run)) >= MATTERS:
            return None  # another finding says so
        change: tuple[str, ...] = ("more KV blocks first: gpu_memory_utilization, kv_cache_dtype fp8, more GPUs",)
        return Finding("kv_blocks", f"{what}, and the KV cache holds no more.", because, change, share)
    there = int((run.column("running") + run.column("waiting"))[steps].max())
    change = _raise(facts, steps, cap, name, there=there, at_most=facts.fit_on_average)
    return Finding("max_num_seqs", f"{what}.", because, change, share)


def find_client_cap(facts: Facts) -> Finding | None:
    """The client's own cap keeps requests waiting before they are sent."""
    run, cap = facts.run, facts.run.max_concurrency
    steps = run.at_client > 0
    share = run.share(steps)
    if cap is None or share < MATTERS or not facts.concurrency_helps(steps):
        return None
    server_s = run.share(steps & (run.column("waiting") > 0))
    wait_s = float((run.requests("send_s") - run.requests("arrival_s")).mean())
    because = (
        (
            f"it keeps {cap:,} in flight; {float(run.at_client[steps].mean()):,.0f} waited at the client on average,"
            f" {wait_s * 1e3:,.0f} ms each before they were sent"
        ),
        (
            f"the server had somebody waiting {percent(server_s)} of the time; its KV usage was"
            f" {percent(run.kv_usage[steps].mean())}"
        ),
        *_gain_sum(facts, steps, cap),
    )
    there, at_most = cap + int(run.at_client.max()), min(facts.fit_on_average, run.config.seqs_cap)
    change = _raise(facts, steps, cap, "the client's concurrency", there=there, at_most=at_most)
    what = f"The client's cap of {cap:,} in flight keeps requests waiting {percent(share)} of the time, not the server."
    return Finding("max_concurrency", what, because, change, share)


def find_overload(facts: Facts) -> Finding | None:
    """More comes than this server does, however many requests it runs at once."""
    queued = (facts.run.column("waiting") > 0) | (facts.run.at_client > 0)
    if not facts.overloaded or facts.factor_that_carries(queued) is not None:
        return None
    state = facts.saturation
    limits = {name: facts.run.share(facts.run.limit == name) for name in ("tokens", "seqs", "blocks", "gate")}
    most = max(limits, key=lambda name: limits[name])
    words = {"tokens": "full steps", "seqs": "max_num_seqs", "blocks": "KV blocks", "gate": "KV blocks"}
    because = [
        state.told,
        f"the engine was busy {percent(state.busy_share)} of the time; requests waited mostly behind {words[most]}",
    ]
    if facts.prices is not None:
        gain = facts.prices.throughput_gain(queued, 2.0)
        because.append(
            f"by the profile's law twice as many requests at once would give {gain:.2f} times the throughput; the load"
            f" asks for {facts.needed:.2f} times"
        )
    came, taken = state.arrivals_per_s, state.taken_per_s
    change = (
        (
            f"at most {_ROOM:g} x {taken:,.1f} = {_ROOM * taken:,.1f} requests/s on this server, or"
            f" {came:,.1f} / {_ROOM * taken:,.1f} = {ceil(came / (_ROOM * taken)) if taken else 2} of them"
        ),
    )
    what = f"Overload: requests come {facts.needed:.2f} times as fast as this server takes them."
    return Finding("overload", what, tuple(because), change, state.queued_share)


def _gain_sum(facts: Facts, steps: NDArray[np.bool_], cap: int) -> list[str]:
    if facts.prices is None:
        return []
    gain = facts.prices.throughput_gain(steps, 2.0)
    return [f"by the profile's law {2 * cap:,} at once would give about {gain:.2f} times the throughput"]


def _raise(facts: Facts, steps: NDArray[np.bool_], cap: int, name: str, *, there: int, at_most: int) -> tuple[str, ...]:
    """A higher number: as high as the load asks for, or as many as were `there`, and as the KV cache allows."""
    if facts.saturation.burst:
        return (f"raise {name} while throughput grows; up to {at_most:,} fit into the KV cache, and TPOT rises",)
    asked, why = there, "as many as were there at once"
    if facts.overloaded:
        factor = facts.factor_that_carries(steps)
        if factor is None:
            return (f"raise {name}, which {cap:,} binds; it will not be enough, see the load",)
        mean = ceil(cap * factor)
        asked = ceil(mean + 2 * mean**0.5)
        why = f"{mean:,} carry the load on average, 2 x sqrt({mean:,}) its swings"
    to = max(cap + 1, min(asked, at_most))
    bound = "" if to >= asked else f", but only {at_most:,} fit into the KV cache"
    if to > facts.safe:
        bound += f"; beyond {facts.safe:,} long ones may lose their blocks"
    return (f"{name} {to:,} instead of {cap:,}: {why}{bound}; TPOT rises with it",)
