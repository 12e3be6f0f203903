"""What one synchronous run (one request at a time) adds to composed steps: the host's time and the client's.

Not for loaded runs. The one idea: alone, a request waits for nobody, so what its tokens take beyond the composed decode
step is the host's, and what its first token takes beyond the composed prompt step is the client's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import nnls

from calibrate import guidellm
from calibrate.measured import read_measured
from sim.errors import InputError
from sim.input_file import read_lines
from sim.latency.profile import ClientTerms
from sim.latency.shape import StepShape

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from sim.latency.model import FusedLaw

_REQUESTS = 64
"""Lengths drawn to know a point's mean."""


@dataclass(frozen=True, slots=True)
class Alone:
    """Requests of one kind, one at a time: means in tokens and seconds."""

    prompt_tokens: float
    output_tokens: float
    ttft_s: float
    itl_s: float


@dataclass(frozen=True, slots=True)
class Overheads:
    """What a server adds to its device's steps."""

    step_s: float
    """Per step, with one sequence. Below 0: the composed step is too slow by so much."""
    client: ClientTerms
    spread_s: float
    """Largest distance of a kind's own value from step_s."""


def read_alone(path: Path) -> list[Alone]:
    """The `synchronous` points of a GuideLLM sweep, or a CSV of requests that never overlap. Raises InputError."""
    columns = set(next(read_lines(path), "").strip().split(","))
    if not {"isl", "osl"} <= columns:
        return [_of_requests(read_measured(path), path)]
    points = [point for point in guidellm.read_points(path) if point.strategy == guidellm.SYNCHRONOUS]
    if not points:
        raise InputError("no synchronous point", file=path, field="strategy")
    return [_of_point(point) for point in points]


def overheads(law: FusedLaw, runs: list[Alone]) -> Overheads:
    """Seconds beyond a law of the device, each the middle of what the runs say; a client takes no less than none."""
    steps = np.array([run.itl_s - _decode_s(law, run) for run in runs])
    step_s = float(np.median(steps))
    rest = np.array([run.ttft_s - _prompt_s(law, run) - step_s for run in runs])
    lengths = np.array([run.prompt_tokens for run in runs])
    if np.ptp(lengths) == 0:
        return Overheads(step_s, ClientTerms(max(0.0, float(np.median(rest)))), _farthest(steps))
    middle = sorted(set(lengths))
    medians = np.array([np.median(rest[lengths == length]) for length in middle])
    request_s, token_s = nnls(np.stack([np.ones(len(middle)), middle], axis=1), np.maximum(medians, 0.0))[0]
    return Overheads(step_s, ClientTerms(float(request_s), 0.0, float(token_s)), _farthest(steps))


def _farthest(steps: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    return float(np.abs(steps - np.median(steps)).max())


def _decode_s(law: FusedLaw, run: Alone) -> float:
    context = round(run.prompt_tokens + run.output_tokens / 2)
    return law.price(StepShape(1, 1, context, 0, 0.0, 1)).device_s


def _prompt_s(law: FusedLaw, run: Alone) -> float:
    tokens = round(run.prompt_tokens)
    return law.price(StepShape(tokens, 1, 0, tokens, tokens**2 / 2, 1)).device_s


def _of_point(point: guidellm.Point) -> Alone:
    prompt, output = point.mean_lengths(_REQUESTS)
    return Alone(prompt, output, point.real["ttft_mean"], point.real["itl_mean"])


def _of_requests(run: pd.DataFrame, path: Path) -> Alone:
    ends = run["send_s"] + run["e2e_s"]
    overlap = np.flatnonzero(run["send_s"].to_numpy()[1:] < ends.cummax().to_numpy()[:-1])
    if overlap.size:
        row = int(overlap[0]) + 1
        raise InputError("requests overlap, so this is no synchronous run", file=path, line=row + 2, field="send_s")
    streamed = run[run["output_tokens"] > 1]
    if streamed.empty:
        raise InputError("no request has a second token", file=path)
    gaps = (streamed["e2e_s"] - streamed["ttft_s"]).sum() / (streamed["output_tokens"] - 1).sum()
    prompt, output = float(run["prompt_tokens"].mean()), float(run["output_tokens"].mean())
    return Alone(prompt, output, float(run["ttft_s"].mean()), float(gaps))
