"""The pure core: what vLLM's V1 scheduler and block pool decide, without clock, randomness or I/O (semantics: 0.32).

File names mirror `vllm/v1/core`. It knows only what a server knows: true output lengths and accepted drafts arrive in
a `StepOutcome`.
"""
