"""A workload said in names and numbers, as `vllm bench serve`'s flags say it: which requests, how many, how fast.

Not for the command line (`sim.cli.workload_flags` reads the flags) nor for the laws (`workloads`). The one idea: a
workload is a plain mapping of flag names to values, complete and small, so that it can be noted, compared and sent to
another process; only opening it reads a file or draws a number.
"""

from __future__ import annotations

import math
import os
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.errors import InputError
from workloads import BUILTIN_NAMES, Selection, TraceError, builtin, open_workload
from workloads.arrivals import Arrivals
from workloads.datasets import DATASETS, NUM_PROMPTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sim.core.config import SchedulerConfig
    from workloads import Trace

FILE, BUILTIN = "a file", "a built-in workload"
_DRAWN = (BUILTIN, *DATASETS)

GOES_WITH: Mapping[str, tuple[str, ...]] = {
    "format": (FILE,),
    "num_prompts": _DRAWN,
    "request_rate": _DRAWN,
    "burstiness": _DRAWN,
    "ramp_up_strategy": _DRAWN,
    "ramp_up_start_rps": _DRAWN,
    "ramp_up_end_rps": _DRAWN,
    "input_len": ("random", "sessions"),
    "output_len": tuple(DATASETS),
    **{f"{kind}_{field.name}": (kind,) for kind, dataset in DATASETS.items() for field in fields(dataset)},
}
"""Flags that go with some kinds of TRACE only, so that one without effect is an error and not a silence."""

ANY_TRACE: Mapping[str, Any] = {
    "limit": None, "start": None, "end": None, "rate_scale": 1.0, "max_concurrency": None, "strict": False, "seed": 0,
}  # fmt: skip
"""Flags that go with every TRACE, and what they are when nobody says them."""

_KEYWORDS = {"start_s": "start", "end_s": "end"}
"""Flags that are shorter than what `workloads` calls the same thing."""


def open_from(kwargs: Mapping[str, Any], max_model_len: int) -> Trace:
    """The workload that `trace` and the flags say (all of them, None where not given). Raises InputError, TraceError.

    Requests longer than `max_model_len` tokens are left out.
    """
    if not kwargs["trace"]:
        raise InputError(field="TRACE", value="", expected="a file, or a workload's name")
    kind = kind_of(kwargs["trace"])
    _check_flags(kwargs, kind)
    try:
        return _opened(kwargs, kind, max_model_len)
    except TraceError as error:
        if error.file is not None or error.field is None:
            raise
        name = _KEYWORDS.get(error.field, error.field)
        raise InputError(field=_dashed(name), value=error.value, expected=error.expected) from error


def remarks(trace: Trace, config: SchedulerConfig) -> list[str]:
    """Lines on what became of a workload that has been read: rows left out, times moved, settings that do nothing."""
    told = trace.notes()
    if trace.prioritized and config.policy == "fcfs":
        told.append("the requests' priorities do nothing under --scheduling-policy fcfs")
    if not trace.prioritized and config.policy == "priority":
        told.append("no request has a priority: --scheduling-policy priority goes by arrival")
    if config.kv_preemption != "recompute" and not config.num_host_blocks:
        told.append(f"the host memory given holds no KV block: {config.kv_preemption} does nothing")
    return told


def file_name(path: str | os.PathLike[str]) -> str:
    """A file's name without its folder, as pictures and files can show it: bytes of another encoding become a mark."""
    return os.fsencode(Path(path).name).decode(errors="replace")


def traffic(kwargs: Mapping[str, Any]) -> dict[str, object]:
    """What a result says of the workload, as `Frames.meta` wants it: trace, seed, rate, burstiness, ramp.

    A file is its name without its folder: a result says nothing of the machine.
    """
    rates = {name: kwargs[name] for name in ("request_rate", "ramp_up_start_rps", "ramp_up_end_rps")}
    burstiness = 1.0 if kwargs["burstiness"] is None else kwargs["burstiness"]
    return {
        "trace": file_name(kwargs["trace"]) if kind_of(kwargs["trace"]) == FILE else kwargs["trace"],
        "seed": kwargs["seed"],
        # JSON knows no infinity: vLLM's own word for it.
        "burstiness": "inf" if math.isinf(burstiness) else burstiness,
        "ramp_up_strategy": kwargs["ramp_up_strategy"],
        **{name: rate * kwargs["rate_scale"] for name, rate in rates.items() if rate is not None and rate < math.inf},
    }


