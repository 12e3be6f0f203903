"""Spellings of vLLM's command line that click does not know, rewritten into ones that it does.

    -cc.cudagraph_mode=NONE --speculative-config.num_speculative_tokens 3 --cudagraph-capture-sizes 1 2 4 -O2

Not for what the flags mean. The one idea: keys of a JSON flag that are given one by one are that JSON.
Source: vLLM 0.32, utils/argparse_utils.py (FlexibleArgumentParser).
"""

from __future__ import annotations

import json
import re
from typing import Any

import click

from sim.json_file import NOT_JSON

JSON_FLAGS = ("--speculative-config", "-sc", "--compilation-config", "-cc")
_LISTS = ("--cudagraph-capture-sizes",)
_OPTIONAL_VALUE = ("--swap-space",)
"""Flags that click takes without a value, too: a negative one would be an option to it."""
_NEGATIVE = re.compile(r"-[0-9.].*")
_LEVEL = re.compile(r"-O=?([0-9])")
_MOST_DIGITS = 30
"""Of a number with a suffix: with hundreds it is beyond what a float holds."""


def human_int(text: str) -> int:
    """A whole number as vLLM's flags take it: `8192`, `8k` = 8,000, `8K` = 8,192, `25.6k` = 25,600; k, m, g, t.

    Raises ValueError. Source: vLLM 0.32, utils/argparse_utils.py.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmMgGtT])", text.strip())
    if match is None:
        return int(text)
    number, suffix = match.groups()
    if len(number) > _MOST_DIGITS:
        raise ValueError(f"{text!r} has too many digits")
    power = "kmgt".index(suffix.lower()) + 1
    if suffix.islower():
        return int(float(number) * 1000**power)
    if "." in number:
        raise ValueError(f"{text!r} has a fraction of a binary unit; {number}{suffix.lower()} is decimal")
    return int(number) << 10 * power


def rewritten(args: list[str]) -> list[str]:
    """The same command line without those spellings. A JSON flag's keys come last, so they stand above its text."""
    kept: list[str] = []
    objects: dict[str, dict[str, Any]] = {}
    rest = iter(args)
    for arg in rest:
        flag, key = _dotted(arg.partition("=")[0])
        level = _LEVEL.fullmatch(arg)
        if key:
            value = arg.partition("=")[2] if "=" in arg else next(rest, None)
            if value is None:
                raise click.UsageError(f"Option {arg!r} requires an argument.")
            _merge(objects.setdefault(flag, {}), key, value)
        elif level is not None:
            kept += ["--optimization-level", level[1]]
        elif arg == "-O":
            kept.append("--optimization-level")
        elif kept and kept[-1].replace("_", "-") in _OPTIONAL_VALUE and _NEGATIVE.fullmatch(arg):
            kept[-1] += f"= {arg}"  # the blank hides its dash from click
        elif len(kept) > 1 and kept[-2] in _LISTS and arg.isdecimal():
            kept[-1] += f",{arg}"
        else:
            kept.append(arg.replace("_", "-") if arg.replace("_", "-") in _LISTS else arg)
    for flag, said in objects.items():
        kept += [flag, json.dumps(said)]
    return kept


def _dotted(name: str) -> tuple[str, str]:
    """(flag, key) of `--flag.key`; no key where it is something else."""
    flag, _, key = name.partition(".")
    flag = flag.replace("_", "-")
    return (flag, key) if flag in JSON_FLAGS else (name, "")


def _merge(said: dict[str, Any], key: str, text: str) -> None:
    """Set a key, or with a `+` add to its list; a value is JSON, a number such as 1k, or a text."""
    *path, last = key.removesuffix("+").split(".")
    for part in path:
        said = said.setdefault(part, {})
        if not isinstance(said, dict):
            raise click.UsageError(f"Key {key!r}: {part!r} is given as a value, too, and has no keys.")
    if key.endswith("+"):
        before = said.get(last, [])
        if not isinstance(before, list):
            raise click.UsageError(f"Key {key!r}: {last!r} is given as a value, too, and is no list to add to.")
        said[last] = before + [_value(item) for item in text.split(",")]
    else:
        said[last] = _value(text)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except NOT_JSON:
        pass
    try:
        return human_int(text)
    except ValueError:
        return text
