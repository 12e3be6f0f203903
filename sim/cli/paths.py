"""Paths on a command line. The one idea: an empty one is a shell variable that is not set, not the current folder.

Not for opening what they name.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    import os


class PathType(click.Path):
    """`click.Path` that gives a `Path` and takes no empty one, which `Path` would make the current folder."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, path_type=Path)

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """The path. Raises BadParameter, which names the flag."""
        if not str(value):
            self.fail(f"'' is not the name of a {self._kind}.", param, ctx)
        if "\0" in str(value):  # not from a shell, but from a program or a file
            self.fail(f"{str(value)!r} is not the name of a {self._kind}.", param, ctx)
        return super().convert(value, param, ctx)

    @property
    def _kind(self) -> str:
        if self.file_okay and self.dir_okay:
            return "file or folder"
        return "file" if self.file_okay else "folder"
