"""The flags that choose a workload, for any verb: `workload_options` adds them, `open_from` opens what they say.

Not for what they mean: that is `workloads`. The one idea: one table says which flags there are and which kinds of TRACE
each goes with, so that a flag without effect is an error and not a silence. Names and defaults: `vllm bench serve`.
"""

from __future__ import annotations

import json
import math
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from sim.cli.flags import GroupedOption
from sim.errors import InputError
from workloads import BUILTIN_NAMES, FORMATS, Selection, TraceError, builtin, open_workload
from workloads.arrivals import Arrivals
from workloads.datasets import DATASETS, MAX_PROMPTS, NUM_PROMPTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from workloads import Trace

Decorated = TypeVar("Decorated", bound="Callable[..., Any]")


def range_ratio(text: str) -> float | dict[str, float]:
    """A number, or a JSON object of two numbers, as vLLM takes it. What they may be is the data set's business."""
    try:
        ratio = json.loads(text)
    except ValueError:
        ratio = None
    if isinstance(ratio, dict):
        return ratio
    try:
        return float(text)
    except ValueError as error:
        raise click.BadParameter(f'{text!r} is neither a number nor {{"input": ..., "output": ...}}.') from error


class Flag(NamedTuple):
    """One flag: its keyword, type and help. Its spelling is the keyword's, with dashes."""

    name: str
    kind: Any
    help: str


class Group(NamedTuple):
    """Flags that go with the same kinds of TRACE. They are None where they were not given."""

    title: str
    kinds: tuple[str, ...]
    flags: tuple[Flag, ...]


FILE, BUILTIN = "a file", "a built-in workload"
_DRAWN = f"Workload: {', '.join(DATASETS)}"
_COUNT = click.IntRange(min=1, max=MAX_PROMPTS)

GROUPS = (
    Group("Workload: a file", (FILE,), (Flag("format", click.Choice(list(FORMATS)), "Dialect. Default: recognised."),)),
    Group(
        "Workload: number and times (a file has its own)",
        (BUILTIN, *DATASETS),
        (
            Flag(
                "num_prompts", _COUNT, f"Requests (`sessions`: sessions) to draw. Default: {NUM_PROMPTS}, or its own."
            ),
            Flag("request_rate", float, "Requests per second. Default: inf (all at once), or its own."),
            Flag("burstiness", float, "Gamma shape of the gaps: 1 is Poisson, less comes in bursts. Default: 1."),
            Flag("ramp_up_strategy", click.Choice(["linear", "exponential"]), "Raise the rate during the run."),
            Flag("ramp_up_start_rps", float, "Rate of a ramp's first request."),
            Flag("ramp_up_end_rps", float, "Rate of a ramp's last request."),
        ),
    ),
    Group(_DRAWN, ("random", "sessions"), (Flag("input_len", int, "Stands above --random-input-len and the like."),)),
    Group(_DRAWN, tuple(DATASETS), (Flag("output_len", int, "Stands above --random-output-len and the like."),)),
    Group(
        "Workload: random",
        ("random",),
        (
            Flag("random_input_len", int, "Prompt tokens."),
            Flag("random_output_len", int, "Output tokens."),
            Flag("random_range_ratio", range_ratio, "Spread of both to either side; or JSON, one for each."),
            Flag("random_prefix_len", int, "Tokens before the prompt that all requests share."),
        ),
    ),
    Group(
        "Workload: prefix_repetition",
        ("prefix_repetition",),
        (
            Flag("prefix_repetition_prefix_len", int, "Tokens of a prefix."),
            Flag("prefix_repetition_suffix_len", int, "Tokens after it that nobody shares."),
            Flag("prefix_repetition_num_prefixes", int, "Prefixes, each sent equally often."),
            Flag("prefix_repetition_output_len", int, "Output tokens."),
        ),
    ),
    Group(
        "Workload: sessions (each turn repeats all that was said)",
        ("sessions",),
        (
            Flag("sessions_num_turns", int, "Turns of a session."),
            Flag("sessions_input_len", int, "Tokens that each turn adds."),
            Flag("sessions_output_len", int, "Output tokens of each turn."),
            Flag("sessions_range_ratio", float, "Spread of these three to either side."),
            Flag("sessions_prefix_len", int, "Tokens of a system prompt that all sessions share."),
            Flag("sessions_think_s", float, "Mean seconds from an answer to the next turn."),
        ),
    ),
)

TRACE_HELP = f"""TRACE is a file, a built-in workload ({", ".join(BUILTIN_NAMES)}), or a data set by its name in
    `vllm bench serve` (random, prefix_repetition) or ours (sessions)."""

