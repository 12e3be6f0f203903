"""Steps per second with 16, 64 and 256 requests running, each decoding: the core alone, and the whole engine.

Not for prompts or arrivals: `replay` has both. The one idea: every size decodes the same number of tokens, 256,000,
and the KV blocks held at the end are counted, so a core that skipped its bookkeeping would not pass.
"""

from __future__ import annotations

import json
from dataclasses import asdict

from benchmarks.measure import Timing, require, timed
from sim.core.block_hash import OwnTextHasher
from sim.core.config import SchedulerConfig
from sim.core.request import Request as CoreRequest
from sim.core.scheduler import Scheduler
from sim.core.step import StepOutcome
from sim.experiment import simulate
from workloads import Request

DECODED_TOKENS = 256_000
CORE_SIZES = (16, 64, 256)
ENGINE_SIZES = (64, 256)
TRIES = 3

_CONFIG = SchedulerConfig(max_num_batched_tokens=8192, max_num_seqs=256, max_model_len=40_960, num_gpu_blocks=18_038)


def main() -> None:
    """Print one JSON object per size."""
    for layer, sizes, measure in (("core", CORE_SIZES, core_steps), ("engine", ENGINE_SIZES, engine_steps)):
        for running in sizes:
            steps = DECODED_TOKENS // running
            best = min((measure(running, steps) for _ in range(TRIES)), key=lambda timing: timing.loop_rounds)
            print(json.dumps({"layer": layer, "running": running, "steps": steps, **asdict(best)}))


def core_steps(running: int, steps: int) -> Timing:
    """Schedule and commit `steps` decode steps: no clock, no prices, no log."""
    scheduler = Scheduler(_CONFIG)
    for i in range(running):
        scheduler.add_request(CoreRequest(f"r{i}", _prompt_tokens(i), steps + 2, OwnTextHasher(i), arrival_time=i))
    outcome = StepOutcome([1] * running)
    scheduler.commit(scheduler.schedule(), outcome)

    def decode() -> int:
        tokens = 0
        for _ in range(steps):
            plan = scheduler.schedule()
            tokens += plan.total_num_scheduled_tokens
            scheduler.commit(plan, outcome)
        return tokens

    tokens, timing = timed(decode)
    require(f"decoded tokens, {running} running", tokens, running * steps)
    held = sum(-(-(_prompt_tokens(i) + steps) // _CONFIG.block_size) for i in range(running))
    require("free KV blocks", scheduler.kv_cache_manager.block_pool.num_free_blocks, _CONFIG.usable_blocks - held)
    return timing


def engine_steps(running: int, steps: int) -> Timing:
    """The same requests through SimPy, the default profile and the log, to the tables of a result."""
    requests = [Request(f"r{i}", 0.0, _prompt_tokens(i), steps + 1) for i in range(running)]
    result, timing = timed(lambda: simulate(requests, _CONFIG))
    require("steps: one of all prompts, then decodes", len(result.steps), 1 + steps)
    require("token gaps", len(result.itls.values_s), running * steps)
    return timing


def _prompt_tokens(i: int) -> int:
    """All prompts fit into one step, and their blocks fill up at different times."""
    return 16 + i % 16


if __name__ == "__main__":
    main()
