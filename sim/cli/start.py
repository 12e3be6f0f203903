"""Where the `elpase` command begins. The one idea: Ctrl-C while modules are still being loaded is no traceback.

Not for the command itself (main.py). Nothing but these few built-in modules is loaded before the handler stands.
"""

from __future__ import annotations

import os
import signal
import sys

EXIT_INTERRUPTED = 130
"""What a shell reports for a process that Ctrl-C ended: 128 + SIGINT."""


def main() -> None:
    """Load the command, and run it."""
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if usual:
        # At once: nothing has been begun, and an exception in the middle of an import need not come out of it.
        signal.signal(signal.SIGINT, lambda _number, _frame: os._exit(EXIT_INTERRUPTED))
    from sim.cli.main import main as run

    try:
        if usual:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        run()
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