def effective(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Every flag that goes with this TRACE: as given, else by its default; None: it has none, or the workload's own."""
    kind = kind_of(kwargs["trace"])
    values = {name: kwargs[name] for name, kinds in GOES_WITH.items() if kind in kinds}
    if kind in DATASETS:
        drawn = DATASETS[kind](**dict(_given(kwargs, kind)))
        values |= {f"{kind}_{field.name}": getattr(drawn, field.name) for field in fields(drawn)}
        values["num_prompts"] = values["num_prompts"] or NUM_PROMPTS
        for general in ("input_len", "output_len"):  # the data set's own say it now
            values.pop(general, None)
    return values | {name: kwargs[name] for name in ANY_TRACE}


def _opened(kwargs: Mapping[str, Any], kind: str, max_model_len: int) -> Trace:
    chosen = {
        "strict": kwargs["strict"],
        "max_model_len": max_model_len,
        "rate_scale": kwargs["rate_scale"],
        "limit": kwargs["limit"],
        "start_s": kwargs["start"],
        "end_s": kwargs["end"],
    }
    trace, seed, num_prompts, rate = (kwargs[name] for name in ("trace", "seed", "num_prompts", "request_rate"))
    if kind == FILE:
        return open_workload(trace, format=kwargs["format"] or "auto", seed=seed, **chosen)
    arrivals, selection = _arrivals(kwargs), Selection(**chosen)
    if kind == BUILTIN:
        # A rate alone says how fast, not how: the workload's own pauses and bursts stay.
        own = kwargs["burstiness"] is None and kwargs["ramp_up_strategy"] is None and (rate is None or rate < math.inf)
        law = {"request_rate": rate} if own else {"arrivals": arrivals}
        return builtin(trace, num_requests=num_prompts, seed=seed, selection=selection, **law)
    dataset = DATASETS[kind](**dict(_given(kwargs, kind)))
    return dataset.trace(num_prompts or NUM_PROMPTS, arrivals, seed=seed, selection=selection)


def _arrivals(kwargs: Mapping[str, Any]) -> Arrivals:
    """vLLM's arrivals, with its refusals. Raises TraceError and InputError."""
    strategy, start, end = (kwargs[f"ramp_up_{name}"] for name in ("strategy", "start_rps", "end_rps"))
    rate, burstiness = kwargs["request_rate"], kwargs["burstiness"]
    if strategy is not None and rate not in (None, math.inf):
        raise InputError("--request-rate contradicts --ramp-up-strategy: a ramp sets the rate")
    if start is not None and end is not None and start > end:
        raise InputError(field="--ramp-up-start-rps", value=start, expected=f"at most --ramp-up-end-rps {end}")
    if burstiness is not None and rate is None and strategy is None:
        raise InputError("--burstiness needs --request-rate or a ramp: there are no gaps to shape without one")
    return Arrivals(
        math.inf if rate is None else rate,
        1.0 if burstiness is None else burstiness,
        strategy,
        start,
        end,
        rescale=True,
    )


def _given(kwargs: Mapping[str, Any], kind: str) -> Iterator[tuple[str, Any]]:
    """The fields of a data set that the command line sets; a general length stands above its own, as in vLLM."""
    for field in fields(DATASETS[kind]):
        general = kwargs.get(field.name) if field.name in ("input_len", "output_len") else None
        value = kwargs[f"{kind}_{field.name}"] if general is None else general
        if value is not None:
            yield field.name, value


def kind_of(trace: str) -> str:
    """Which kind of TRACE this is: FILE, BUILTIN, or the name of a data set."""
    if trace in DATASETS:
        return trace
    return BUILTIN if trace in BUILTIN_NAMES else FILE


def _check_flags(kwargs: Mapping[str, Any], kind: str) -> None:
    """Raise InputError for a flag that this kind of TRACE knows nothing of."""
    for name, kinds in GOES_WITH.items():
        if kwargs[name] is not None and kind not in kinds:
            is_it = f"; {kwargs['trace']} is {kind}" if kind in (FILE, BUILTIN) else f", not with {kind}"
            instead = _INSTEAD.get(name, "") if kind == FILE else ""
            raise InputError(f"{_dashed(name)} goes with {_listed(kinds)}{is_it}{instead}")


_INSTEAD = {
    "num_prompts": ": see --limit",
    "request_rate": ", with times of its own: see --rate-scale",
}
"""What a file has in a flag's place."""


def _listed(kinds: tuple[str, ...]) -> str:
    return " or ".join(kinds) if len(kinds) < 3 else f"{', '.join(kinds[:-1])} or {kinds[-1]}"


def _dashed(name: str) -> str:
    return f"--{name.replace('_', '-')}"
