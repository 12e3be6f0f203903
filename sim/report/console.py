"""The console's tables: first what `vllm bench serve` prints (0.32), character for character, then the simulator's own.

Not for computing: every figure comes out of `summarize`'s result. The one idea: a table is lines of a label in 40
columns and a value in 10, so both tables are built by the same four functions.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_WIDTH = 50
_SECTIONS = {
    "ttft": ("TTFT", "Time to First Token"),
    "tpot": ("TPOT", "Time per Output Token (excl. 1st token)"),
    "itl": ("ITL", "Inter-token Latency"),
    "e2el": ("E2EL", "End-to-end Latency"),
    "client_queue_time": ("Client Queue Time", "Client-side Queueing"),
    "e2el_including_client_queue": ("E2EL incl. Client Queue", "Queue-inclusive End-to-end Latency"),
}
_LIMIT_LABELS = {
    "tokens": "  by the step's token budget:",
    "seqs": "  by max_num_seqs:",
    "blocks": "  by free KV blocks:",
    "gate": "  by KV blocks for whole prompts:",
    "watermark": "  by the watermark's KV blocks:",
    "preemption": "  by a preemption:",
    "transfer": "  by KV on its way to or from the host:",
    "client_cap": "  by the client's cap in flight:",
}
_MODE_LABELS = {
    "FULL": "Steps as one graph:",
    "PIECEWISE": "Steps as graphs but for attention:",
    "NONE": "Steps without graphs:",
}
_SPLIT_LABELS = {
    "client_queue": "In the client's queue (ms):",
    "request_path": "HTTP and tokenizer (ms):",
    "server_queue": "In the server's queue (ms):",
    "prefill": "Prefill (ms):",
    "delivery": "Detokenizer and HTTP (ms):",
}


def bench_table(result: Mapping[str, object]) -> str:
    """`vllm bench serve`'s table of a result, from its opening to its closing line, without a final newline.

    Source: benchmark() in vllm/benchmarks/serve.py, vLLM 0.32. Which sections appear follows the result's keys.
    """
    return "\n".join(_bench_lines(result))


def sim_table(result: Mapping[str, object]) -> str:
    """The `sim` block as a table in the same dress: what happened inside the server, and how far to trust it."""
    sim = result["sim"]
    assert isinstance(sim, dict)
    return "\n".join(_sim_lines(sim))


def _bench_lines(result: Mapping[str, object]) -> Iterator[str]:
    yield _title("Serving Benchmark Result", "=", spaced=True)
    yield _plain("Successful requests:", result["completed"])
    yield _plain("Failed requests:", result["failed"])
    if result["max_concurrency"] is not None:
        yield _plain("Maximum request concurrency:", result["max_concurrency"])
    if result["request_rate"] != "inf":
        yield _fixed("Request rate configured (RPS):", result["request_rate"])
    yield _fixed("Benchmark duration (s):", result["duration"])
    yield _plain("Total input tokens:", result["total_input_tokens"])
    yield _plain("Total generated tokens:", result["total_output_tokens"])
    yield _fixed("Request throughput (req/s):", result["request_throughput"])
    if result["request_goodput"] is not None:
        yield _fixed("Request goodput (req/s):", result["request_goodput"])
    yield _fixed("Output token throughput (tok/s):", result["output_throughput"])
    yield _fixed("Peak output token throughput (tok/s):", result["max_output_tokens_per_s"])
    yield _fixed("Peak concurrent requests:", result["max_concurrent_requests"])
    yield _fixed("Total token throughput (tok/s):", result["total_token_throughput"])
    for metric, (name, header) in _SECTIONS.items():
        if f"mean_{metric}_ms" in result:
            yield from _metric_lines(result, metric, name, header)
    if "spec_decode_num_drafts" in result:
        yield from _spec_decode_lines(result)
    yield "=" * _WIDTH


def _metric_lines(result: Mapping[str, object], metric: str, name: str, header: str) -> Iterator[str]:
    yield _title(header)
    yield _fixed(f"Mean {name} (ms):", result[f"mean_{metric}_ms"])
    yield _fixed(f"Median {name} (ms):", result[f"median_{metric}_ms"])
    for key, value in result.items():
        if percentile := re.fullmatch(rf"p([\d.]+)_{metric}_ms", key):
            yield _fixed(f"P{percentile[1]} {name} (ms):", value)


def _spec_decode_lines(result: Mapping[str, object]) -> Iterator[str]:
    yield _title("Speculative Decoding")
    yield _fixed("Acceptance rate (%):", result["spec_decode_acceptance_rate"])
    yield _fixed("Acceptance length:", result["spec_decode_acceptance_length"])
    yield _plain("Drafts:", result["spec_decode_num_drafts"])
    yield _plain("Draft tokens:", result["spec_decode_draft_tokens"])
    yield _plain("Accepted tokens:", result["spec_decode_accepted_tokens"])
    yield "Per-position acceptance (%):"
    rates = result["spec_decode_per_position_acceptance_rates"]
    assert isinstance(rates, list)
    for position, rate in enumerate(rates):
        yield _percent(f"  Position {position}:", rate)


def _sim_lines(sim: Mapping[str, object]) -> Iterator[str]:
    yield _title(f"elpase {sim['elpase_version']}, vLLM {sim['vllm_semantics']}", "=", spaced=True)
    if sim["partial"]:
        yield _plain("Cut short, unfinished requests:", sim["unfinished"])
    yield _plain("Steps:", sim["steps"])
    yield _fixed("Mean requests per step:", sim["mean_batch"])
    yield _percent("Steps outside the profile's domain (%):", sim["extrapolated_share"])
    yield _plain("Peak running:", sim["peak_running"])
    yield _plain("Peak left waiting by a step:", sim["peak_waiting"])
    yield _percent("Peak KV cache usage (%):", sim["peak_kv_usage"])
    yield _percent("Prefix cache hit rate (%):", sim["prefix_hit_rate"])
    yield _plain("Preemptions:", sim["preemptions"])
    yield _plain("Recomputed tokens:", sim["recomputed_tokens"])
    yield _plain("Rejected requests:", sim["rejected"])
    yield from _graph_lines(sim["cudagraph"])
    yield from _split_lines(sim["ttft_split_ms"])
    yield from _load_lines(sim["load"])
    if "host" in sim:
        yield from _host_lines(sim["host"])
    yield "=" * _WIDTH


def _graph_lines(graphs: object) -> Iterator[str]:
    """Nothing where no step ran as a graph, or nobody knows."""
    steps = graphs["steps"] if isinstance(graphs, dict) else {}
    if isinstance(graphs, dict) and (steps["FULL"] or steps["PIECEWISE"]):
        yield _title("CUDA graphs")
        for mode, label in _MODE_LABELS.items():
            yield _plain(label, steps[mode])
        yield _percent("Padding (% of computed tokens):", graphs["padding_share"])


def _split_lines(split: object) -> Iterator[str]:
    assert isinstance(split, dict)
    yield _title("Mean wait for the first token")
    for part, label in _SPLIT_LABELS.items():
        yield _fixed(label, split[part]["mean"])


def _load_lines(load: object) -> Iterator[str]:
    assert isinstance(load, dict)
    yield _title("Load")
    yield _percent("Engine busy (% of time):", load["busy_share"])
    yield _percent("Somebody held back (% of time):", load["queued_share"])
    for limit, label in _LIMIT_LABELS.items():
        if load["held_back_by"][limit] > 0:
            yield _percent(label, load["held_back_by"][limit])
    if load["ordering_only"]:
        yield "At its capacity: queueing times here are good for"
        yield "ordering settings, not as numbers."


def _host_lines(host: object) -> Iterator[str]:
    assert isinstance(host, dict)
    if host["mode"] == "swap":
        yield _title("Preemption by swap: V0's, no vLLM of today")
        yield _plain("Swapped out:", host["swaps"])
        yield _plain("Recomputed, as host memory was full:", host["recomputed_instead"])
    else:
        yield _title("Offloading")
        yield _percent("Host memory's hit rate (%):", host["hit_rate"])
    yield _fixed("Copied to host memory (GB):", host["bytes_out"] / 1e9)
    yield _fixed("Copied back (GB):", host["bytes_in"] / 1e9)
    yield _percent("Peak use of host memory (%):", host["peak_usage"])
    yield _percent("Steps waited for copies (% of time):", host["copy_share"])
    yield _percent("PCIe link busy (% of time):", host["link_busy_share"])


def _title(text: str, fill: str = "-", *, spaced: bool = False) -> str:
    return (f" {text} " if spaced else text).center(_WIDTH, fill)


def _plain(label: str, value: object) -> str:
    return f"{label:<40} {value:<10}"


def _fixed(label: str, value: object) -> str:
    return f"{label:<40} {value:<10.2f}"


def _percent(label: str, share: object) -> str:
    assert isinstance(share, float | int)
    return _fixed(label, 100 * share)
