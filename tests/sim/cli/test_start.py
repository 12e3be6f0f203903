"""Ctrl-C before the command has begun, or when it is done: exit code 130, no traceback, whatever is being loaded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import sim

# Ctrl-C comes with the import of a certain module, which is as early or as late as one likes.
CODE = """
import os, signal, sys
from importlib.abc import MetaPathFinder

signal.signal(signal.SIGINT, signal.default_int_handler)

class CtrlC(MetaPathFinder):
    def find_spec(self, name, *_):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)

module, sys.argv[1:] = sys.argv[1], ["replay", "azure-conv", "--limit", "5"]
sys.meta_path.insert(0, CtrlC())
from sim.cli.start import main

main()
"""


@pytest.mark.parametrize("module", ["sim.cli.main", "click", "sim.errors", "sim.cli.replay", "numpy", "simpy"])
def test_ctrl_c_while_modules_are_loaded(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE, module], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 130, done.stderr
    assert done.stdout == ""
    assert done.stderr.strip() in ("", "elpase: interrupted")


def test_little_is_loaded_before_the_handler_stands() -> None:
    """What `import sim.cli.start` brings is what can still be interrupted with a traceback."""
    code = "import sys; before = set(sys.modules); import sim.cli.start; print(*sorted(set(sys.modules) - before))"
    home = {"PYTHONPATH": str(Path(sim.__path__[0]).parent)}  # -S: without site-packages, where it may be installed
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True, env=home)
    ours = {"sim", "sim.cli", "sim.cli.start"}
    loaded = set(done.stdout.split())
    assert ours <= loaded
    with_os = {"os", "os.path", "stat", "_stat", "posixpath", "genericpath", "_collections_abc", "abc", "_abc"}
    assert loaded <= ours | with_os | {"__future__"}


def test_a_shell_that_ignores_ctrl_c_is_obeyed() -> None:
    """`nohup`, and the background jobs of a script: the handler is for where Ctrl-C means something."""
    code = CODE.replace("signal.default_int_handler", "signal.SIG_IGN", 1)
    done = subprocess.run(
        [sys.executable, "-c", code, "click"], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_ctrl_c_when_all_is_done() -> None:
    """Python waits for threads then: a pool's, after a sweep."""
    code = (
        "import os, signal, sys, threading; from sim.cli.start import main; sys.argv[1:] = ['--version']\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "threading._register_atexit(os.kill, os.getpid(), signal.SIGINT)\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.startswith("elpase ")
    assert (done.returncode, done.stderr) == (130, "")


def test_what_is_left_at_the_end_is_not_looked_through() -> None:
    """Python's last collections are over all objects that there are; those that are frozen are not among them."""
    code = (
        "import atexit, gc, sys; from sim.cli.start import main; sys.argv[1:] = ['--version']\n"
        "atexit.register(lambda: print(len(gc.get_objects()) < 100 < gc.get_freeze_count()))\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split()[-1] == "True"


@pytest.mark.parametrize(
    ("verb", "said", "threads"),
    [("replay", {}, "1"), ("replay", {"OPENBLAS_NUM_THREADS": "3"}, "3"), ("calibrate", {}, "None")],
)
def test_no_threads_for_matrices_unless_asked_for_or_measured(verb: str, said: dict[str, str], threads: str) -> None:
    code = (
        "import atexit, os, sys; from sim.cli.start import main; sys.argv[1:] = [sys.argv[1], '--help']\n"
        "atexit.register(lambda: print(os.environ.get('OPENBLAS_NUM_THREADS')))\n"
        "main()\n"
    )
    env = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"} | said
    command = [sys.executable, "-c", code, verb]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=env)
    assert done.stdout.split()[-1] == threads
