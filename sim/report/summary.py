"""A run as the JSON of `vllm bench serve --save-result --save-detailed`, so that scripts for the one read the other.

Not for printing (`console`) or writing (`result_file`) it, nor for what only a simulator knows (`insight`, kept apart
under the key `sim`).
The one idea: rebuild what the bench's client would have noted of each request, then apply its formulas to that.
Keys, order, units and formulas: vllm/benchmarks/serve.py of vLLM 0.32. Set once where a simulation has no answer:
`date` is the simulated zero (19700101-000000, as the same seed must give the same bytes), `generated_texts` are empty.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sim.errors import InputError
from sim.latency.fields import MOST
from sim.report.frames import Digest, Itls, request_columns
from sim.report.insight import insight
from sim.report.request_rows import FINISHED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from sim.report.frames import Frames
    from sim.report.gap_totals import GapTotals

_METRICS = ("ttft", "tpot", "itl", "e2el", "client_queue_time", "e2el_including_client_queue")
_TOKENS_AT_ONCE = 1 << 16
_GOODPUT_METRICS = ("ttft", "tpot", "e2el")


@dataclass(frozen=True, slots=True)
class SummaryOptions:
    """What `--percentile-metrics`, `--metric-percentiles` and `--goodput` select. Defaults are vLLM's.

    `goodput_slo_ms`: upper bounds per request in ms for any of ttft, tpot and e2el; empty: no goodput.
    """

    percentile_metrics: tuple[str, ...] = ("ttft", "tpot", "itl")
    percentiles: tuple[float, ...] = (99.0,)
    goodput_slo_ms: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def parse(
        cls, percentile_metrics: str = "ttft,tpot,itl", metric_percentiles: str = "99", goodput: Sequence[str] = ()
    ) -> SummaryOptions:
        """From the flags' text, e.g. "ttft,e2el", "50,99.9" and ["ttft:200", "tpot:20"] (ms). Raises InputError."""
        metrics = tuple(percentile_metrics.split(","))
        for name in metrics:
            if name not in _METRICS:
                raise InputError(field="--percentile-metrics", value=name, expected=f"any of {', '.join(_METRICS)}")
        percentiles = tuple(
            _number("--metric-percentiles", text, "numbers from 0 to 100", 100.0)
            for text in metric_percentiles.split(",")
        )
        return cls(metrics, percentiles, goodput_bounds(goodput))


def goodput_bounds(pairs: Sequence[str]) -> dict[str, float]:
    """What `--goodput` says, e.g. ["ttft:200", "tpot:20"] (ms). Raises InputError."""
    return dict(_slo(pair) for pair in pairs)


def summarize(frames: Frames, options: SummaryOptions | None = None, *, detailed: bool = True) -> dict[str, object]:
    """The result of a run: vLLM's keys in vLLM's order (seconds in the lists, ms in `*_ms`), then `sim`.

    detailed: with the lists of `--save-detailed`, one entry per request.

    A request counts as successful when it finished; rejected and unfinished ones are failed, as for vLLM's client.
    The clock of `duration` and `start_times` starts with the workload. Nothing in it is NaN or infinite.
    """
    return _result(frames, options or SummaryOptions(), _plain(request_lists(frames)) if detailed else {})


def summarize_as_arrays(frames: Frames, options: SummaryOptions) -> dict[str, object]:
    """The same, its lists as arrays (`itls` as `Itls`), which take a fraction of the memory: for `write_json`."""
    return _result(frames, options, request_lists(frames))


def summarize_digest(digest: Digest, options: SummaryOptions | None = None) -> dict[str, object]:
    """The same without lists, of a run whose steps were not kept; percentiles of the ITL: see `GapTotals`."""
    return _result(digest, options or SummaryOptions(), {})


def _result(run: Frames | Digest, options: SummaryOptions, lists: Mapping[str, object]) -> dict[str, object]:
    client = _client_records(request_columns(run))
    capped = run.meta.get("max_concurrency") is not None
    rated = _request_rate(run) != "inf"
    series: dict[str, NDArray[np.float64] | GapTotals] = {**_series_s(client, queued=capped, rated=rated)}
    series["itl"] = run.gaps if isinstance(run, Digest) else _itls_s(run.itls, client.success)
    peak = run.most_tokens_per_s if isinstance(run, Digest) else _most_tokens_per_s(client, run.itls)
    result = _settings(run, len(client.success))
    result |= _totals(client, duration_s(run), options, lists, peak)
    result |= _spec_decode(run.meta.get("spec_decode"))
    for metric in _METRICS:
        if metric in options.percentile_metrics and metric in series:
            result |= _statistics_ms(metric, series[metric], options.percentiles)
    result["sim"] = {**insight(run), "goodput_slo_ms": dict(options.goodput_slo_ms)}
    return result


