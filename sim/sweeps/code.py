"""Which code this is: the sources of the packages that make a result, as one short hash.

Not for versions, which are for people. The one idea: a version says what was released, a checkout changes between
releases, so what is kept of a run is found again by the code itself.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import sim
import workloads

_KINDS = (".py", ".json")
"""Code, and the data that ships beside it: models, GPUs, laws of workloads."""


@cache
def code_digest() -> str:
    """The same for equal sources, wherever they lie. Read once per process, in some milliseconds."""
    return digest_of([Path(package.__path__[0]) for package in (sim, workloads)])


def digest_of(packages: list[Path]) -> str:
    """Of all code and data below these folders: names and contents, in order of names."""
    whole = hashlib.sha256()
    for package in packages:
        for file in sorted(path for path in package.rglob("*") if path.suffix in _KINDS):
            content = file.read_bytes()
            whole.update(f"{package.name}/{file.relative_to(package).as_posix()} {len(content)}\n".encode())
            whole.update(content)
    return whole.hexdigest()[:16]
