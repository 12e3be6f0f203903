"""Run every benchmark and print the tables: `python -m benchmarks [--million] [TRACE]`; a TRACE, or $ELPASE_AZURE_CONV,
is `replay`'s; `--million` adds a run of a million requests, which takes some minutes.

The one idea: each benchmark has a process of its own, so none warms up the next, and peak memory is its own. Exit code
1 when the work was not the work expected, or slower than the floor.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.measure import loop_rounds_per_s

FLOOR_SIMULATED_OVER_REAL = 200
FLOOR_LEAPING_OVER_STEPPING = 3
TRACE_VARIABLE = "ELPASE_AZURE_CONV"
MILLION = 1_000_000
LONG = (10_000, 100_000)
MOST_GROWTH = 1.15
"""Of the CPU time per request, from the shortest run of `long` to the longest."""
MOST_BYTES = 600e6
MOST_S = 240.0
"""For the million."""

MIB = 1 << 20
Record = dict[str, Any]


def main() -> None:
    """Print the tables, then judge by the floor."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--million"]
    trace = arguments[:1] or [value for value in [os.environ.get(TRACE_VARIABLE)] if value]
    console = Console(width=110 if not sys.stdout.isatty() else None)
    rate = loop_rounds_per_s()
    console.print(f"This machine does {rate / 1e6:.1f} million rounds of a plain Python loop per CPU second.\n")
    console.print(_startup(run("startup")))
    console.print(_steps(run("steps")))
    *leaps, command = run("leaps")
    console.print(_leaps(leaps))
    console.print(_command(command))
    compiled = run("compiled")
    if compiled:
        console.print(_compiled(compiled))
    replays = run("replay", *trace)
    console.print(_replays(replays))
    console.print(_memory(replays))
    sizes = (*LONG, MILLION) if "--million" in sys.argv else LONG
    long = run("long", *map(str, sizes))
    console.print(_long(long))
    ratio = replays[0]["simulated_s"] / replays[0]["wall_s"]
    if ratio < FLOOR_SIMULATED_OVER_REAL:
        sys.exit(f"benchmarks: simulated over real time: got {ratio:.0f}, expected {FLOOR_SIMULATED_OVER_REAL} or more")
    for record in leaps:
        if _gain(record) < FLOOR_LEAPING_OVER_STEPPING:
            sys.exit(
                f"benchmarks: leaping over stepping, {record['what']}: got {_gain(record):.1f},"
                f" expected {FLOOR_LEAPING_OVER_STEPPING} or more"
            )
    judge_long(long)


def judge_long(records: list[Record]) -> None:
    """End the program where the time per request, or memory, grows with the run."""
    grown = _cost_s(records[-1]) / _cost_s(records[0])
    if grown > MOST_GROWTH:
        sys.exit(f"benchmarks: time per request grows {grown:.3f} times: at most {MOST_GROWTH} times")
    if records[-1]["peak_bytes"] > MOST_BYTES:
        sys.exit(
            f"benchmarks: peak memory: got {records[-1]['peak_bytes'] / 1e6:.0f} MB, at most {MOST_BYTES / 1e6:.0f}"
        )
    if records[-1]["wall_s"] > MOST_S:
        sys.exit(f"benchmarks: got {records[-1]['wall_s']:.0f} s, at most {MOST_S:.0f}")


