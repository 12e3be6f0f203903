"""Standard output, whose errors say its name, and standard error, which has none. Not for what is printed.

The one idea: the system's error for a full disk says which file only where somebody opened it by its name, and nobody
opened these. Of what cannot be said on stderr there is nowhere to say so, and it is no result: it must not cost one.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from typing import TYPE_CHECKING, Any, TextIO, cast

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Wrapped:
    """A stream of text, as it is."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._stream, attribute)


class _Named(_Wrapped):
    """One that raises OSError with its name."""

    def __init__(self, stream: TextIO, name: str) -> None:
        super().__init__(stream)
        self._name = name

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


class _Forgiving(_Wrapped):
    """One that drops what nobody can be told: its disk is full, or its reader has left."""

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()


@contextmanager
def streams() -> Iterator[None]:
    """Have what cannot be printed raise OSError about `stdout`, and what cannot be said on stderr be dropped."""
    # None is what Python has where a stream was closed (`>&-`).
    out = None if sys.stdout is None else cast("TextIO", _Named(sys.stdout, "stdout"))
    err = None if sys.stderr is None else cast("TextIO", _Forgiving(sys.stderr))
    told = sys.stderr
    with redirect_stdout(out), redirect_stderr(err):
        try:
            yield
        finally:
            with suppress(OSError):
                _flush(told)


def flush_stdout() -> None:
    """Write out what is left. Raises OSError about `stdout`."""
    _flush(sys.stdout)


def _flush(stream: TextIO | None) -> None:
    """Where that fails, the interpreter's own last try goes nowhere: it would complain, and change the exit code."""
    if stream is None:
        return
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        raise
