"""Results of benchmarks of a server, read into one form: `vllm bench serve` (and elpase's own), GuideLLM, AIPerf."""