def latencies_s(frames: Frames) -> dict[str, NDArray[np.float64]]:
    """TTFT, TPOT, ITL and E2EL of the successful requests in seconds, as vLLM's client counts them."""
    client = _client_records(request_columns(frames))
    return {**_series_s(client, queued=False, rated=False), "itl": _itls_s(frames.itls, client.success)}


class _Client(NamedTuple):
    """What vLLM's client notes of each request, in order of arrival; 0 for what a failed request never had.

    A request that was never sent, which no real bench leaves behind, starts when it should have.
    """

    success: NDArray[np.bool_]
    start_s: NDArray[np.float64]
    ttft_s: NDArray[np.float64]
    latency_s: NDArray[np.float64]
    queue_s: NDArray[np.float64]
    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]


def _client_records(columns: Mapping[str, NDArray[Any]]) -> _Client:
    success = columns["status"] == FINISHED
    arrival_s, send_s = columns["arrival_s"], columns["send_s"]
    send_s = np.where(np.isnan(send_s), arrival_s, send_s)
    return _Client(
        success=success,
        start_s=send_s,
        ttft_s=np.nan_to_num(columns["first_token_s"] - send_s),
        latency_s=np.where(success, columns["finish_s"] - send_s, 0.0),
        queue_s=send_s - arrival_s,
        prompt_tokens=columns["prompt_tokens"],
        output_tokens=np.where(success, columns["output_tokens"], 0),
    )


def duration_s(run: Frames | Digest) -> float:
    """From the workload's start until the last client has its last token, or, cut short, until the last step's end."""
    columns = request_columns(run)
    ends_s = [np.fmax.reduce(columns[name], initial=0.0) for name in ("send_s", "finish_s")]
    ends_s.append(run.steps.end_s if isinstance(run, Digest) else run.steps["end_s"].max())
    return float(np.fmax.reduce(ends_s))


def _series_s(client: _Client, *, queued: bool, rated: bool) -> dict[str, NDArray[np.float64]]:
    """Each metric of requests over the successful ones, in seconds; the client's queue only when it caps."""
    ok = client.success
    gaps = client.output_tokens - 1
    decode_s = client.latency_s - client.ttft_s
    several = ok & (gaps > 0)
    series = {
        "ttft": client.ttft_s[ok],
        "tpot": decode_s[several] / gaps[several],
        "e2el": client.latency_s[ok],
    }
    if queued:
        series["client_queue_time"] = client.queue_s[ok]
    if queued and rated:
        series["e2el_including_client_queue"] = client.latency_s[ok] + client.queue_s[ok]
    return series


def _itls_s(itls: Itls, success: NDArray[np.bool_]) -> NDArray[np.float64]:
    """All gaps of the successful requests."""
    return itls.values_s if success.all() else itls.values_s[np.repeat(success, np.diff(itls.offsets))]


def _settings(run: Frames | Digest, num_prompts: int) -> dict[str, object]:
    """The keys that vLLM takes from the bench's own flags."""
    meta = run.meta
    model = meta.get("model") or meta.get("profile")
    return {
        "date": "19700101-000000",
        "endpoint_type": "vllm",
        "backend": "vllm",
        "label": meta.get("label"),
        "model_id": model,
        "tokenizer_id": model,
        "num_prompts": num_prompts,
        "request_rate": _request_rate(run),
        "burstiness": meta.get("burstiness", 1.0),
        "max_concurrency": meta.get("max_concurrency"),
        **_ramp(run),
    }


def _ramp(run: Frames | Digest) -> dict[str, object]:
    """The ramp's settings, only where there is one, as vLLM writes them."""
    ramp = {name: run.meta.get(f"ramp_up_{name}") for name in ("strategy", "start_rps", "end_rps")}
    return {} if ramp["strategy"] is None else {f"ramp_up_{name}": value for name, value in ramp.items()}


def _request_rate(run: Frames | Digest) -> object:
    rate = run.meta.get("request_rate")
    return "inf" if rate is None or rate == math.inf else rate


