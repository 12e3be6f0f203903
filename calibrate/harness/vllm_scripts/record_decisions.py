"""Run by vLLM's interpreter: drives its real scheduler object, without a model, and writes down what it decides.

    python record_decisions.py < CASES.jsonl > RECORDED.jsonl

Not for making cases or comparing them (`elpase conform --live`). The one idea: the scheduler is a plain object that is
handed requests and outputs, so neither weights nor time are needed. Format and loop: docs/conformance.md. First comes a
line {"ready": vLLM's version}; a case that vLLM refuses, or that never gets on, comes back as {"case", "refused": why}.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import zlib
from collections import deque
from pathlib import Path
from typing import Any

os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import vllm
from vllm import SamplingParams
from vllm.config import (
    CacheConfig,
    DeviceConfig,
    KVTransferConfig,
    ModelConfig,
    ParallelConfig,
    SchedulerConfig,
    SpeculativeConfig,
    VllmConfig,
)
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import OffloadingWorkerMetadata
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import DraftTokenIds, KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

OUTPUT_CONTENT = 1_000_003
STOP_TOKEN = 2
FIRST_TOKEN, NUM_TOKENS = 3, 32_003
MAX_STEPS, PATIENCE = 4_000, 1_500
NOT_SCHEDULER = (
    "block_size", "num_gpu_blocks", "enable_prefix_caching", "num_speculative_tokens", "spec_method",
    "kv_preemption", "num_host_blocks", "offload_prompt_only",
)  # fmt: skip
HOST_CHUNK_BYTES = 4096
"""A block in host memory is rounded up to a page, and those of a case are smaller than one."""

LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 16, "intermediate_size": 32,
    "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "vocab_size": NUM_TOKENS + 8,
    "max_position_embeddings": 65_536, "torch_dtype": "float32",
}  # fmt: skip
"""A model that is never loaded: vLLM wants to know of one."""


def make_scheduler(settings: dict[str, Any], model_folder: str) -> Any:
    """vLLM's own scheduler under a case's settings."""
    overlapped = settings.get("async_scheduling", False)
    model = ModelConfig(
        model=model_folder, skip_tokenizer_init=True, dtype="float32", max_model_len=settings["max_model_len"]
    )
    parallel, speculative = ParallelConfig(), None
    if settings.get("num_speculative_tokens"):
        speculative = SpeculativeConfig(
            method="ngram_gpu" if overlapped else "ngram",
            num_speculative_tokens=settings["num_speculative_tokens"],
            prompt_lookup_max=2,
            target_model_config=model,
            target_parallel_config=parallel,
        )
    config = VllmConfig(
        model_config=model,
        scheduler_config=SchedulerConfig(
            is_encoder_decoder=False, **{name: value for name, value in settings.items() if name not in NOT_SCHEDULER}
        ),
        cache_config=CacheConfig(
            block_size=settings["block_size"], enable_prefix_caching=settings.get("enable_prefix_caching", False)
        ),
        parallel_config=parallel,
        device_config=DeviceConfig("cpu"),
        speculative_config=speculative,
        kv_transfer_config=offloading(settings),
    )
    if "spec_method" in settings:  # only the scheduler's side of that drafter is wanted
        config.speculative_config.method = settings["spec_method"]
    config.cache_config.num_gpu_blocks = settings["num_gpu_blocks"]
    config.scheduler_config.async_scheduling = overlapped  # a CPU's VllmConfig turns it off, as its runner cannot
    layer = FullAttentionSpec(block_size=settings["block_size"], num_kv_heads=1, head_size=1, dtype=torch.float32)
    kv_cache = KVCacheConfig(
        num_blocks=settings["num_gpu_blocks"],
        kv_cache_tensors=[],
        kv_cache_groups=[KVCacheGroupSpec(["layer"], layer)],
    )
    return config.scheduler_config.get_scheduler_cls()(
        vllm_config=config,
        kv_cache_config=kv_cache,
        structured_output_manager=StructuredOutputManager(config),
        block_size=settings["block_size"],
        log_stats=False,
    )


def offloading(settings: dict[str, Any]) -> Any:
    """vLLM's connector to host memory, where a case has one."""
    if settings.get("kv_preemption") != "offload":
        return None
    return KVTransferConfig(
        kv_connector="OffloadingConnector",
        kv_role="kv_both",
        kv_connector_extra_config={
            "cpu_bytes_to_use": settings["num_host_blocks"] * HOST_CHUNK_BYTES,
            "offload_prompt_only": settings.get("offload_prompt_only", True),
        },
    )


