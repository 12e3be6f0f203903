"""What `elpase sweep` reads: `--vary NAME=a,b,c`, TOML experiment files, and values of vLLM's parameter files.

Not for what knobs mean. The one idea: a knob's value is what its own flag would make of it, wherever it is written, so
`8k`, `auto` and a refusal are the same in all three places.
"""

from __future__ import annotations

import json
import tomllib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from sim.cli.flags import REMOVED
from sim.errors import InputError, did_you_mean
from sim.input_file import read_text
from sim.json_file import NOT_JSON
from sim.sweeps.settings import knob, underscored
from sim.workload import FILE, kind_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

VARY = "vary"
_PATHS = ("trace", "profile", "serve_params", "bench_params")
"""Names in an experiment file whose values may be paths, counted from the file's own folder."""
_FILE_KEY = "elpase.sweep.vary"


def read_experiment(ctx: click.Context, _param: click.Parameter, path: Path | None) -> None:
    """Take what a TOML file says for what the command line does not: flags by name, and a table `vary`."""
    if path is None:
        return
    try:
        document = tomllib.loads(read_text(path))
    except InputError:
        raise
    except (ValueError, RecursionError) as error:  # not TOML, not text, thousands of digits or of brackets
        raise InputError(f"not TOML: {error}", file=path) from error
    said = _once(path, document)
    axes = said.pop(VARY, {})
    if not isinstance(axes, dict) or not all(isinstance(values, list) for values in axes.values()):
        raise InputError(file=path, field=VARY, value=axes, expected="a table of lists: max_num_seqs = [16, 32]")
    axes = _once(path, axes, f"{VARY}.")
    params = {param.name: param for param in ctx.command.params if param.name}
    known = [name for name in params if name not in ("experiment", VARY)]
    for name in said:
        if name not in known:
            expected = f"a flag of elpase sweep, or the table vary{did_you_mean(name, known)}"
            raise InputError(file=path, field="name", value=name, expected=expected)
    # A flag that may be given several times may be given once: slo = "ttft_p99=1000".
    said = {name: [v] if params[name].multiple and not isinstance(v, list) else v for name, v in said.items()}
    flags = {name: _beside(path, name, _as_text(params[name], value)) for name, value in said.items()}
    knobs = {name: [_beside(path, name, value) for value in values] for name, values in axes.items()}
    for name, text in flags.items():
        with told_by(path, name):
            params[name].type_cast_value(ctx, text)
    for name, values in knobs.items():
        with told_by(path, f"{VARY}.{name}"):
            for value in values:
                value_of(ctx, name, value)
    ctx.default_map = flags
    ctx.meta[_FILE_KEY] = knobs


@contextmanager
def told_by(path: Path, field: str) -> Iterator[None]:
    """What is wrong with a field of a file is told by that file: there is no flag of it on the command line."""
    try:
        yield
    except click.BadParameter as error:
        raise InputError(error.message, file=path, field=field) from error
    except InputError as error:
        raise InputError(str(error), file=path, field=field) from error


def axes(ctx: click.Context, pairs: Sequence[str]) -> dict[str, list[object]]:
    """Knob -> values to try: the experiment file's, and on top those of `--vary`. Raises InputError."""
    said: dict[str, list[object]] = dict(ctx.meta.get(_FILE_KEY, {}))
    told: set[str] = set()
    for pair in pairs:
        name, found, values = pair.partition("=")
        if not found or not values.strip():
            raise InputError(field="--vary", value=pair, expected="NAME=VALUE,VALUE,... with at least one value")
        if underscored(name) in told:
            raise InputError(field="--vary", value=pair, expected="each knob once, with all of its values")
        told.add(underscored(name))
        said[underscored(name)] = _listed(pair, values)
    return {name: [value_of(ctx, name, value) for value in values] for name, values in said.items()}


def value_of(ctx: click.Context, name: str, value: object) -> Any:
    """A knob's value as its flag takes it. Raises InputError for a knob that is not one, UsageError for its value."""
    if underscored(name) in REMOVED:
        raise InputError(f"{name}: {REMOVED[underscored(name)]}")
    known = knob(name)
    param = next(param for param in ctx.command.params if param.name == known)
    return param.type_cast_value(ctx, _as_text(param, value))


def is_said(ctx: click.Context, name: str) -> bool:
    """Whether the command line or the experiment file says a flag."""
    return ctx.get_parameter_source(name) not in (click.core.ParameterSource.DEFAULT, None)


def require_free(ctx: click.Context, names: Mapping[str, object]) -> None:
    """Raise InputError for a knob that varies and is also held."""
    for name in names:
        if is_said(ctx, name):
            raise InputError(field=name, expected="to be varied or held, not both")


def _once(path: Path, table: Mapping[str, Any], at: str = "") -> dict[str, Any]:
    """The table by names with underscores. Raises InputError for a name that stands there in both spellings."""
    said: dict[str, Any] = {}
    for name, value in table.items():
        if underscored(name) in said:
            raise InputError(file=path, field=f"{at}{name}", value=value, expected="each flag once, in one spelling")
        said[underscored(name)] = value
    return said


def _listed(pair: str, values: str) -> list[object]:
    """Values between commas, or a JSON list for values that have commas of their own."""
    if values.lstrip().startswith("["):
        try:
            listed: list[object] = json.loads(values)
        except NOT_JSON as error:
            raise InputError(field="--vary", value=pair, expected=f"a JSON list after the =: {error}") from error
        return listed
    return [value.strip() for value in values.split(",")]


def _as_text(param: click.Parameter, value: object) -> Any:
    """A value as it would stand on a command line: a list is a flag given several times, or rates or sizes, which are
    one value with commas in it."""
    if isinstance(value, list):
        items = [_as_text(param, item) for item in value]
        return items if param.multiple or param.nargs != 1 else ",".join(map(str, items))
    if isinstance(value, bool) and param.type is click.BOOL:
        return value
    return json.dumps(value) if isinstance(value, bool | dict) else str(value)


def _beside(file: Path, name: str, value: Any) -> Any:
    """A path counted from the file's folder, where there is such a file (or, with {seed} in its name, may be)."""
    if not value or name not in _PATHS or (name == "trace" and kind_of(str(value)) != FILE):
        return value  # an empty one is refused as such, not as the folder
    path = file.parent / str(value)
    return str(path) if path.exists() or "{seed}" in str(value) else value
