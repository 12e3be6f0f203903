"""Findings about KV on its way between GPU and host: steps that wait for copies, and a link that carries no more.

The one idea: copies are worth their time where computing the same tokens again would take longer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sim.plurals import counted
from sim.report.explain.explanation import Finding
from sim.report.explain.facts import MATTERS
from sim.report.insight import link_busy_share
from sim.report.units import percent

if TYPE_CHECKING:
    from sim.report.explain.facts import Facts

_FULL_LINK = 0.9
"""Share of time in which anything is copied, from which on copies queue for one another."""
_GB = 1e9


def find_copies(facts: Facts) -> Finding | None:
    """Steps wait for blocks to be copied: a victim's (swap), or those that somebody else is to have (offload)."""
    run, host = facts.run, facts.run.frames.meta.get("host")
    copy_s = float(run.column("copy_s").sum())
    share = copy_s / run.span_s if run.span_s > 0 else 0.0
    if share < MATTERS or not isinstance(host, dict):
        return None
    told = _of_swap(facts, host, copy_s) if host["mode"] == "swap" else _of_offload(facts, host, copy_s)
    quicker = share / (1 - share) * (1 - MATTERS) / MATTERS if share < 1 else np.inf
    link = f"{host['bytes_per_s'] / _GB * quicker:,.3g} instead of {host['bytes_per_s'] / _GB:,.3g} GB/s"
    change = (*told[1], f"pcie_bandwidth {link} would make {percent(MATTERS)} of it")
    what = f"Steps wait for copies to or from host memory {percent(share)} of the time."
    return Finding("copies", what, told[0], change, share)


def find_full_link(facts: Facts) -> Finding | None:
    """Loads and stores queue for the link, and requests for their loads."""
    run, host = facts.run, facts.run.frames.meta.get("host")
    if not isinstance(host, dict) or host["mode"] != "offload" or run.span_s <= 0:
        return None
    starts_s, ends_s = run.column("start_s"), run.column("end_s")
    busy = link_busy_share(host, float(starts_s[0]), float(ends_s[-1]))
    idle_s = np.maximum(0.0, starts_s[1:] - ends_s[:-1])
    idle = float(idle_s[run.column("waiting")[:-1] > 0].sum()) / run.span_s  # whoever waits then waits for a load
    share = idle + run.share(run.limit == "transfer")
    if busy < _FULL_LINK or share < MATTERS:
        return None
    out, back = (_bytes(facts, host, name) / _GB for name in ("blocks_out", "blocks_in"))
    moved = f"{out:,.1f} GB out and {back:,.1f} GB in, in {run.span_s:,.1f} s"
    because = (
        f"the link was busy {percent(busy)} of the time: {moved}",
        f"requests waited for their KV {percent(share)} of the time, and in {percent(idle)} nothing ran beside them",
        *_of_loads(facts, host),
    )
    needed = host["bytes_per_s"] / _GB * busy / 0.5
    change = (f"pcie_bandwidth {needed:,.3g} GB/s would be busy half of the time", *_stores(facts))
    what = f"The link to host memory is full: {host['bytes_per_s'] / _GB:,.3g} GB/s are too few for what is copied."
    return Finding("full_link", what, because, change, share)


def _bytes(facts: Facts, host: dict[str, Any], column: str) -> float:
    return float(facts.run.column(column).sum()) * float(host["block_bytes"])


def _of_swap(facts: Facts, host: dict[str, Any], copy_s: float) -> tuple[tuple[str, ...], tuple[str, ...]]:
    run = facts.run
    swaps, blocks = int(run.column("swapped").sum()), int(run.column("blocks_out").sum())
    tokens, each_s = blocks / max(1, swaps) * host["block_size"], copy_s / max(1, swaps)
    because = [
        (
            f"{counted(swaps, 'victim')} went to host memory and back, {counted(blocks / max(1, swaps), 'block')} each:"
            f" 2 x {blocks * host['block_bytes'] / _GB:,.1f} GB take {copy_s:,.1f} s, {each_s * 1e3:,.0f} ms a victim"
        )
    ]
    change = []
    if facts.prices is not None:
        again_s = tokens * facts.prices.prompt_token_s
        because.append(f"by the profile's law {tokens:,.0f} tokens are computed again in {again_s * 1e3:,.0f} ms")
        if again_s < each_s:
            change.append(f"kv_preemption recompute: {again_s * 1e3:,.0f} ms a victim instead of {each_s * 1e3:,.0f}")
    if 0 < facts.safe < run.config.seqs_cap:
        change.append(f"max_num_seqs {facts.safe:,}: {facts.safe_sum}, and nobody is preempted")
    return tuple(because), tuple(change)


def _of_offload(facts: Facts, host: dict[str, Any], copy_s: float) -> tuple[tuple[str, ...], tuple[str, ...]]:
    out = _bytes(facts, host, "blocks_out") / _GB
    because = (
        (
            f"of {out:,.1f} GB that were copied out beside the steps, some were of blocks that the next step was to"
            f" reuse: it waited, {copy_s:,.1f} s in all, the longest {_longest_ms(facts):,.0f} ms"
        ),
        *_of_loads(facts, host),
    )
    saved_s = _saved_s(facts, host)
    off = () if saved_s is None or saved_s >= copy_s else ("no kv_offloading_size: the waits cost more than it saves",)
    return because, (*off, *_stores(facts))


def _longest_ms(facts: Facts) -> float:
    """The longest wait of one step for copies."""
    return float(facts.run.column("copy_s").max()) * 1e3


def _saved_s(facts: Facts, host: dict[str, Any]) -> float | None:
    """Prompt computation that loads took the place of."""
    if facts.prices is None:
        return None
    return float(facts.run.column("blocks_in").sum() * host["block_size"]) * facts.prices.prompt_token_s


def _of_loads(facts: Facts, host: dict[str, Any]) -> tuple[str, ...]:
    saved_s = _saved_s(facts, host)
    if saved_s is None:
        return ()
    tokens = int(np.sum(facts.run.column("blocks_in"))) * host["block_size"]
    return (f"{tokens:,} tokens were found in host memory: by the profile's law {saved_s:,.1f} s of prompts saved",)


def _stores(facts: Facts) -> tuple[str, ...]:
    if facts.run.config.offload_prompt_only:
        return ()
    return ("offload_prompt_only on (vLLM's default): generated text, which hardly anybody sends again, stays here",)
