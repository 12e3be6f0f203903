"""Options of `elpase calibrate` that take NAME=VALUE, and `--server`, which several verbs have.

Not for what a name means, but for those of `--server`. The one idea: a value is JSON where it is that, else text.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sim.json_file import NOT_JSON
from sim.latency.profile import wrong_setting

if TYPE_CHECKING:
    from collections.abc import Callable

Decorated = TypeVar("Decorated", bound="Callable[..., Any]")


def pair(text: str, form: str) -> tuple[str, str]:
    """Both sides of the first `=`, neither empty. `form` is what a user is told who wrote something else."""
    name, _, value = text.partition("=")
    if not name or not value:
        raise click.BadParameter(f"got {text!r}, expected {form}")
    return name, value


def flag_values(said: tuple[str, ...], form: str) -> dict[str, Any]:
    """Flags by Python's spelling of their names, and their values."""
    pairs = (pair(text, form) for text in said)
    return {name.removeprefix("--").replace("-", "_"): _value(text) for name, text in pairs}


def server_option(help_text: str) -> Callable[[Decorated], Decorated]:
    """`--server FLAG=VALUE`, as often as needed: `server` is then what a profile may say of its server."""
    return click.option("--server", multiple=True, callback=_server, metavar="FLAG=VALUE", help=help_text)


def _server(_ctx: click.Context, _param: click.Parameter, said: tuple[str, ...]) -> dict[str, Any]:
    server = flag_values(said, "FLAG=VALUE")
    for flag, value in server.items():
        expected = wrong_setting(flag, value)
        if expected is not None:
            raise click.BadParameter(f"{flag}: got {value!r}, expected {expected}")
    return server


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except NOT_JSON:
        return text
