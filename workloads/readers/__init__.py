"""Readers of request traces, one file per dialect. They stream: no trace is ever held in memory as a whole.

Not for choosing among requests (windows, limits, skipping): that is `workloads.trace`. The one idea: every dialect
becomes the same `Row`, and what cannot become one is one `TraceError`.
"""
