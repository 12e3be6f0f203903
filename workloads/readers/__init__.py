"""Readers of request traces, one file per dialect. They stream: no trace is ever held in memory as a whole.

Not for choosing among requests (windows, limits, skipping): that is `workloads.trace`. The one idea: every dialect
becomes the same `Row`, and what cannot become one is one `TraceError`.
"""

from __future__ import annotations

FORMATS = {
    "azure": "TIMESTAMP,ContextTokens,GeneratedTokens",
    "burstgpt": "Timestamp,...,Request tokens,Response tokens,...",
    "mooncake": "JSON lines with timestamp, input_length, output_length, hash_ids",
    "vllm-bench": "the JSON of vllm bench serve --save-detailed",
    "csv": "arrival_s,prompt_tokens,output_tokens",
    "jsonl": "JSON lines with arrival_s, prompt_tokens, output_tokens",
}
"""What `format` may say, beside `auto`, and how a file of that format looks."""
