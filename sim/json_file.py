"""Reads JSON that others wrote: a file, or a line of one. The one idea: whatever is wrong is one line that says where.

Not for what the JSON says: see `sim.latency.fields` and `sim.hf_config`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sim.errors import InputError
from sim.input_file import SETTINGS_BYTES, read_text

if TYPE_CHECKING:
    import os

NOT_JSON = (ValueError, RecursionError)
"""What `json.loads` raises: the second for thousands of brackets."""


def read_json(file: str | os.PathLike[str], what: str | None = None, most_bytes: int = SETTINGS_BYTES) -> Any:
    """What stands in `file`, of which `what` says what it should be. Raises InputError, and OSError."""
    try:
        text = read_text(file, most_bytes)
    except UnicodeDecodeError as error:
        raise InputError("not JSON: not text", file=file, expected=what) from error
    return parse_json(text, file, what=what)


def read_json_object(
    file: str | os.PathLike[str], what: str = "a JSON object", most_bytes: int = SETTINGS_BYTES
) -> dict[str, Any]:
    """The object in `file`, of which `what` says what it should be. Raises InputError, and OSError."""
    document = read_json(file, what, most_bytes)
    if not isinstance(document, dict):
        raise InputError(file=file, value=document, expected=what)
    return document


def parse_json(text: str, file: str | os.PathLike[str], line: int | None = None, what: str | None = None) -> Any:
    """What the `text` of a file, or of one `line` of it, says. Raises InputError."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        line = line or error.lineno
        raise InputError(f"not JSON: {error.msg}", file=file, line=line, expected=what) from error
    except RecursionError as error:
        told = "not JSON that can be read: nested too deep"
        raise InputError(told, file=file, line=line, expected=what) from error
    except ValueError as error:  # an integer of thousands of digits
        raise InputError(f"not JSON that can be read: {error}", file=file, line=line, expected=what) from error
