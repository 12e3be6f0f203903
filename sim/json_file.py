"""Reads a JSON file that must hold one object. The one idea: whatever is wrong with the file is one line that names it.

Not for what the object says: see `sim.latency.fields` and `sim.hf_config`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.errors import InputError

if TYPE_CHECKING:
    import os


def read_json_object(file: str | os.PathLike[str], what: str = "a JSON object") -> dict[str, Any]:
    """The object in `file`, of which `what` says what it should be. Raises InputError, and OSError."""
    try:
        document = json.loads(Path(file).read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise InputError(f"not JSON: {error.msg}", file=file, line=error.lineno, expected=what) from error
    except UnicodeDecodeError as error:
        raise InputError("not JSON: not text", file=file, expected=what) from error
    except RecursionError as error:
        raise InputError("not JSON that can be read: nested too deep", file=file, expected=what) from error
    except ValueError as error:  # an integer of thousands of digits
        raise InputError(f"not JSON that can be read: {error}", file=file, expected=what) from error
    if not isinstance(document, dict):
        raise InputError(file=file, value=document, expected=what)
    return document
