"""What a prefix cache could find in Mooncake's traces: `python results/sweeps/mooncake/ideal.py TRACE...`.

Not a simulation, and nothing of elpase's is used. The one idea: requests in the file's order, one at a time, over a
cache of whole ids that forgets the least recently used; without a limit it finds all that can be found.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

BLOCK_TOKENS = 512
"""Prompt tokens of one hash id."""
GPU_BLOCKS = (28_656, 114_624, 458_496)
"""KV blocks of 16 tokens, as in the study; the first is an H100's for Llama-3.1-8B."""
MAX_MODEL_LEN = 131_072


def share_found(requests: list[dict[str, Any]], most_ids: float) -> float:
    """Prompt tokens found over all prompt tokens, with a cache of `most_ids`."""
    cache: OrderedDict[int, None] = OrderedDict()
    found = asked = 0
    for request in requests:
        ids, tokens = request["hash_ids"], request["input_length"]
        known = next((i for i, one in enumerate(ids) if one not in cache), len(ids))
        found += min(known * BLOCK_TOKENS, tokens)
        asked += tokens
        for one in reversed(ids):  # so that ends of prompts are forgotten before their beginnings
            cache[one] = None
            cache.move_to_end(one)
        while len(cache) > most_ids:
            cache.popitem(last=False)
    return found / asked


def about(path: Path) -> dict[str, Any]:
    """A trace's facts."""
    text = path.read_bytes()
    requests = [json.loads(line) for line in text.splitlines()]
    fit = [one for one in requests if one["input_length"] + one["output_length"] <= MAX_MODEL_LEN]
    caches = {f"{blocks} blocks": blocks * 16 / BLOCK_TOKENS for blocks in GPU_BLOCKS} | {"no limit": float("inf")}
    return {
        "sha256": hashlib.sha256(text).hexdigest(),
        "requests": len(requests),
        "requests_that_fit": len(fit),
        "span_s": round(requests[-1]["timestamp"] / 1000),
        "mean_prompt_tokens": round(sum(one["input_length"] for one in fit) / len(fit)),
        "mean_output_tokens": round(sum(one["output_length"] for one in fit) / len(fit)),
        "different_prompt_tokens": BLOCK_TOKENS * len({one for request in fit for one in request["hash_ids"]}),
        "share_found": {name: round(share_found(fit, most), 4) for name, most in caches.items()},
    }


if __name__ == "__main__":
    told = [about(Path(name)) for name in sys.argv[1:]]
    Path(__file__).with_name("ideal.json").write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
