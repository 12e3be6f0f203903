"""The flags that choose a workload, for any verb: `workload_options` adds them, `open_from` opens what they say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

from workloads import BUILTIN_NAMES, open_workload

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from workloads import Trace

Decorated = TypeVar("Decorated", bound="Callable[..., Any]")

_OPTIONS = (
    click.argument("trace", metavar="TRACE"),
    click.option("--format", "trace_format", default="auto", show_default=True, help="Dialect of the trace's file."),
    click.option("--strict", is_flag=True, help="Fail at a row that cannot be used, instead of counting it."),
    click.option("--rate-scale", type=float, default=1.0, help="Send so many times as fast.", show_default=True),
    click.option("--limit", type=click.IntRange(min=1), help="Take so many requests at most."),
    click.option("--start", "start_s", type=float, help="Start of the window, in seconds of the trace."),
    click.option("--end", "end_s", type=float, help="End of the window, in seconds of the trace."),
    click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of all that is drawn."),
)

TRACE_HELP = f"TRACE is a file or a built-in workload ({', '.join(BUILTIN_NAMES)})."


def workload_options(function: Decorated) -> Decorated:
    """Add the argument TRACE and the flags that say how to read it."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def open_from(kwargs: Mapping[str, Any], max_model_len: int) -> Trace:
    """The workload that a command's keyword arguments name. Raises TraceError."""
    return open_workload(
        kwargs["trace"],
        format=kwargs["trace_format"],
        strict=kwargs["strict"],
        max_model_len=max_model_len,
        rate_scale=kwargs["rate_scale"],
        limit=kwargs["limit"],
        start_s=kwargs["start_s"],
        end_s=kwargs["end_s"],
        seed=kwargs["seed"],
    )
