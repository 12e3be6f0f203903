"""Run by vLLM's interpreter: the real `vllm bench serve`, several times without importing vLLM anew.

    python bench_serve.py < ORDERS

Not for choosing what to send. The one idea: importing vLLM takes longer than a short benchmark, so it is imported once
and every order runs in a fork, with the command line that `vllm bench serve` would have got.

An order is a line of JSON: args (the command line), log (a file for the output), timeout_s. The answer is a line on
stdout: {"code": exit status, or null where the time ran out}. First of all comes {"ready": vLLM's version}.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

import vllm
from vllm.benchmarks.serve import add_cli_args
from vllm.benchmarks.serve import main as bench
from vllm.utils.argparse_utils import FlexibleArgumentParser


def run(order: dict[str, Any]) -> int | None:
    """One benchmark in a child; its exit status, None where it was stopped for taking too long."""
    child = os.fork()
    if child == 0:
        _become_benchmark(order)
    end_s = time.monotonic() + order["timeout_s"]
    while time.monotonic() < end_s:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _become_benchmark(order: dict[str, Any]) -> None:
    code = 1
    try:
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        parser = FlexibleArgumentParser(prog="vllm bench serve")
        add_cli_args(parser)
        bench(parser.parse_args(order["args"]))
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _say({"ready": vllm.__version__})
    for line in sys.stdin:
        _say({"code": run(json.loads(line))})
