"""The flags that choose a workload, for any verb: `workload_options` adds them, `sim.workload` opens what they say.

Not for what they mean or which go with which TRACE (`sim.workload`). The one idea: one table of flags gives the options
and the groups of the help text. Names and defaults: `vllm bench serve`.
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from sim.cli.flags import GroupedOption
from sim.errors import InputError
from sim.json_file import NOT_JSON
from sim.workload import ANY_TRACE
from workloads import BUILTIN_NAMES, FORMATS
from workloads.datasets import DATASETS, MAX_PROMPTS, NUM_PROMPTS

if TYPE_CHECKING:
    from collections.abc import Callable

Decorated = TypeVar("Decorated", bound="Callable[..., Any]")


def range_ratio(text: str) -> float | dict[str, float]:
    """A number, or a JSON object of two numbers, as vLLM takes it. What they may be is the data set's business."""
    try:
        ratio = json.loads(text)
    except NOT_JSON:
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
    """Flags of one section of the help text. They are None where they were not given."""

    title: str
    flags: tuple[Flag, ...]


_DRAWN = f"Workload: {', '.join(DATASETS)}"
_COUNT = click.IntRange(min=1, max=MAX_PROMPTS)

GROUPS = (
    Group("Workload: a file", (Flag("format", click.Choice(list(FORMATS)), "Dialect. Default: recognised."),)),
    Group(
        "Workload: number and times (a file has its own)",
        (
            Flag(
                "num_prompts", _COUNT, f"Requests (`sessions`: sessions) to draw. Default: {NUM_PROMPTS}, or its own."
            ),
            Flag(
                "request_rate",
                float,
                "Requests (`sessions`: new sessions) per second. Default: inf (all at once), or its own.",
            ),
            Flag("burstiness", float, "Gamma shape of the gaps: 1 is Poisson, less comes in bursts. Default: 1."),
            Flag("ramp_up_strategy", click.Choice(["linear", "exponential"]), "Raise the rate during the run."),
            Flag("ramp_up_start_rps", float, "Rate of a ramp's first request."),
            Flag("ramp_up_end_rps", float, "Rate of a ramp's last request."),
        ),
    ),
    Group(_DRAWN, (Flag("input_len", int, "Stands above --random-input-len and the like."),)),
    Group(_DRAWN, (Flag("output_len", int, "Stands above --random-output-len and the like."),)),
    Group(
        "Workload: random",
        (
            Flag("random_input_len", int, "Prompt tokens."),
            Flag("random_output_len", int, "Output tokens."),
            Flag("random_range_ratio", range_ratio, "Spread of both to either side; or JSON, one for each."),
            Flag("random_prefix_len", int, "Tokens before the prompt that all requests share."),
        ),
    ),
    Group(
        "Workload: prefix_repetition",
        (
            Flag("prefix_repetition_prefix_len", int, "Tokens of a prefix."),
            Flag("prefix_repetition_suffix_len", int, "Tokens after it that nobody shares."),
            Flag("prefix_repetition_num_prefixes", int, "Prefixes, each sent equally often."),
            Flag("prefix_repetition_output_len", int, "Output tokens."),
        ),
    ),
    Group(
        "Workload: sessions (each turn repeats all that was said)",
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
    ("--rate-scale", {"type": float, "help": "Send so many times as fast.", "show_default": True}),
    ("--max-concurrency", {"type": click.IntRange(min=1), "help": "The client's cap on requests in flight."}),
    ("--strict", {"is_flag": True, "help": "Fail at a row that cannot be used, instead of counting it."}),
    ("--seed", {"type": click.IntRange(min=0), "help": "Of all that is drawn.", "show_default": True}),
)
_ALIASES = {"--max-concurrency": ("--max-in-flight",)}


def workload_options(function: Decorated) -> Decorated:
    """Add the argument TRACE and the flags that say what to send (for a command with `cls=EngineCommand`)."""
    return click.argument("trace", metavar="TRACE")(workload_flags(function))


def workload_flags(function: Decorated) -> Decorated:
    """Add the flags alone, for a command that says TRACE in its own way."""
    for name in ("--dataset-name", "--dataset-path"):
        function = click.option(name, hidden=True, expose_value=False, is_eager=True, callback=_it_is_trace)(function)
    for group in reversed(GROUPS):
        for flag in reversed(group.flags):
            dashed = f"--{flag.name.replace('_', '-')}"
            option = click.option(dashed, type=flag.kind, help=_help(flag), cls=GroupedOption, group=group.title)
            function = option(function)
    for dashed, settings in reversed(_ANY):
        default = ANY_TRACE[dashed.removeprefix("--").replace("-", "_")]
        names = (dashed, *_ALIASES.get(dashed, ()))
        function = click.option(*names, cls=GroupedOption, group="Workload", default=default, **settings)(function)
    return function


def _help(flag: Flag) -> str:
    for kind, dataset in DATASETS.items():
        for field in fields(dataset):
            if flag.name == f"{kind}_{field.name}":
                return f"{flag.help} Default: {field.default}."
    return flag.help


def _it_is_trace(_ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        raise InputError(f"{param.opts[0]}: say it as TRACE, as in `elpase replay {value}`")
