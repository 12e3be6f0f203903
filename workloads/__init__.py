"""What clients send: requests, where they come from and when. Imports nothing of ours.

- `open_workload(name_or_path)`: a built-in workload or a trace file, as the command line takes it.
- `read_trace(path)`: a file in one of the known dialects. `builtin(name)`: a workload that ships with elpase.
- `synthetic(...)`: made up from laws: `workloads.arrivals`, `.lengths`, `.content`, `.sessions`.

All give a `Trace`: an iterable of `Request` in order of arrival, in seconds and tokens.
"""

from __future__ import annotations

from workloads.errors import TraceError
from workloads.named import BUILTIN_NAMES, builtin, open_workload
from workloads.readers import FORMATS
from workloads.request import Request
from workloads.synthetic import synthetic
from workloads.trace import Selection, Trace, read_trace

__all__ = [
    "BUILTIN_NAMES",
    "FORMATS",
    "Request",
    "Selection",
    "Trace",
    "TraceError",
    "builtin",
    "open_workload",
    "read_trace",
    "synthetic",
]
