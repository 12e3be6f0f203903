"""What is said of a run in a line, and numbers as a person reads them.

Not for deciding what to say of a cause. The one idea: pictures and pages say it alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.report.insight import held_at_client, kv_usage

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from sim.report.frames import Frames


def run_headline(frames: Frames) -> str:
    """How full the server was at most."""
    steps = frames.steps
    if len(steps) == 0:
        return "Nothing ran"
    waiting, held = int(steps["waiting"].max()), int(held_at_client(frames).max())
    parts = [f"{int(steps['running'].max()):,} running"]
    if waiting or not held:
        parts.append(f"{waiting:,} left waiting" if waiting else "nobody left waiting")
    if held:
        parts.append(f"{held:,} held back by the client")
    parts.append(f"KV cache {percent(kv_usage(frames).max())}")
    preempted = int(steps["preempted"].sum())
    counted = f"{preempted:,} preemption{'s' if preempted > 1 else ''}" if preempted else "no preemption"
    return f"At most {', '.join(parts)}; {counted}"


def latency_headline(ttft_s: NDArray[np.float64], frames: Frames) -> str:
    """The longest waits."""
    if len(ttft_s) == 0:
        return "Nobody got a token"
    first = f"The longest wait for a first token took {as_ms(1000 * ttft_s.max())}"
    gaps_s = frames.itls.values_s
    return f"{first}, for a next one {as_ms(1000 * gaps_s.max())}" if len(gaps_s) else f"{first}; nobody got a second"


def provenance(frames: Frames) -> str:
    """Workload, profile, how much of it is done, and versions."""
    meta = frames.meta
    finished = int((frames.requests["status"] == "finished").sum())
    parts = [f"{meta[key]}" for key in ("trace", "profile") if meta.get(key)]
    parts.append(f"{finished:,} of {len(frames.requests):,} requests finished")
    parts.append(f"elpase {meta.get('elpase_version', '')}".strip() + f", vLLM {meta.get('vllm_semantics', '0.32')}")
    return "  ·  ".join(parts) + ("  ·  cut short" if meta.get("partial") else "")


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
