"""What times steps by running them: the only importers of torch (torch_*.py) and vllm (vllm*.py)."""
