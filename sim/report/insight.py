"""What only a simulator can tell of a run, the `sim` block of a result: the server's inside, and how far to trust it.

Not for what a client measures (`summary`). The one idea: every figure is a sum, a peak or a share over the requests or
over the steps (`step_totals`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sim import __version__
from sim.report.frames import Digest, request_columns
from sim.report.gap_totals import QUANTILE_ERROR
from sim.report.request_rows import REJECTED, UNFINISHED
from sim.report.step_totals import StepTotals

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from sim.report.frames import Frames

ORDERING_ONLY_UTILIZATION = 0.95
"""Waiting grows as 1 / (1 - utilization): at this one a capacity wrong by 2 % moves it by -27 or +61 %."""

_LIMITS = ("tokens", "seqs", "blocks", "gate", "watermark", "preemption", "transfer")
"""Values of the column `limit` that leave requests waiting: budget, max_num_seqs, KV blocks for this step's tokens, for
the whole prompt, or beside the watermark, a preemption's pause, KV on its way."""


def insight(run: Frames | Digest) -> dict[str, object]:
    """Provenance, steps, preemption, cache, KV, the parts of TTFT, and the load. Shares are fractions of 1."""
    meta, steps = run.meta, step_totals(run)
    return {
        "elpase_version": meta.get("elpase_version", __version__),
        "vllm_semantics": meta.get("vllm_semantics", "0.32"),
        "profile": meta.get("profile"),
        "seed": meta.get("seed"),
        "trace": meta.get("trace"),
        **{name: meta.get(name) for name in ("flags", "workload", "server", "config")},
        "partial": bool(meta.get("partial", False)),
        "itl_percentile_error": QUANTILE_ERROR if isinstance(run, Digest) else 0.0,
        **_requests(request_columns(run)),
        **_steps(steps, meta),
        "cudagraph": _cudagraph(run, steps),
        "ttft_split_ms": _ttft_split_ms(run),
        "load": _load(steps),
        **_host(steps, meta),
    }


def step_totals(run: Frames | Digest) -> StepTotals:
    """Of all steps."""
    return run.steps if isinstance(run, Digest) else StepTotals.of(run.steps, held_at_client(run))


def _host(steps: StepTotals, meta: Mapping[str, object]) -> dict[str, object]:
    """KV in host memory: what went there and back, and what it took. Nothing where nothing ever does."""
    host = meta.get("host")
    if not isinstance(host, dict):
        return {}
    sums, block_bytes, num_blocks = steps.sums, host["block_bytes"], host["num_blocks"]
    peak_blocks, swaps, moved_in = steps.peaks["host_blocks"], sums["swapped"], sums["blocks_in"]
    is_swap = host["mode"] == "swap"
    return {
        "host": {
            "mode": host["mode"],
            "counterfactual": is_swap,
            "num_blocks": num_blocks,
            "peak_blocks": peak_blocks,
            "peak_usage": _share(peak_blocks, num_blocks),
            "swaps": swaps,
            "recomputed_instead": sums["preempted"] - swaps if is_swap else 0,
            "hit_rate": _share(moved_in * host["block_size"], sums["host_queries"]) if not is_swap else 0.0,
            "bytes_out": sums["blocks_out"] * block_bytes,
            "bytes_in": moved_in * block_bytes,
            "copy_s": steps.copy_s,
            "copy_share": _share(steps.copy_s, steps.span_s),
            "link_busy_share": link_busy_share(host, steps.start_s, steps.end_s) if steps.steps else 0.0,
        }
    }


def link_busy_share(host: Mapping[str, Any], start_s: float, end_s: float) -> float:
    """Of the time from the first step to the last one's end, or the last copy's: stores may outlast the steps."""
    return _share(host["link_busy_s"], max(end_s, host.get("link_end_s", 0.0)) - start_s)


def _requests(columns: Mapping[str, NDArray[Any]]) -> dict[str, object]:
    """The hit rate counts first admissions only, as vLLM's log line: a resumed request's own blocks are no news."""
    preemptions = columns["preemptions"]
    admitted = ~np.isnan(columns["scheduled_s"])
    cached, prompts = (int(columns[name][admitted].sum()) for name in ("cached_tokens", "prompt_tokens"))
    return {
        "rejected": int((columns["status"] == REJECTED).sum()),
        "unfinished": int((columns["status"] == UNFINISHED).sum()),
        "preemptions": int(preemptions.sum()),
        "preempted_requests": int((preemptions > 0).sum()),
        "max_preemptions_per_request": int(preemptions.max(initial=0)),
        "recomputed_tokens": int(columns["recomputed_tokens"].sum()),
        "prefix_hit_rate": _share(cached, prompts),
    }


def _steps(steps: StepTotals, meta: Mapping[str, object]) -> dict[str, object]:
    count, sums, peaks = steps.steps, steps.sums, steps.peaks
    least = np.array([] if steps.least_free_blocks is None else [steps.least_free_blocks])
    return {
        "steps": count,
        "mean_batch": _share(sums["num_seqs"], count),
        "mean_step_tokens": _share(sums["num_tokens"], count),
        "extrapolated_steps": sums["extrapolated"],
        "extrapolated_share": _share(sums["extrapolated"], count),
        "peak_running": peaks["running"],
        "peak_waiting": peaks["waiting"],
        "peak_kv_usage": float(_usage(least, meta).max(initial=0.0)),
    }