def _totals(
    client: _Client,
    span_s: float,
    options: SummaryOptions,
    lists: Mapping[str, object],
    most_tokens_per_s: float,
) -> dict[str, object]:
    completed = int(client.success.sum())
    total_input = int(client.prompt_tokens[client.success].sum())
    total_output = int(client.output_tokens.sum())
    slo_ms = options.goodput_slo_ms
    return {
        "duration": span_s,
        "completed": completed,
        "failed": len(client.success) - completed,
        "total_input_tokens": total_input,
        "total_output_tokens": total_output,
        "request_throughput": _rate(completed, span_s),
        "request_goodput": _rate(_good(client, slo_ms), span_s) if slo_ms else None,
        "output_throughput": _rate(total_output, span_s),
        "total_token_throughput": _rate(total_input + total_output, span_s),
        **lists,
        "max_output_tokens_per_s": most_tokens_per_s,
        "max_concurrent_requests": _most_requests_per_s(client),
        "rtfx": 0.0,
    }


def _rate(count: int, span_s: float) -> float:
    return count / span_s if span_s > 0 else 0.0


def request_lists(frames: Frames) -> dict[str, NDArray[Any] | Itls | list[str]]:
    """What `--save-detailed` adds, one entry per request, in vLLM's order of keys."""
    client = _client_records(request_columns(frames))
    told = zip(frames.requests["error"], frames.requests["status"], strict=True)
    return {
        "input_lens": client.prompt_tokens,
        "output_lens": client.output_tokens,
        "ttfts": client.ttft_s,
        "itls": frames.itls,
        "latencies": client.latency_s,
        "start_times": client.start_s,
        "queue_times": client.queue_s,
        "generated_texts": [""] * len(client.success),
        "errors": ["" if status == "finished" else str(error or status) for error, status in told],
    }


def _plain(lists: Mapping[str, NDArray[Any] | Itls | list[str]]) -> dict[str, object]:
    """The same as lists of Python's own."""

    def plain(values: NDArray[Any] | Itls | list[str]) -> object:
        if isinstance(values, Itls):
            gaps, bounds = values.values_s.tolist(), values.offsets.tolist()
            return [gaps[a:b] for a, b in pairwise(bounds)]
        return values if isinstance(values, list) else values.tolist()

    return {name: plain(values) for name, values in lists.items()}


def _good(client: _Client, slo_ms: Mapping[str, float]) -> int:
    """Requests within every bound; a single token has a TPOT of 0, so it always meets that one."""
    series = _series_s(client, queued=False, rated=False)
    tpot_s = np.zeros(len(series["ttft"]))
    tpot_s[client.output_tokens[client.success] > 1] = series["tpot"]
    values_s = {"ttft": series["ttft"], "tpot": tpot_s, "e2el": series["e2el"]}
    good = np.ones(len(tpot_s), dtype=bool)
    for metric, bound_ms in slo_ms.items():
        good &= values_s[metric] <= bound_ms / 1000
    return int(good.sum())


def _most_tokens_per_s(client: _Client, itls: Itls) -> float:
    """In any whole second counted from the first successful send."""
    rows = np.flatnonzero(client.success)
    if len(rows) == 0:
        return 0.0
    zero_s = client.start_s[rows].min()
    last = math.ceil((client.start_s[rows] + client.latency_s[rows]).max() - zero_s)
    # By seconds that occur, not from first to last: a trace may have gaps of years.
    tokens: Counter[int] = Counter()
    for some in _by_length(itls, rows):
        seconds = _token_seconds(client, itls, some, zero_s)
        tokens.update(_occurrences(seconds[(seconds >= 0) & (seconds <= last)]))
    return float(max(tokens.values(), default=0))


def _occurrences(seconds: NDArray[np.int64]) -> dict[int, int]:
    """How often each one comes: counted in a table where that is no longer than they are many, else sorted."""
    first, last = (int(seconds.min()), int(seconds.max())) if len(seconds) else (0, -1)
    if last - first < len(seconds):
        counts = np.bincount(seconds - first)
        found = np.flatnonzero(counts)
        counts = counts[found]
        found += first
    else:
        found, counts = np.unique(seconds, return_counts=True)
    return dict(zip(found.tolist(), counts.tolist(), strict=True))


