"""Where the `elpase` command begins. The one idea: Ctrl-C while modules are still being loaded, or when all is done but
to end, is no traceback.

Not for the command itself (main.py). Nothing but a few modules that Python has loaded or built in comes before the
handler: of `signal` only its C half, as the other one loads `enum`, which takes longer than all else here.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # typeshed has the other half only
import os
import sys

EXIT_INTERRUPTED = 130
"""What a shell reports for a process that Ctrl-C ended: 128 + SIGINT."""


def main() -> None:
    """Load the command, and run it."""
    usual = _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler
    if usual:
        # At once: nothing has been begun, and an exception in the middle of an import need not come out of it.
        _signal.signal(_signal.SIGINT, _exit_at_once)
    import gc

    from sim.cli.main import main as run

    try:
        if usual:
            _signal.signal(_signal.SIGINT, _signal.default_int_handler)
        run()
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    finally:
        if usual:
            # Results are written and told. What Python ends with waits for threads, and for the pool of a sweep.
            _signal.signal(_signal.SIGINT, _exit_at_once)
        # What is left goes with the process. To look through all of it first, twice, takes a twentieth of a short run.
        gc.freeze()


def _exit_at_once(_number: int, _frame: object) -> None:
    os._exit(EXIT_INTERRUPTED)