def _cudagraph(run: Frames | Digest, steps: StepTotals) -> dict[str, object] | None:
    """Steps by vLLM's runtime mode; the tokens that graphs computed for nobody, and their share of all computed."""
    if not isinstance(run, Digest) and "runtime_mode" not in run.steps:
        return None
    paddings = steps.sums["num_paddings"]
    return {
        "steps": {mode: steps.modes[mode] for mode in ("FULL", "PIECEWISE", "NONE")},
        "num_paddings": paddings,
        "padding_share": _share(paddings, paddings + steps.sums["num_tokens"]),
    }


def kv_usage(frames: Frames) -> NDArray[np.float64]:
    """Share of the KV blocks in use after each step's decision, (steps,); the null block is nobody's to use.

    Zeros when the run does not say how many blocks there are. Source: BlockPool.get_usage, vLLM 0.32.
    """
    return _usage(frames.steps["free_blocks"].to_numpy(dtype=np.float64), frames.meta)


def _usage(free_blocks: NDArray[Any], meta: Mapping[str, object]) -> NDArray[np.float64]:
    blocks = meta.get("num_gpu_blocks")
    if not isinstance(blocks, int) or blocks < 2:
        return np.zeros(len(free_blocks))
    return 1.0 - free_blocks / (blocks - 1)


def ttft_parts_s(run: Frames | Digest) -> dict[str, NDArray[np.float64]]:
    """Where the wait for the first token went, from the arrival on, one entry per request that has seen one.

    client_queue (waiting for a place under the client's own cap), request_path (HTTP and tokenizer), server_queue
    (until first scheduled), prefill (until the step that sampled it ended), delivery (detokenizer and HTTP).
    vLLM's TTFT counts from the send: all but the first part.
    """
    columns = request_columns(run)
    seen = ~np.isnan(columns["first_token_s"])
    moments = [columns[f"{name}_s"][seen] for name in ("arrival", "send", "queued", "scheduled")]
    client_s = columns["first_token_s"][seen]
    response_s = run.meta.get("response_s", 0.0)
    assert isinstance(response_s, float | int)
    moments += [client_s - response_s, client_s]
    names = ("client_queue", "request_path", "server_queue", "prefill", "delivery")
    return {name: late - early for name, early, late in zip(names, moments, moments[1:], strict=False)}


def _ttft_split_ms(run: Frames | Digest) -> dict[str, object]:
    return {name: _spread_ms(values_s) for name, values_s in ttft_parts_s(run).items()}


def _spread_ms(values_s: NDArray[np.float64]) -> dict[str, float]:
    values_s = values_s if len(values_s) else np.zeros(1)
    p50, p99 = np.percentile(values_s, (50, 99)).tolist()
    return {"mean": float(np.mean(values_s)) * 1000, "p50": p50 * 1000, "p99": p99 * 1000}


def load(frames: Frames) -> dict[str, Any]:
    """How near to its capacity the run was, from the run itself.

    queue: requests that have arrived but that nobody has taken, at the client or the server, during each step.
    held_back_by: the share of time in which each limit kept somebody waiting.
    utilization: in a queue with random arrivals the mean length while there is a queue is 1 / (1 - utilization),
    whatever the number of places and the service time (M/M/c: once all places are taken, the length is geometric).
    Hence 1 - 1 / mean_queue_when_queued; 0 says that hardly anybody ever waited. Burstier arrivals raise it, as they
    should. It is capped by the busy share: an engine that idles 10 % of the time has at least that to spare.
    """
    return _load(step_totals(frames))


def _load(steps: StepTotals) -> dict[str, Any]:
    seconds, span_s = steps.load, steps.span_s
    mean_queue = seconds.queue_s / seconds.held_s if seconds.held_s > 0 else 0.0
    busy = min(1.0, _share(seconds.busy_s, span_s))
    utilization = min(busy, 1.0 - 1.0 / mean_queue) if mean_queue > 1.0 else 0.0
    return {
        "utilization": utilization,
        "busy_share": busy,
        "queued_share": _share(seconds.held_s, span_s),
        "mean_queue_when_queued": mean_queue,
        "held_back_by": {
            **{name: _share(seconds.limit_s[name], span_s) for name in _LIMITS},
            "client_cap": _share(seconds.client_s, span_s),
        },
        "ordering_only": utilization >= ORDERING_ONLY_UTILIZATION,
    }


def held_at_client(frames: Frames) -> NDArray[np.int64]:
    """Requests that the client's own cap holds back at the start of each step, (steps,)."""
    starts_s = frames.steps["start_s"].to_numpy(dtype=np.float64)
    arrived = np.searchsorted(np.sort(frames.requests["arrival_s"].to_numpy(dtype=np.float64)), starts_s, side="right")
    sent = np.searchsorted(
        np.sort(frames.requests["send_s"].dropna().to_numpy(dtype=np.float64)), starts_s, side="right"
    )
    return np.asarray(arrived - sent, dtype=np.int64)


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