def run(name: str, *arguments: str) -> list[Record]:
    """What benchmark `name` prints, one record per line. Ends the program when it fails; it has said why."""
    command = [sys.executable, "-m", f"benchmarks.{name}", *arguments]
    done = subprocess.run(command, check=False, cwd=Path(__file__).parents[1], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    return [json.loads(line) for line in done.stdout.splitlines()]


def _startup(records: list[Record]) -> Table:
    table = _table("Start, median of 5", "command", "ms", "over Python's own")
    bare_s = records[0]["wall_s"]
    for record in records:
        table.add_row(record["command"], f"{record['wall_s'] * 1e3:.0f}", f"{record['wall_s'] / bare_s:.1f}")
    return table


def _steps(records: list[Record]) -> Table:
    columns = ("running", "steps", "steps/CPU s", "us/step", "loop rounds/step")
    table = _table("Decode steps, best of 3", "", *columns)
    for record in records:
        steps, cpu_s = record["steps"], record["cpu_s"]
        costs = (f"{steps / cpu_s:,.0f}", f"{cpu_s / steps * 1e6:.1f}", f"{record['loop_rounds'] / steps:,.0f}")
        table.add_row(record["layer"], str(record["running"]), f"{steps:,}", *costs)
    return table


def _leaps(records: list[Record]) -> Table:
    columns = ("requests", "steps", "CPU s, stepping", "CPU s, leaping", "times as fast")
    table = _table("The same run step by step and with leaps", "", *columns)
    for record in records:
        cpu_s = [f"{record[way]['cpu_s']:.2f}" for way in ("stepping", "leaping")]
        counts = (f"{record['requests']:,}", f"{record['steps']:,}")
        table.add_row(record["what"], *counts, *cpu_s, f"{_gain(record):.1f}")
    return table


def _gain(record: Record) -> float:
    return float(record["stepping"]["cpu_s"] / record["leaping"]["cpu_s"])


def _command(record: Record) -> Table:
    columns = ("requests", "steps", "real s", "CPU s", "requests/CPU s", "loop rounds/request")
    table = _table("elpase replay random --request-rate 8 --no-keep-steps, 1000 in, 200 out", *columns)
    count, cpu_s = record["requests"], record["cpu_s"]
    costs = (f"{count / cpu_s:,.0f}", f"{record['loop_rounds'] / count:,.0f}")
    table.add_row(f"{count:,}", f"{record['steps']:,}", f"{record['wall_s']:.1f}", f"{cpu_s:.1f}", *costs)
    return table


def _compiled(records: list[Record]) -> Table:
    columns = ("requests", "CPU s, plain", "CPU s, compiled", "times as fast", "us/request", "requests/s")
    table = _table("The same by plain Python and by the compiled build, in turn: means", "", *columns)
    for record in records:
        plain_s, compiled_s = (record[build]["cpu_s"] for build in ("plain", "compiled"))
        count, ratio = record["requests"], plain_s / compiled_s
        costs = (f"{plain_s:.2f}", f"{compiled_s:.2f}", f"{ratio:.2f}", f"{compiled_s / count * 1e6:.0f}")
        table.add_row(record["what"], f"{count:,}", *costs, f"{count / compiled_s:,.0f}")
    return table


def _replays(records: list[Record]) -> Table:
    title = f"Replay of {Path(records[0]['trace']).name}, {records[0]['requests']:,} requests"
    columns = ("steps", "simulated s", "real s", "CPU s", "simulated/real", "simulated/CPU", "loop rounds/step")
    table = _table(title, "", *columns)
    for record in records:
        simulated_s, wall_s, cpu_s = record["simulated_s"], record["wall_s"], record["cpu_s"]
        seconds = (f"{simulated_s:,.0f}", f"{wall_s:.1f}", f"{cpu_s:.1f}")
        ratios = (f"{simulated_s / wall_s:,.0f}", f"{simulated_s / cpu_s:,.0f}")
        rounds = f"{record['loop_rounds'] / record['steps']:,.0f}"
        table.add_row(record["what"], f"{record['steps']:,}", *seconds, *ratios, rounds)
    return table


def _memory(records: list[Record]) -> Table:
    table = _table("Peak memory of that replay", "", "MiB")
    table.add_row("Python and elpase, before it", f"{records[0]['loaded_bytes'] / MIB:.0f}")
    for record in records:
        table.add_row(record["what"], f"{record['peak_bytes'] / MIB:.0f}")
    return table


def _long(records: list[Record]) -> Table:
    columns = ("steps", "simulated s", "real s", "CPU s", "us/request", "over the shortest", "peak MB", "runs")
    table = _table("Long runs in turn, summary only: azure-conv at 5 requests/s, means", "requests", *columns)
    for record in records:
        seconds = (f"{record['simulated_s']:,.0f}", f"{record['wall_s']:.1f}", f"{record['cpu_s']:.1f}")
        costs = (f"{_cost_s(record) * 1e6:.0f}", f"{_cost_s(record) / _cost_s(records[0]):.3f}")
        memory = f"{record['peak_bytes'] / 1e6:.0f}"
        table.add_row(f"{record['requests']:,}", f"{record['steps']:,}", *seconds, *costs, memory, str(record["runs"]))
    return table


def _cost_s(record: Record) -> float:
    """CPU seconds per request."""
    return float(record["cpu_s"] / record["requests"])


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for at, column in enumerate(columns):
        table.add_column(column, justify="right" if at else "left")
    return table


if __name__ == "__main__":
    main()