def _most_requests_per_s(client: _Client) -> int:
    """That touch any such second."""
    starts_s = client.start_s[client.success]
    if len(starts_s) == 0:
        return 0
    zero_s = starts_s.min()
    ends_s = starts_s + client.latency_s[client.success]
    edges = np.concatenate((starts_s - zero_s, ends_s - zero_s + 1)).astype(np.int64)
    _, at = np.unique(edges, return_inverse=True)
    change = np.bincount(at, np.repeat((1, -1), len(starts_s)))
    return int(np.cumsum(change).max())


def _by_length(itls: Itls, rows: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Rows in groups whose tokens fit into a table of moderate size, a line for each request: the longest first."""
    num_tokens = itls.offsets[rows + 1] - itls.offsets[rows] + 1
    order = np.argsort(-num_tokens, kind="stable")
    rows, num_tokens = rows[order], num_tokens[order]
    at = 0
    while at < len(rows):
        stop = at + max(1, _TOKENS_AT_ONCE // int(num_tokens[at]))
        yield rows[at:stop]
        at = stop


def _token_seconds(client: _Client, itls: Itls, rows: NDArray[np.int64], zero_s: float) -> NDArray[np.int64]:
    """The second of every token of some requests, in any order.

    The times are summed gap by gap, so that a token on a second's edge falls on the same side as vLLM's.
    """
    num_gaps = itls.offsets[rows + 1] - itls.offsets[rows]
    token = np.arange(num_gaps.max() + 1)
    is_token = token <= num_gaps[:, None]
    times_s = np.zeros(is_token.shape)
    gaps = is_token[:, 1:]
    times_s[:, 1:][gaps] = itls.values_s[(itls.offsets[rows, None] + token[:-1])[gaps]]
    times_s[:, 0] = client.start_s[rows] + client.ttft_s[rows]
    times_s.cumsum(axis=1, out=times_s)
    return (times_s[is_token] - zero_s).astype(np.int64)


def _spec_decode(counted: object) -> dict[str, object]:
    """What the bench asks of vLLM's counters `vllm:spec_decode_*`: rates in percent, but for each position; nothing
    without a draft."""
    if not isinstance(counted, dict) or not counted["num_draft_tokens"]:
        return {}
    drafts, tokens = counted["num_drafts"], counted["num_draft_tokens"]
    accepted = sum(counted["num_accepted_tokens_per_pos"])
    return {
        "spec_decode_acceptance_rate": 100 * accepted / tokens,
        "spec_decode_acceptance_length": 1 + accepted / drafts,
        "spec_decode_num_drafts": drafts,
        "spec_decode_draft_tokens": tokens,
        "spec_decode_accepted_tokens": accepted,
        "spec_decode_per_position_acceptance_rates": [n / drafts for n in counted["num_accepted_tokens_per_pos"]],
    }


def _statistics_ms(
    metric: str, series: NDArray[np.float64] | GapTotals, percentiles: Sequence[float]
) -> dict[str, object]:
    """Mean, median, population deviation and the percentiles (linear between ranks); 0 of nothing, as vLLM says."""
    names = [f"p{int(p) if int(p) == p else p}_{metric}_ms" for p in percentiles]
    if isinstance(series, np.ndarray):
        values_s = series if len(series) else np.zeros(1)
        figures_s = [float(np.mean(values_s)), float(np.median(values_s)), float(np.std(values_s))]
        quantiles_s = [float(np.percentile(values_s, p)) for p in percentiles]
    else:
        median_s, *quantiles_s = series.quantiles_s([0.5, *(p / 100 for p in percentiles)])
        figures_s = [series.mean_s(), median_s, series.std_s()]
    keys = [f"mean_{metric}_ms", f"median_{metric}_ms", f"std_{metric}_ms", *names]
    return {key: 1000 * value_s for key, value_s in zip(keys, [*figures_s, *quantiles_s], strict=True)}


def _slo(pair: str) -> tuple[str, float]:
    name, _, bound = pair.partition(":")
    if name not in _GOODPUT_METRICS:
        expected = f"NAME:MILLISECONDS with a name of {', '.join(_GOODPUT_METRICS)}"
        raise InputError(field="--goodput", value=pair, expected=expected)
    return name, _number("--goodput", bound, f"a number of milliseconds from 0 to {MOST:g} after {name}:", MOST)


def _number(flag: str, text: str, expected: str, largest: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= largest:
        raise InputError(field=flag, value=text, expected=expected)
    return value
