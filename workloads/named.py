"""Workloads that ship with elpase: laws derived from public traces, without any of their rows.

Not for reading traces. The one idea: a small JSON file of numbers, with where they come from (`derive_builtin` makes
it), is enough to draw a workload like the trace.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workloads.arrivals import Arrivals, GapQuantiles
from workloads.datasets import DATASETS
from workloads.errors import TraceError
from workloads.lengths import ByPrompt, Quantiles
from workloads.synthetic import synthetic
from workloads.trace import Selection, Trace, read_trace

if TYPE_CHECKING:
    from workloads.arrivals import ArrivalLaw

BUILTIN_NAMES = ("azure-code", "azure-conv")

_FOLDER = Path(__file__).with_name("data")


def builtin(
    name: str,
    *,
    num_requests: int | None = None,
    request_rate: float | None = None,
    arrivals: ArrivalLaw | None = None,
    seed: int = 0,
    selection: Selection | None = None,
) -> Trace:
    """The built-in workload `name`, one of `BUILTIN_NAMES`: as many requests as the trace that it is drawn from.

    What is given replaces the trace's: `num_requests`; `request_rate` in requests/s, its gaps keep their form;
    `arrivals`, another process altogether.

    - `azure-conv`: Azure's conversation trace of November 2023: 5.53 requests/s, about 1155 tokens in and 211 out.
    - `azure-code`: its coding trace: 2.57 requests/s in bursts with long pauses, about 2048 in and 28 out.
    """
    if name not in BUILTIN_NAMES:
        raise TraceError(field="workload", value=name, expected=f"one of {', '.join(BUILTIN_NAMES)}")
    facts = json.loads((_FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return synthetic(
        facts["num_requests"] if num_requests is None else num_requests,
        arrivals or _arrivals(facts["arrivals"], request_rate),
        _quantiles(facts["prompt_tokens"]),
        ByPrompt(tuple(facts["output_tokens"]["prompt_upto"]), tuple(map(_quantiles, facts["output_tokens"]["laws"]))),
        seed=seed,
        selection=selection,
        name=name,
    )


def open_workload(
    name_or_path: str | Path,
    *,
    format: str = "auto",  # noqa: A002  # the option's name on the command line
    strict: bool = False,
    max_model_len: int | None = None,
    rate_scale: float = 1.0,
    limit: int | None = None,
    start_s: float | None = None,
    end_s: float | None = None,
    seed: int = 0,
) -> Trace:
    """What a command line calls TRACE: a built-in workload's name, or a file's path (`./azure-conv` is a path).

    Options as in `read_trace`; `format` is for files only. Raises `TraceError`.
    """
    if str(name_or_path) in BUILTIN_NAMES:
        chosen = Selection(strict, max_model_len, rate_scale, limit, start_s, end_s)
        return builtin(str(name_or_path), seed=seed, selection=chosen)
    try:
        return read_trace(
            name_or_path,
            format=format,
            strict=strict,
            max_model_len=max_model_len,
            rate_scale=rate_scale,
            limit=limit,
            start_s=start_s,
            end_s=end_s,
            seed=seed,
        )
    except TraceError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        known = f"a file, or a workload's name: {', '.join((*BUILTIN_NAMES, *DATASETS))}"
        raise TraceError(file=name_or_path, field="file", value=error.value, expected=known) from error


def _quantiles(table: dict[str, Any]) -> Quantiles:
    return Quantiles(tuple(table["q"]), tuple(table["tokens"]))


def _arrivals(facts: dict[str, Any], request_rate: float | None) -> ArrivalLaw:
    rate_per_s = facts["rate_per_s"] if request_rate is None else request_rate
    if "gap_s" in facts:
        return GapQuantiles(tuple(facts["q"]), tuple(facts["gap_s"]), rate_per_s)
    return Arrivals(rate_per_s, burstiness=facts["burstiness"])
