"""What the prefix cache finds in a trace, beside what its hash ids say can be found."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

from sim import EngineConfig, simulate
from workloads import read_trace

ROOT = Path(__file__).parents[2]
TRACE = ROOT / "tests/workloads/data/mooncake_conversation.jsonl"
IDEAL = runpy.run_path(str(ROOT / "results/sweeps/mooncake/ideal.py"))
KV_BLOCK = 16
REQUESTS = [json.loads(line) for line in TRACE.read_text(encoding="utf-8").splitlines()]


def findable_tokens() -> list[int]:
    """Of each prompt, one after the other: the ids at its beginning that came before, in whole KV blocks, and never all
    of it, as the last token has to be computed."""
    seen: set[int] = set()
    found = []
    for request in REQUESTS:
        ids, tokens = request["hash_ids"], request["input_length"]
        known = next((i for i, one in enumerate(ids) if one not in seen), len(ids))
        found.append(min(known * 512, tokens - 1) // KV_BLOCK * KV_BLOCK)
        seen |= set(ids)
    return found


def test_a_cache_that_forgets_nothing_finds_all_that_there_is() -> None:
    """Sent so slowly that each request is done before the next, with blocks for all of them."""
    blocks = sum(-(-(one["input_length"] + one["output_length"]) // KV_BLOCK) for one in REQUESTS) + 1
    result = simulate(read_trace(TRACE, rate_scale=0.01), EngineConfig(num_gpu_blocks_override=blocks))
    findable = findable_tokens()
    assert sum(findable) > 0.1 * sum(one["input_length"] for one in REQUESTS)
    assert result.requests["cached_tokens"].tolist() == findable
    asked = sum(one["input_length"] for one in REQUESTS)
    assert result.summary()["sim"]["prefix_hit_rate"] == pytest.approx(sum(findable) / asked)
    assert IDEAL["share_found"](REQUESTS, float("inf")) == pytest.approx(sum(findable) / asked, abs=0.002)


@pytest.mark.parametrize(
    ("most", "share"),
    [
        (float("inf"), (512 + 1024 + 512) / (4 * 1024)),
        (2, (512 + 1024) / (4 * 1024)),  # 2 is forgotten when 3 comes
        (0, 0.0),
    ],
)
def test_the_ideal_by_hand(most: float, share: float) -> None:
    prompts = ([1, 2], [1, 3], [1, 3], [2, 4])
    requests = [{"hash_ids": ids, "input_length": 1024} for ids in prompts]
    assert IDEAL["share_found"](requests, most) == share
