"""How a run was made, as its result tells it: the flags that were given, the workload and the server they came to.

Not for reading flags. The one idea: names as on the command line (with underscores), values that JSON can hold, and
nothing of the machine: a file is its name without its folder, so that the same run gives the same bytes anywhere.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from sim.workload import effective, file_name, traffic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from workloads import Trace

_CHANGE_NO_FIGURE = frozenset({"out", "timeline", "check", "leap"})
_FILES = frozenset({"profile"})


def made_by(kwargs: Mapping[str, Any], trace: Trace) -> dict[str, object]:
    """What to note of a run that is over (`Frames.meta`), inside a command with the options of workload and engine."""
    return {
        **traffic(kwargs),
        "flags": flags_given(click.get_current_context()),
        "workload": {**jsonable(effective(kwargs)), "format": trace.format, "skipped_rows": dict(trace.skipped)},
    }


def flags_given(ctx: click.Context) -> dict[str, object]:
    """The flags of the command line that change a figure, by name, in the command's own order."""
    given = [
        param.name
        for param in ctx.command.params
        if isinstance(param, click.Option)
        and ctx.get_parameter_source(param.name) is ParameterSource.COMMANDLINE
        and param.name in ctx.params
    ]
    return jsonable(
        {
            name: file_name(ctx.params[name]) if name in _FILES else ctx.params[name]
            for name in given
            if name not in _CHANGE_NO_FIGURE
        }
    )


def jsonable(values: Mapping[str, Any]) -> dict[str, object]:
    """The same for strict JSON, which knows no infinity: `inf` is vLLM's own word for it."""
    return {name: "inf" if value == math.inf else value for name, value in values.items()}
