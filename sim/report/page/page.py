"""A finished run as one HTML page that needs nothing else: no network, no file beside it, no library.

Not for the numbers (`numbers`, `insight`, `summary`). The one idea: the page is text, tables and room for figures; its
script draws them from the numbers in the page, and without a script the tables and the words are still there.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from sim.plurals import counted
from sim.report.console import bench_table, sim_table
from sim.report.page.html import facts, paragraph, section, text
from sim.report.page.latency import latency_section, spreads, waiting_section
from sim.report.page.numbers import end_s, over_time
from sim.report.page.over_time import over_time_section, panels
from sim.report.summary import latencies_s
from sim.report.units import as_duration, as_ms, percent
from sim.report.words import provenance

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from sim.report.finished import FinishedRun
    from sim.report.frames import Frames

    Latencies = Mapping[str, NDArray[np.float64]]

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
"""The browser itself refuses any request that the page might make."""


def run_page(run: FinishedRun, explained: str = "") -> str:
    """The whole document. `explained`: the section that says why, as markup."""
    frames = run.frames
    latencies = latencies_s(frames)
    time, made = over_time(frames)
    data = time | {"panels": panels(frames) if len(frames.steps) else [], "spreads": spreads(latencies)}
    parts = [
        explained,
        over_time_section(frames, made) if len(frames.steps) else "",
        latency_section(frames, latencies),
        waiting_section(frames),
        _tables(run),
        _origin(run),
    ]
    title = f"{frames.meta.get('trace') or 'A run'} on {frames.meta.get('profile')}"
    head = _header(frames, run.result, latencies, title)
    return _document(title, head + _navigation(parts), "".join(parts), data)


def _document(title: str, header: str, main: str, data: Mapping[str, Any]) -> str:
    here = files("sim.report.page")
    style, script = (here.joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    # `<` is the only way out of a script element.
    numbers = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="generator" content="elpase">'
        f'<link rel="icon" href="data:,"><title>{text(title)}</title>\n<style>\n{style}</style></head>\n'
        f"<body><header>{header}</header>\n<main>{main}"
        "<noscript><p class=note>The figures are drawn by a script, which is off; timeseries.png and latency.png beside"
        " result.json show the same.</p></noscript></main>\n"
        f'<script type="application/json" id="data">{numbers}</script>\n<script>\n{script}</script></body></html>\n'
    )


def _header(frames: Frames, result: Mapping[str, Any], latencies: Latencies, title: str) -> str:
    return (
        f"<h1>{text(title)}</h1>{paragraph(provenance(frames), 'origin')}{paragraph(_lead(frames, latencies), 'lead')}"
        + "".join(f'<p class="note" role="note">{text(line)}</p>' for line in _cautions(result["sim"]))
        + _tiles(result, latencies)
    )


def _navigation(parts: list[str]) -> str:
    names = {
        "explain": "Why",
        "time": "Over time",
        "latency": "Latency",
        "waiting": "First tokens",
        "tables": "Tables",
        "origin": "How it was made",
    }
    links = [
        f'<li><a href="#{name}">{word}</a></li>'
        for name, word in names.items()
        if any(part.startswith(f'<section id="{name}"') for part in parts)
    ]
    return f'<nav aria-label="Parts of this page"><ul>{"".join(links)}</ul></nav>'


def _lead(frames: Frames, latencies: Latencies) -> str:
    finished = int((frames.requests["status"] == "finished").sum())
    requests = counted(len(frames.requests), "request")
    told = f"{finished:,} of {requests} finished in {as_duration(end_s(frames))} of simulated time."
    for name, what in (("ttft", "first tokens"), ("itl", "gaps between tokens")):
        if len(latencies[name]):
            half, most = (as_ms(1000 * q) for q in np.quantile(latencies[name], (0.5, 0.99)).tolist())
            told += f" Half of the {what} took at most {half}, 99 % at most {most}."
    return told


def _cautions(sim: Mapping[str, Any]) -> Iterator[str]:
    if sim["partial"]:
        left_out = "is" if sim["unfinished"] == 1 else "are"
        yield f"Cut short: {counted(sim['unfinished'], 'request')} did not finish, and {left_out} not in the latencies."
    if sim["rejected"]:
        yield f"Requests that the server refused: {sim['rejected']:,}."
    if sim["load"]["ordering_only"]:
        yield "At its capacity: the waiting times are good for ordering settings, not as numbers."
    if sim["extrapolated_steps"]:
        lie, times = ("lies", "its time is") if sim["extrapolated_steps"] == 1 else ("lie", "their times are")
        yield (
            f"{counted(sim['extrapolated_steps'], 'step')} ({percent(sim['extrapolated_share'])}) {lie} outside what"
            f" the profile was fitted on; {times} extrapolated."
        )


def _tiles(result: Mapping[str, Any], latencies: Latencies) -> str:
    sim = result["sim"]
    told = [
        (
            "Output tokens per second",
            f"{result['output_throughput']:,.0f}",
            f"{result['request_throughput']:.3g} requests/s",
        )
    ]
    for name, title in (("ttft", "TTFT, p99"), ("tpot", "TPOT, p99"), ("itl", "ITL, p99"), ("e2el", "E2EL, p99")):
        if len(latencies[name]):
            half, most = (as_ms(1000 * q) for q in np.quantile(latencies[name], (0.5, 0.99)).tolist())
            told.append((title, most, f"median {half}"))
    held = (
        f"{counted(sim['recomputed_tokens'], 'token')} computed again"
        if sim["preemptions"]
        else "nothing computed again"
    )
    told += [
        ("Running at most", f"{sim['peak_running']:,}", f"{sim['peak_waiting']:,} left waiting at most"),
        (
            "KV cache at most",
            percent(sim["peak_kv_usage"]),
            f"{percent(sim['prefix_hit_rate'])} prefix hits",
        ),
        ("Preemptions", f"{sim['preemptions']:,}", held),
    ]
    cells = "".join(f"<div><dt>{text(t)}</dt><dd>{text(v)}<small>{text(s)}</small></dd></div>" for t, v, s in told)
    return f'<dl class="tiles">{cells}</dl>'


def _tables(run: FinishedRun) -> str:
    words = "As the console shows them: what vllm bench serve prints, then what happened inside the server."
    tables = f"{text(bench_table(run.result))}\n{text(sim_table(run.result))}"
    return section("tables", "Tables", paragraph(words), f'<pre tabindex="0">{tables}</pre>')


def _origin(run: FinishedRun) -> str:
    meta = run.frames.meta
    pairs = [
        ("Command", _command(meta)),
        ("Workload", meta.get("trace")),
        ("Profile", meta.get("profile")),
        ("Versions", f"elpase {meta.get('elpase_version')}, scheduler of vLLM {meta.get('vllm_semantics')}"),
        ("Seed", meta.get("seed")),
        ("Simulated time", f"{end_s(run.frames):,.3f} s, {counted(len(run.frames.steps), 'step')}"),
        *_settings(meta.get("server")),
    ]
    return section(
        "origin",
        "How it was made",
        facts((name, value) for name, value in pairs if value is not None),
        _folded("Settings of the scheduler", _settings(meta.get("config"))),
        _folded("The workload in full", _settings(meta.get("workload"))),
    )


def _command(meta: Mapping[str, Any]) -> str | None:
    """The one that does it again, from the flags that were noted; None where they were not."""
    flags = meta.get("flags")
    if not isinstance(flags, dict) or not meta.get("trace"):
        return None
    words = ["elpase", "replay", str(meta["trace"])]
    for name, value in flags.items():
        dashed = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{dashed}" if value else f"--no-{dashed}")
        else:
            values = value if isinstance(value, list) else [value]
            words += [word for one in values for word in (f"--{dashed}", str(one))]
    return " ".join(words)


def _settings(said: object) -> list[tuple[str, object]]:
    return [(name, value) for name, value in said.items() if value not in (None, {})] if isinstance(said, dict) else []


def _folded(title: str, pairs: list[tuple[str, object]]) -> str:
    return f"<details><summary>{text(title)}</summary>{facts(pairs)}</details>" if pairs else ""
