"""Standard output, whose errors say its name. Not for what is printed.

The one idea: the system's error for a full disk says which file only where somebody opened it by its name, and nobody
opened this one.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any, TextIO, cast

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Named:
    """A stream of text that raises OSError with its name."""

    def __init__(self, stream: TextIO, name: str) -> None:
        self._stream = stream
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._stream, attribute)

    def write(self, text: str) -> int:
        with self._naming():
            return self._stream.write(text)

    def flush(self) -> None:
        with self._naming():
            self._stream.flush()

    @contextmanager
    def _naming(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._name) from error


@contextmanager
def named_stdout() -> Iterator[None]:
    """Have what cannot be printed raise OSError about `stdout`."""
    if sys.stdout is None:  # as Python has it where it was closed (`>&-`)
        yield
        return
    with redirect_stdout(cast("TextIO", _Named(sys.stdout, "stdout"))):
        yield


def flush_stdout() -> None:
    """Write out what is left; if that fails, let the interpreter's own last try go nowhere instead of complaining."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise
