"""What is said of a run in a line.

Not for deciding what to say of a cause (`explain`). The one idea: pictures and pages say it alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.plurals import counted
from sim.report.insight import held_at_client, kv_usage
from sim.report.units import as_ms, percent

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
    lost = counted(preempted, "preemption") if preempted else "no preemption"
    return f"At most {', '.join(parts)}; {lost}"


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
    parts.append(f"{finished:,} of {counted(len(frames.requests), 'request')} finished")
    parts.append(f"elpase {meta.get('elpase_version', '')}".strip() + f", vLLM {meta.get('vllm_semantics', '0.32')}")
    return "  ·  ".join(parts) + ("  ·  cut short" if meta.get("partial") else "")
