"""A report of GuideLLM (benchmarks.json of 0.5 to 0.8, report schemas 1 and 2): several benchmarks in one file.

Not for the CSV of its sweeps (calibrate.guidellm). The one idea: every request stands there with its times, from which
vLLM's figures are made; GuideLLM's own names mean other things (its ITL is a request's mean, which vLLM calls TPOT, its
TPOT counts the first token) and are used only where nothing else is there.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pandas as pd

from sim.errors import InputError, one_line
from sim.latency.fields import Fields
from sim.plurals import counted
from sim.report.bench.run import BenchRun

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

SCHEMAS = (1, 2)
_OF_STRATEGY = {"constant": "rate", "poisson": "rate", "concurrent": "streams"}
_STATED = {
    "ttft": ("time_to_first_token_ms", 1.0),
    "e2el": ("request_latency", 1000.0),
}
_RATES = {
    "request_throughput": "requests_per_second",
    "output_throughput": "output_tokens_per_second",
    "total_token_throughput": "tokens_per_second",
}
_PERCENTILES = ("p90", "p95", "p99")


def is_guidellm(document: Mapping[str, Any]) -> bool:
    """Whether it looks like one of its reports."""
    return isinstance(document.get("benchmarks"), list) and isinstance(document.get("metadata"), dict)


def read_runs(document: Mapping[str, Any], file: Path) -> Iterator[BenchRun]:
    """The report's benchmarks, each named by its strategy. Raises InputError naming file and field."""
    meta = Fields(file, document).object("metadata")
    if meta.table.get("version") not in SCHEMAS:
        raise meta.wrong("version", "report schema 1 or 2, as of GuideLLM 0.5 to 0.8")
    version = meta.table.get("guidellm_version", "")
    if not document["benchmarks"]:
        raise InputError("no benchmark in it: nothing to compare", file=file, field="benchmarks")
    for row, entry in enumerate(document["benchmarks"]):
        at = f"benchmarks[{row}]."
        if not isinstance(entry, dict):
            raise InputError(file=file, field=at[:-1], value=entry, expected="an object")
        yield _run(Fields(file, entry, at), f"GuideLLM {version}".strip(), _model(document, entry))


def _run(fields: Fields, source: str, model: str) -> BenchRun:
    config, metrics = fields.object("config"), fields.object("metrics")
    strategy = config.object("strategy")
    kind = strategy.text("type_")
    totals = metrics.object("request_totals")
    completed = totals.integer("successful")
    if not completed:
        raise InputError("no request was answered", file=fields.file, field=f"{fields.at}metrics.request_totals")
    requests = _requests(fields.object("requests"))
    listed = 0 if requests is None else len(requests)
    return BenchRun(
        name=_name(kind, strategy),
        file=fields.file,  # type: ignore[arg-type]
        source=source,
        model=model,
        completed=completed,
        failed=totals.integer("errored"),
        duration_s=fields.number("duration"),
        input_tokens=round(_summary(metrics, "prompt_token_count").number("total_sum")),
        output_tokens=round(_summary(metrics, "output_token_count").number("total_sum")),
        stated=_stated(metrics),
        request_rate=_rate(kind, strategy),
        max_concurrency=_cap(kind, strategy),
        in_flight=_summary(metrics, "request_concurrency").number("mean"),
        requests=requests,
        sampled=listed < completed,
        windowed=True,
        cautions=tuple(_cautions(totals, listed, completed)),
    )


def _name(kind: str, strategy: Fields) -> str:
    """As GuideLLM's own console says it, such as constant@2.50."""
    own = _OF_STRATEGY.get(kind)
    if own is None:
        return one_line(kind)
    value = strategy.number(own)
    return f"{kind}@{value:.0f}" if own == "streams" else f"{kind}@{value:.2f}"


def _rate(kind: str, strategy: Fields) -> float | None:
    if _OF_STRATEGY.get(kind) == "rate":
        return strategy.number("rate")
    return math.inf if kind in ("throughput", "concurrent", "synchronous") else None


def _cap(kind: str, strategy: Fields) -> int | None:
    if kind == "synchronous":
        return 1
    name = "streams" if kind == "concurrent" else "max_concurrency"
    return None if strategy.table.get(name) is None else strategy.integer(name, least=1)


def _cautions(totals: Fields, listed: int, completed: int) -> list[str]:
    told = []
    if cut := int(totals.table.get("incomplete") or 0):
        was, is_ = ("was", "is") if cut == 1 else ("were", "are")
        told.append(f"{counted(cut, 'request')} {was} cut off when the time was up, and {is_} left out")
    if listed < completed:
        told.append(f"lists {listed:,} of its {counted(completed, 'request')}: figures are as stated, not made anew")
    return told


def _summary(metrics: Fields, name: str) -> Fields:
    return metrics.object(name).object("successful")


def _stated(metrics: Fields) -> dict[str, float]:
    """What has the same meaning as vLLM's; ITL is weighed by tokens, so its mean has, its percentiles have not."""
    told = {ours: _summary(metrics, theirs).number("mean") for ours, theirs in _RATES.items()}
    for metric, (name, scale) in _STATED.items():
        summary = _summary(metrics, name)
        for word in ("mean", "median"):
            told[f"{word}_{metric}_ms"] = scale * summary.number(word)
        percentiles = summary.object("percentiles")
        for word in _PERCENTILES:
            told[f"{word}_{metric}_ms"] = scale * percentiles.number(word)
    return told | {"mean_itl_ms": _summary(metrics, "inter_token_latency_ms").number("mean")}


def _requests(groups: Fields) -> pd.DataFrame | None:
    rows = []
    for row, entry in enumerate(groups.table.get("successful") or ()):
        at = f"{groups.at}successful[{row}]"
        if not isinstance(entry, dict):
            raise InputError(file=groups.file, field=at, value=entry, expected="an object")
        rows.append(_request(Fields(groups.file, entry, f"{at}.")))
    if not rows:
        return None
    table = pd.DataFrame(rows)
    return table.sort_values("start_s", kind="stable", ignore_index=True)


def _request(fields: Fields) -> dict[str, float]:
    """Without streaming there is no first token to be seen."""
    streamed = fields.table.get("time_to_first_token_ms") is not None
    several = fields.table.get("inter_token_latency_ms") is not None
    return {
        "start_s": fields.number("request_start_time"),
        "ttft_s": fields.number("time_to_first_token_ms") / 1000 if streamed else math.nan,
        "tpot_s": fields.number("inter_token_latency_ms") / 1000 if several else math.nan,
        "latency_s": fields.number("request_latency"),
        "input_tokens": fields.integer("prompt_tokens"),
        "output_tokens": fields.integer("output_tokens"),
    }


def _model(document: Mapping[str, Any], entry: Mapping[str, Any]) -> str:
    """Wherever the schemas have put it: the benchmark's backend, or the arguments of the whole report."""
    for path in (
        ("config", "backend", "model"),
        ("config", "backend", "details", "model"),
        ("config", "spec", "backend", "model"),
        ("args", "model"),
    ):
        for start in (entry, document):
            found: Any = start
            for key in path:
                found = found.get(key) if isinstance(found, dict) else None
            if isinstance(found, str) and found:
                return found
    return ""
