"""Run by vLLM's interpreter: drives a real engine through waves of requests and writes down every step.

    python engine_steps.py JOB.json

Not for choosing waves or for reading what is written (harness/vllm.py). The one idea: the engine is the real one, in
this process, so three of its methods, wrapped, tell when a step was scheduled, given to the device and back again.

JOB: engine (arguments of EngineArgs), waves, done (ids of waves to leave out), budget_s, out (a JSON Lines file that is
added to: one `meta` object per start, then one object per wave), warmup. A wave: id, prompts (lengths), decode_steps,
mixed (lengths of prompts that come one by one while the others decode). Prints "WAVE number of-how-many" per wave.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # the engine core in this process, its worker too
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")

import torch
from vllm import SamplingParams, __version__
from vllm.engine.arg_utils import EngineArgs
from vllm.platforms import current_platform
from vllm.v1.engine.llm_engine import LLMEngine


class Probe:
    """Writes down each step of an engine core: who computed what, and how long device and host took."""

    def __init__(self, core: Any) -> None:
        self.steps: list[dict[str, Any]] = []
        self._cuda = current_platform.is_cuda()
        self._core = core
        self._plan: Any = None
        self._events: tuple[Any, Any] | None = None
        self._given_s = self._back_s = 0.0
        self._answer: Any = None
        self._schedule, self._step = core.scheduler.schedule, core.step_fn
        self._execute, self._update = core.model_executor.execute_model, core.scheduler.update_from_output
        core.scheduler.schedule, core.scheduler.update_from_output = self.schedule, self.update
        core.model_executor.execute_model, core.step_fn = self.execute, self.step

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        self._plan = self._schedule(*args, **kwargs)
        return self._plan

    def execute(self, *args: Any, **kwargs: Any) -> Any:
        if self._cuda:
            torch.cuda.synchronize()
            self._events = (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
            self._events[0].record()
        self._given_s = time.perf_counter()
        return self._execute(*args, **kwargs)

    def update(self, plan: Any, answer: Any, *args: Any, **kwargs: Any) -> Any:
        if self._events is not None:
            self._events[1].record()
            torch.cuda.synchronize()
        self._back_s = time.perf_counter()
        self._answer = answer
        return self._update(plan, answer, *args, **kwargs)

    def step(self) -> Any:
        start_s = time.perf_counter()
        result = self._step()
        whole_s = time.perf_counter() - start_s
        if self._plan is not None and self._plan.total_num_scheduled_tokens:
            self.steps.append(self._record(whole_s))
        self._plan = None
        return result

    def _record(self, whole_s: float) -> dict[str, Any]:
        device_s = self._back_s - self._given_s
        if self._events is not None:
            device_s = self._events[0].elapsed_time(self._events[1]) / 1e3
        graph = getattr(self._answer, "cudagraph_stats", None)
        return {
            "rows": rows(self._plan),
            "sampled": sum(1 for tokens in self._answer.sampled_token_ids if len(tokens)),
            "device_s": device_s,
            "host_s": max(0.0, whole_s - device_s),
            "padded": None if graph is None else graph.num_padded_tokens,
            "graph": None if graph is None else str(graph.runtime_mode),
        }


def rows(plan: Any) -> list[list[int]]:
    """[tokens, context before them] of every request that a SchedulerOutput names, in its order."""
    before = {new.req_id: new.num_computed_tokens for new in plan.scheduled_new_reqs}
    cached = plan.scheduled_cached_reqs
    before.update(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
    return [[n, before[name]] for name, n in plan.num_scheduled_tokens.items()]


class Driver:
    """Feeds waves to the engine."""

    def __init__(self, engine: LLMEngine, probe: Probe) -> None:
        self.engine = engine
        self.probe = probe
        core = engine.engine_core.engine_core
        self.scheduler = core.scheduler
        config = core.vllm_config
        self.vocabulary = config.model_config.get_vocab_size()
        self.longest = config.model_config.max_model_len
        self.max_seqs = config.scheduler_config.max_num_seqs
        self.block_size = config.cache_config.block_size
        self.blocks = config.cache_config.num_gpu_blocks - 1
        self._random = random.Random(0)
        self._count = 0

    def why_not(self, wave: dict[str, Any]) -> str | None:
        """Why a wave cannot run here; None where it can."""
        steps = wave["decode_steps"] + self._mixed_steps(wave) + 1
        lengths = [*wave["prompts"], *wave["mixed"]]
        if max(lengths) + steps > self.longest:
            return f"longer than max_model_len {self.longest}"
        if len(wave["prompts"]) + bool(wave["mixed"]) > self.max_seqs:
            return f"more sequences than max_num_seqs {self.max_seqs}"
        if sum(-(-(n + steps) // self.block_size) for n in lengths) > self.blocks:
            return f"more KV blocks than {self.blocks}"
        return None

    def run(self, wave: dict[str, Any]) -> list[dict[str, Any]]:
        """All steps of a wave."""
        self.probe.steps = []
        names = [self._add(n) for n in wave["prompts"]]
        self._until_prompts_are_through()
        for _ in range(wave["decode_steps"]):
            self.engine.step()
        for n in wave["mixed"]:
            names.append(self._add(n))
            self._until_prompts_are_through()
        self.engine.abort_request(names)
        while self.engine.has_unfinished_requests():
            self.engine.step()
        return self.probe.steps

    def _mixed_steps(self, wave: dict[str, Any]) -> int:
        budget = self.scheduler.max_num_scheduled_tokens
        return sum(-(-n // max(1, budget - len(wave["prompts"]))) for n in [sum(wave["prompts"]), *wave["mixed"]])

    def _add(self, length: int) -> str:
        self._count += 1
        name = f"wave-{self._count}"
        prompt = [self._random.randrange(self.vocabulary) for _ in range(length)]
        params = SamplingParams(max_tokens=self.longest - length, ignore_eos=True, temperature=0.0, detokenize=False)
        self.engine.add_request(name, {"prompt_token_ids": prompt}, params)
        return name

    def _until_prompts_are_through(self) -> None:
        while self.scheduler.waiting or any(not r.num_output_tokens for r in self.scheduler.running):
            self.engine.step()


def meta(engine: LLMEngine) -> dict[str, Any]:
    """What the samples' file has to say of this engine."""
    config = engine.engine_core.engine_core.vllm_config
    cuda = current_platform.is_cuda()
    return {
        "device": torch.cuda.get_device_name() if cuda else _cpu(),
        "device_memory_bytes": torch.cuda.get_device_properties(0).total_memory if cuda else _memory_bytes(),
        "driver": _driver() if cuda else "",
        "versions": {"vllm": __version__, "torch": torch.__version__, "cuda": torch.version.cuda or ""},
        "dtype": str(config.model_config.dtype).removeprefix("torch."),
        "threads": torch.get_num_threads(),
        "num_gpu_blocks": config.cache_config.num_gpu_blocks,
        "block_size": config.cache_config.block_size,
        "max_num_batched_tokens": config.scheduler_config.max_num_batched_tokens,
        "max_num_seqs": config.scheduler_config.max_num_seqs,
        "max_model_len": config.model_config.max_model_len,
        "capture_sizes": list(config.compilation_config.cudagraph_capture_sizes or ()),
        "tensor_parallel_size": config.parallel_config.tensor_parallel_size,
    }


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "CPU")


