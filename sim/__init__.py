"""elpase's simulator: vLLM's V1 scheduler decides, a latency profile prices each step, SimPy lets the time pass.

`import sim` is quick: it loads no pandas, matplotlib, torch or vllm. Names of the public API are fetched from their
modules when they are first used.
"""

from __future__ import annotations

__version__ = "0.1.0"
