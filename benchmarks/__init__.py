"""Speed and memory. `python -m benchmarks [TRACE]` (or `make bench`) prints them; not installed with elpase.

The one idea: a benchmark counts the work that it did, and fails when that is not the work it is named for, so nobody
can make it faster by doing less.
"""
