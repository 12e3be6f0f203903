"""Scripts that run inside vLLM's own interpreter, where elpase is not installed: each stands alone, on the standard
library, torch and vllm. A folder of their own, as a script's folder is the first that Python imports from.
"""