_ANY = (
    ("--limit", {"type": click.IntRange(min=1), "help": "Take so many requests at most."}),
    ("--start", {"type": float, "help": "Start of a window, in seconds of the workload."}),
    ("--end", {"type": float, "help": "End of the window."}),
    ("--rate-scale", {"type": float, "default": 1.0, "help": "Send so many times as fast.", "show_default": True}),
    ("--max-concurrency", {"type": click.IntRange(min=1), "help": "The client's cap on requests in flight."}),
    ("--strict", {"is_flag": True, "help": "Fail at a row that cannot be used, instead of counting it."}),
    ("--seed", {"type": click.IntRange(min=0), "default": 0, "help": "Of all that is drawn.", "show_default": True}),
)
_KEYWORDS = {"start_s": "start", "end_s": "end"}
"""Flags that are shorter than what `workloads` calls the same thing."""


def workload_options(function: Decorated) -> Decorated:
    """Add the argument TRACE and the flags that say what to send (for a command with `cls=EngineCommand`)."""
    for name in ("--dataset-name", "--dataset-path"):
        function = click.option(name, hidden=True, expose_value=False, is_eager=True, callback=_it_is_trace)(function)
    for group in reversed(GROUPS):
        for flag in reversed(group.flags):
            dashed = f"--{flag.name.replace('_', '-')}"
            option = click.option(dashed, type=flag.kind, help=_help(flag), cls=GroupedOption, group=group.title)
            function = option(function)
    for dashed, settings in reversed(_ANY):
        function = click.option(dashed, cls=GroupedOption, group="Workload", **settings)(function)
    return click.argument("trace", metavar="TRACE")(function)


def open_from(kwargs: Mapping[str, Any], max_model_len: int) -> Trace:
    """The workload that a command's keyword arguments say. Raises InputError and TraceError."""
    if not kwargs["trace"]:
        raise InputError(field="TRACE", value="", expected="a file, or a workload's name")
    kind = _kind(kwargs["trace"])
    _check_flags(kwargs, kind)
    try:
        return _opened(kwargs, kind, max_model_len)
    except TraceError as error:
        if error.file is not None or error.field is None:
            raise
        name = _KEYWORDS.get(error.field, error.field)
        raise InputError(field=_dashed(name), value=error.value, expected=error.expected) from error


def traffic(kwargs: Mapping[str, Any]) -> dict[str, object]:
    """What a result says of the workload, as `Frames.meta` wants it: trace, seed, rate, burstiness, ramp."""
    rates = {name: kwargs[name] for name in ("request_rate", "ramp_up_start_rps", "ramp_up_end_rps")}
    burstiness = 1.0 if kwargs["burstiness"] is None else kwargs["burstiness"]
    return {
        "trace": kwargs["trace"],
        "seed": kwargs["seed"],
        # JSON knows no infinity: vLLM's own word for it.
        "burstiness": "inf" if math.isinf(burstiness) else burstiness,
        "ramp_up_strategy": kwargs["ramp_up_strategy"],
        **{name: rate * kwargs["rate_scale"] for name, rate in rates.items() if rate is not None and rate < math.inf},
    }


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


def _kind(trace: str) -> str:
    if trace in DATASETS:
        return trace
    return BUILTIN if trace in BUILTIN_NAMES else FILE


def _check_flags(kwargs: Mapping[str, Any], kind: str) -> None:
    """Raise InputError for a flag that this kind of TRACE knows nothing of."""
    for group in GROUPS:
        for flag in group.flags:
            if kwargs[flag.name] is not None and kind not in group.kinds:
                is_it = f"; {kwargs['trace']} is {kind}" if kind in (FILE, BUILTIN) else f", not with {kind}"
                instead = _INSTEAD.get(flag.name, "") if kind == FILE else ""
                raise InputError(f"{_dashed(flag.name)} goes with {_listed(group.kinds)}{is_it}{instead}")


_INSTEAD = {
    "num_prompts": ": see --limit",
    "request_rate": ", with times of its own: see --rate-scale",
}
"""What a file has in a flag's place."""


def _listed(kinds: tuple[str, ...]) -> str:
    return " or ".join(kinds) if len(kinds) < 3 else f"{', '.join(kinds[:-1])} or {kinds[-1]}"


def _help(flag: Flag) -> str:
    for kind, dataset in DATASETS.items():
        for field in fields(dataset):
            if flag.name == f"{kind}_{field.name}":
                return f"{flag.help} Default: {field.default}."
    return flag.help


def _it_is_trace(_ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        raise InputError(f"{param.opts[0]}: say it as TRACE, as in `elpase replay {value}`")


def _dashed(name: str) -> str:
    return f"--{name.replace('_', '-')}"
