"""What a user waits for before anything runs: `import sim` and `elpase --help`, beside Python's own start.

The one idea: fresh processes, the median of five of each, taken in turn so that a busy moment hits all of them.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from statistics import median

from benchmarks.measure import run_command

TRIES = 5
COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "python -c 'import sim'": [sys.executable, "-c", "import sim"],
    "elpase --help": [str(Path(sys.executable).with_name("elpase")), "--help"],
    "elpase replay --help": [str(Path(sys.executable).with_name("elpase")), "replay", "--help"],
}


def main() -> None:
    """Print one JSON object per command."""
    tries = [{name: _seconds(command) for name, command in COMMANDS.items()} for _ in range(TRIES)]
    for name in COMMANDS:
        print(json.dumps({"command": name, "wall_s": median(seconds[name] for seconds in tries)}))


def _seconds(command: list[str]) -> float:
    start_s = time.perf_counter()
    run_command(command)
    return time.perf_counter() - start_s


if __name__ == "__main__":
    main()