def token_id(content: int, position: int) -> int:
    """A token for a position of a content. Content first, so that texts which differ do so in their first block."""
    return FIRST_TOKEN + zlib.crc32(f"{content}:{position}".encode()) % NUM_TOKENS


def drawn(kind: str, index: int, produced: int, below: int) -> int:
    """A number below `below` that depends on nothing but the arguments (and kind's name)."""
    return zlib.crc32(f"{kind}/{index}/{produced}".encode()) % below


class InOrder(dict[str, None]):
    """A set that is gone through in the order of its making: vLLM's own says in which order requests left by chance."""

    def add(self, name: str) -> None:
        """One more."""
        self[name] = None


class Recording:
    """One case, driven to its end."""

    def __init__(self, case: dict[str, Any], model_folder: str) -> None:
        self.settings, self.specs = case["config"], case["requests"]
        self.scheduler = make_scheduler(self.settings, model_folder)
        self.order = {spec["id"]: index for index, spec in enumerate(self.specs)}
        self.produced = [0] * len(self.specs)
        self.next_spec = 0
        self.steps: list[dict[str, Any]] = []
        self.scheduler.finished_req_ids = InOrder()
        self.open: dict[int, int] = {}
        """Transfer -> answers until the one that reports it."""
        self.loaded_for: dict[int, str] = {}
        self.block_hasher = None
        if self.settings.get("enable_prefix_caching") or "kv_preemption" in self.settings:
            init_none_hash(sha256)
            self.block_hasher = get_request_block_hasher(self.settings["block_size"], sha256)

    def run(self) -> list[dict[str, Any]]:
        """Every step that scheduled or preempted somebody."""
        depth = 2 if self.settings.get("async_scheduling") else 1
        flying: deque[tuple[Any, set[str], dict[str, Any] | None]] = deque()
        quiet = 0
        while len(self.steps) < MAX_STEPS:
            self.arrivals_and_aborts()
            if not flying and not self.scheduler.get_num_unfinished_requests():
                if self.next_spec == len(self.specs):
                    break
                self.add_next()
            if self.scheduler.has_requests():
                flying.append(self.schedule())
                quiet = 0 if flying[-1][2] else quiet + 1
                if quiet > PATIENCE:
                    raise RuntimeError(f"nothing is scheduled after step {len(self.steps)}")
                scheduled = flying[-1][0].total_num_scheduled_tokens > 0
                if len(flying) < depth and (scheduled or self.scheduler.has_requests()):
                    continue
            if flying:
                self.answer(*flying.popleft())
        return self.steps

    def add_next(self) -> None:
        """The next request joins."""
        spec = self.specs[self.next_spec]
        self.next_spec += 1
        text = [token_id(content, position) for content, n in spec["prompt"] for position in range(n)]
        sampling = SamplingParams(max_tokens=spec["max_tokens"], ignore_eos=True, stop_token_ids=[STOP_TOKEN])
        self.scheduler.add_request(
            Request(
                request_id=spec["id"],
                prompt_token_ids=text,
                sampling_params=sampling,
                pooling_params=None,
                arrival_time=spec["arrival_time"],
                priority=spec["priority"],
                block_hasher=self.block_hasher,
            )
        )

    def arrivals_and_aborts(self) -> None:
        """What clients do before the next move."""
        now = len(self.steps)
        while self.next_spec < len(self.specs) and self.specs[self.next_spec]["arrival_step"] <= now:
            self.add_next()
        for spec in self.specs:
            if spec.get("abort_step", now + 1) <= now and spec["id"] in self.scheduler.requests:
                self.scheduler.finish_requests(spec["id"], RequestStatus.FINISHED_ABORTED)

    def schedule(self) -> tuple[Any, set[str], dict[str, Any] | None]:
        """One schedule() call: its output, who will sample, and its record."""
        held = [*self.scheduler.waiting, *self.scheduler.kv_holding_waiting]
        waited = {request.request_id for request in held}
        output = self.scheduler.schedule()
        self.scheduler.finished_req_ids = InOrder()
        transfers = self.transfers(output)
        given, requests = output.num_scheduled_tokens, self.scheduler.requests
        samplers = {name for name in given if not requests[name].is_prefill_chunk}
        if not given and not output.preempted_req_ids and not any(transfers.values()):
            return output, samplers, None
        record = {
            "n": dict(given),
            "admitted": {name: requests[name].num_computed_tokens - n for name, n in given.items() if name in waited},
            "drafts": {name: len(ids) for name, ids in output.scheduled_spec_decode_tokens.items()},
            "preempted": self.in_order(output.preempted_req_ids or ()),
            "free": self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks(),
            "waiting": [request.request_id for request in self.scheduler.waiting],
            "finished": [],
            **transfers,
        }
        self.steps.append(record)
        return output, samplers, record

    def transfers(self, output: Any) -> dict[str, Any]:
        """Blocks that a step sends to and from host memory, by the numbers of their jobs."""
        meta = output.kv_connector_metadata
        if meta is None:
            return {}
        loads = {number: len(job.dst_spec.block_ids) for number, job in meta.load_jobs.items()}
        stores = {number: len(job.src_spec.block_ids) for number, job in meta.store_jobs.items()}
        for number in (*loads, *stores):
            self.open[number] = drawn("transfer", number, 0, 5)
        self.loaded_for |= {number: job.req_id for number, job in meta.load_jobs.items()}
        return {"loads": loads, "stores": stores}

    def arrived(self) -> KVConnectorOutput | None:
        """The transfers that are over when a step is answered."""
        if "kv_preemption" not in self.settings:
            return None
        over = [number for number, answers in self.open.items() if not answers]
        self.open = {number: answers - 1 for number, answers in self.open.items() if answers}
        done = OffloadingWorkerMetadata()
        for number in over:
            done.mark_completed(number)
        loaded = {self.loaded_for.pop(number) for number in over if number in self.loaded_for}
        return KVConnectorOutput(finished_recving=loaded, kv_connector_worker_meta=done)

    def answer(self, output: Any, samplers: set[str], record: dict[str, Any] | None) -> None:
        """What a model would have sampled for a step, given to the scheduler."""
        names = list(output.num_scheduled_tokens)
        sampled = [self.sample(name, output) if name in samplers else [] for name in names]
        # One that is aborted while it loads is known until its load is over.
        before = {name for name, request in self.scheduler.requests.items() if not request.is_finished()}
        self.scheduler.update_from_output(
            output,
            ModelRunnerOutput(
                req_ids=names,
                req_id_to_index={name: index for index, name in enumerate(names)},
                sampled_token_ids=sampled,
                logprobs=None,
                prompt_logprobs_dict={},
                pooler_output=[],
                kv_connector_output=self.arrived(),
            ),
        )
        if record is not None:
            record["finished"] = self.in_order(before - set(self.scheduler.requests))
        drafts = self.settings.get("num_speculative_tokens", 0)
        if drafts and not self.settings.get("async_scheduling"):
            alive = [name for name in names if name in self.scheduler.requests]
            counts = [drawn("draft", self.order[name], self.produced[self.order[name]], drafts + 1) for name in alive]
            self.scheduler.update_draft_token_ids(DraftTokenIds(alive, [[FIRST_TOKEN] * count for count in counts]))

    def sample(self, name: str, output: Any) -> list[int]:
        """One token and as many accepted drafts as the case's made-up model accepts."""
        index = self.order[name]
        drafts = len(output.scheduled_spec_decode_tokens.get(name, ()))
        tokens = []
        for _ in range(1 + drawn("accept", index, self.produced[index], drafts + 1)):
            position = self.produced[index]
            stops = self.specs[index].get("stop_at") == position
            tokens.append(STOP_TOKEN if stops else token_id(OUTPUT_CONTENT + index, position))
            self.produced[index] += 1
        return tokens

    def in_order(self, names: Any) -> list[str]:
        """Request ids in the order of the case."""
        return sorted(names, key=self.order.__getitem__)


def say(answer: dict[str, Any]) -> None:
    """One line of JSON on stdout."""
    sys.stdout.write(json.dumps(answer, separators=(",", ":")) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Record case after case."""
    with tempfile.TemporaryDirectory() as model_folder:
        Path(model_folder, "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
        say({"ready": vllm.__version__})
        for line in sys.stdin:
            case = json.loads(line)
            try:
                recording = Recording(case, model_folder)
                answer = {**case, "vllm": vllm.__version__, "steps": recording.run()}
                if len(recording.steps) == MAX_STEPS:
                    answer["truncated"] = True
            except Exception as error:  # a case that vLLM refuses is not compared
                answer = {"case": case["case"], "refused": f"{type(error).__name__}: {error}"[:200]}
            say(answer)


if __name__ == "__main__":
    main()
