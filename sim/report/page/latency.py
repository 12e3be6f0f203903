"""The parts of the page about waiting: how long, how it spreads, and where the wait for the first token goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sim.plurals import counted
from sim.report.insight import ttft_parts_s
from sim.report.page.html import paragraph, plot, prose, section, table, text
from sim.report.page.numbers import spread, wait_groups
from sim.report.units import as_ms
from sim.report.words import latency_headline

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from sim.report.frames import Frames

    Latencies = Mapping[str, NDArray[np.float64]]

_NAMES = {
    "ttft": ("TTFT", "Time to first token", "request", "blue"),
    "tpot": ("TPOT", "Time per output token", "request", "green"),
    "itl": ("ITL", "Inter-token latency", "gap", "purple"),
    "e2el": ("E2EL", "End-to-end latency", "request", "orange"),
}
PARTS = {
    "client_queue": ("client's queue", "brown"),
    "request_path": ("HTTP and tokenizer", "green"),
    "server_queue": ("server's queue", "orange"),
    "prefill": ("prefill", "blue"),
    "delivery": ("detokenizer and HTTP", "purple"),
}
_SLOWEST = 10


def spreads(latencies: Latencies) -> list[dict[str, Any]]:
    """What page.js draws."""
    return [{"id": name, "color": _NAMES[name][3]} | spread(latencies[name]) for name in _NAMES if len(latencies[name])]


def latency_section(frames: Frames, latencies: Latencies) -> str:
    """Figures, and the same as a table."""
    told = {name: values for name, values in latencies.items() if len(values)}
    if not told:
        return section("latency", "Latency", paragraph("No request was answered."))
    return section(
        "latency",
        "Latency",
        paragraph(f"{latency_headline(latencies['ttft'], frames)}."),
        paragraph(
            "Up: the share that waited no longer, stretched towards the top, each further nine as high as the one"
            " before, and the longest wait above. Each curve goes through 200 of its quantiles.",
            "soft",
        ),
        f'<div class="spreads">{"".join(_figure(name, told[name]) for name in _NAMES if name in told)}</div>',
        table(
            "Latencies of the answered requests, as vllm bench serve counts them (ms)",
            ("", "mean", "median", "p90", "p95", "p99", "largest", "of"),
            [_row(name, told[name]) for name in _NAMES if name in told],
        ),
    )


def _figure(name: str, values_s: NDArray[np.float64]) -> str:
    short, full, unit, _ = _NAMES[name]
    half, most = (as_ms(1000 * q) for q in np.quantile(values_s, (0.5, 0.99)).tolist())
    title = f"{short}: half within {half}, 99 % within {most}"
    return plot(
        name, title, f"{full} of {counted(len(values_s), unit)}: half within {half}, 99 % within {most}.", kind="spread"
    )


def _row(name: str, values_s: NDArray[np.float64]) -> list[str]:
    of = [values_s.mean(), *np.quantile(values_s, (0.5, 0.9, 0.95, 0.99)), values_s.max()]
    return [_NAMES[name][0], *(f"{1000 * value:,.2f}" for value in of), counted(len(values_s), _NAMES[name][2])]


def waiting_section(frames: Frames) -> str:
    """Where the wait for the first token goes, of everybody and of the slowest, and who these are."""
    parts_s = ttft_parts_s(frames)
    if not len(parts_s["prefill"]):
        return ""
    groups = wait_groups(parts_s)
    seen = [part for part in PARTS if any(parts[part] > 0 for _, parts in groups)]
    most = max(sum(parts.values()) for _, parts in groups)
    keys = "".join(
        f'<span class="key" style="--of:var(--{PARTS[part][1]})">{text(PARTS[part][0])}</span>' for part in seen
    )
    bars = "".join(_bar(name, parts, most) for name, parts in groups)
    return section(
        "waiting",
        "Where the wait for the first token goes",
        paragraph("From the arrival of a request on, so with the time that the client's own cap held it back."),
        f'<div class="keys">{keys}</div>{bars}',
        table(
            "Mean parts of the wait (ms)",
            ("", *(PARTS[part][0] for part in seen), "together"),
            [
                (name, *(f"{parts[part]:,.1f}" for part in seen), f"{sum(parts.values()):,.1f}")
                for name, parts in groups
            ],
        ),
        _slowest(frames),
    )


def _bar(name: str, parts: Mapping[str, float], most: float) -> str:
    pieces = "".join(
        f'<i style="width:{100 * ms / most:.2f}%;--of:var(--{PARTS[part][1]})"></i>' for part, ms in parts.items() if ms
    )
    alt = ", ".join(f"{PARTS[part][0]} {as_ms(ms)}" for part, ms in parts.items() if ms)
    return (
        f'<div class="soft">{prose(f"{name}: {as_ms(sum(parts.values()))}")}</div>'
        f'<div class="bar" role="img" aria-label="{text(name)}: {text(alt)}">{pieces}</div>'
    )


def _slowest(frames: Frames) -> str:
    requests = frames.requests
    wait_s = (requests["first_token_s"] - requests["send_s"]).to_numpy(dtype=np.float64)
    rows = np.argsort(np.where(np.isnan(wait_s), -1.0, wait_s), kind="stable")[::-1][:_SLOWEST]
    return table(
        f"The {_SLOWEST} longest waits for a first token, counted from the send",
        (
            "request",
            "sent at (s)",
            "prompt",
            "cached",
            "output",
            "TTFT (ms)",
            "longest gap (ms)",
            "E2EL (ms)",
            "preempted",
        ),
        [_of_request(frames, int(row), float(wait_s[row])) for row in rows if not np.isnan(wait_s[row])],
    )


def _of_request(frames: Frames, row: int, wait_s: float) -> list[str]:
    request = frames.requests.iloc[row]
    gap_s = frames.itls.row(row).max(initial=0.0)
    end_s = float(request["finish_s"] - request["send_s"])
    counts = [f"{request[name]:,}" for name in ("prompt_tokens", "cached_tokens", "output_tokens")]
    times = [
        f"{1000 * wait_s:,.1f}",
        f"{1000 * gap_s:,.1f}",
        f"{1000 * end_s:,.0f}" if end_s == end_s else "unfinished",
    ]
    return [str(request["request_id"]), f"{request['send_s']:,.2f}", *counts, *times, f"{request['preemptions']:,}"]