def _memory_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _driver() -> str:
    from vllm.third_party import pynvml

    pynvml.nvmlInit()
    return str(pynvml.nvmlSystemGetDriverVersion())


def _append(out: Path, record: dict[str, Any]) -> None:
    with out.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")


def main(job: dict[str, Any]) -> None:
    """Run the waves of a job until its time is over."""
    out = Path(job["out"])
    engine = LLMEngine.from_engine_args(EngineArgs(**job["engine"]))
    core = engine.engine_core.engine_core
    if core.batch_queue is not None:
        raise SystemExit("the engine schedules asynchronously in spite of async_scheduling=False")
    driver = Driver(engine, Probe(core))
    for wave in job["warmup"]:
        if driver.why_not(wave) is None:
            driver.run(wave)
    _append(out, {"meta": meta(engine)})
    start_s = time.monotonic()
    done = set(job["done"])
    for number, wave in enumerate(job["waves"], start=1):
        if wave["id"] in done:
            continue
        if time.monotonic() - start_s > job["budget_s"]:
            break
        why_not = driver.why_not(wave)
        _append(
            out,
            {"wave": wave["id"], "skipped": why_not} if why_not else {"wave": wave["id"], "steps": driver.run(wave)},
        )
        sys.stdout.write(f"WAVE {number} {len(job['waves'])}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
