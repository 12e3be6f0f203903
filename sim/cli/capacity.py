"""`elpase capacity`: will it start, where does the memory go, and how many requests run at once?

Not for time: nothing is simulated here. The one idea: N = B x b / L, the usable KV blocks over the blocks that a
request holds on average while it lives.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

import click

from sim.cli.flags import EngineCommand, engine_config, engine_options
from sim.errors import InputError
from sim.kv_choice import window_note
from sim.memory import GIB
from sim.plurals import counted
from sim.specs import ParallelSpec, gpu_names, gpu_spec, model_spec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sim.config import EngineConfig, Settled
    from sim.core.config import SchedulerConfig
    from sim.specs import ModelSpec


@dataclass(frozen=True, slots=True)
class Running:
    """How many requests run at once under a steady full load, and what keeps it from being more."""

    mean_prompt_tokens: float
    mean_output_tokens: float
    mean_blocks: float
    """KV blocks that a running request holds, averaged over the time that it decodes."""
    fit: int
    """Requests that the KV cache holds."""
    expected: int
    binds: str
    """The limit that `expected` stands at."""


def expected_running(config: SchedulerConfig, lengths: Iterable[tuple[int, int]]) -> Running:
    """Estimate the running requests from (prompt, output) lengths in tokens.

    A request grows from its prompt to prompt + output, so on average it holds ceil((prompt + output / 2) / block size)
    blocks; a request with a longer output stands longer, so means are weighted by output. The watermark's blocks stay
    free whenever somebody is admitted beside others. Shared prefixes are not counted. Raises InputError for no lengths.
    """
    count, prompts, outputs, held = 0, 0, 0, 0
    for prompt, output in lengths:
        count += 1
        prompts += prompt
        outputs += output
        held += output * ceil((prompt + output / 2) / config.block_size)
    if not outputs:
        raise InputError(field="lengths", value=count, expected="at least one request with an output")
    mean_blocks = held / outputs
    fit = int(config.usable_blocks / mean_blocks)
    kept_free = int(config.watermark * config.num_gpu_blocks)
    admitted = max(1, int((config.usable_blocks - kept_free) / mean_blocks))
    cap = "max_num_seqs" if config.max_num_active_seqs is None else "max_num_active_seqs"
    room = "watermark" if admitted < fit else "KV cache"
    return Running(
        mean_prompt_tokens=prompts / count,
        mean_output_tokens=outputs / count,
        mean_blocks=mean_blocks,
        fit=fit,
        expected=min(admitted, config.seqs_cap),
        binds=room if admitted < config.seqs_cap else cap,
    )


@click.command(cls=EngineCommand, short_help="The KV blocks that fit a GPU, and the requests that run in them.")
@click.option("--model", required=True, metavar="NAME|CONFIG.json", help="A catalogue name, or a Hugging Face config.")
@click.option("--gpu", default=None, metavar="NAME", help=f"One of {', '.join(gpu_names())}.")
@click.option("--input-len", type=click.IntRange(min=1), help="Prompt tokens of each request.")
@click.option("--output-len", type=click.IntRange(min=1), help="Output tokens of each request.")
@click.option("--trace", help="Lengths from a trace's file or a built-in workload, instead.")
@click.option("--limit", type=click.IntRange(min=1), help="Read so many requests of the trace at most.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@engine_options
def command(
    model: str,
    gpu: str | None,
    input_len: int | None,
    output_len: int | None,
    trace: str | None,
    limit: int | None,
    as_json: bool,
    **flags: Any,
) -> None:
    """Say what vLLM would say when it starts: KV blocks, the longest requests that fit together, default budgets.

    Block counts come from --num-gpu-blocks-override or --kv-cache-memory-bytes if given. Otherwise activations and
    CUDA graphs, which vLLM measures, are estimated; the estimate meets known servers within 1.5 %.

    Example: elpase capacity --model qwen3-14b --gpu h100 --input-len 1000 --output-len 200
    """
    if limit is not None and trace is None:
        raise InputError("--limit goes with --trace: there is nothing to read otherwise")
    config = engine_config(flags)
    spec = model_spec(model, dtype=config.dtype or "auto")
    _require_gpu(config, gpu)
    settled = config.settle(gpu=None if gpu is None else gpu_spec(gpu), model=spec)
    lengths = _lengths(settled.scheduler, input_len, output_len, trace, limit)
    running = None if lengths is None else expected_running(settled.scheduler, lengths)
    kept = window_note(config, spec)
    for note in (*config.notes(), *([kept] if kept else [])):
        click.echo(f"elpase: {note}", err=True)
    parallel = ParallelSpec(config.tensor_parallel_size or 1)
    bytes_per_token = spec.kv_bytes_per_token(config.kv_cache_dtype or "auto", parallel)
    facts = _facts(spec, gpu, parallel, bytes_per_token, settled, running)
    click.echo(json.dumps(facts, indent=2) if as_json else "\n".join(_report(facts, settled, running)))


def _require_gpu(config: EngineConfig, gpu: str | None) -> None:
    """Raise where vLLM would look at the GPU, and for a flag that is about one."""
    if gpu is not None:
        return
    if config.gpu_memory_utilization is not None:
        raise InputError("--gpu-memory-utilization is a share of a GPU: say --gpu")
    budgets = (config.max_num_batched_tokens, config.max_num_seqs)
    sized = config.num_gpu_blocks_override is not None or config.kv_cache_memory_bytes is not None
    if not sized or None in budgets:
        instead = (
            "--num-gpu-blocks-override or --kv-cache-memory-bytes, with --max-num-batched-tokens and --max-num-seqs"
        )
        raise InputError(field="--gpu", expected=f"one of {', '.join(gpu_names())}; or, without one, {instead}")


def _lengths(
    config: SchedulerConfig, input_len: int | None, output_len: int | None, trace: str | None, limit: int | None
) -> Iterable[tuple[int, int]] | None:
    if trace is not None:
        if input_len is not None or output_len is not None:
            raise InputError("--trace contradicts --input-len and --output-len: lengths come from one of them")
        from workloads import BUILTIN_NAMES, open_workload
        from workloads.datasets import DATASETS

        if not trace or trace in DATASETS:
            raise InputError(field="--trace", value=trace, expected=f"a file, or one of {', '.join(BUILTIN_NAMES)}")

        requests = open_workload(trace, max_model_len=config.max_model_len, limit=limit)
        lengths = [(request.prompt_tokens, request.output_tokens) for request in requests]
        for reason, count in requests.skipped.items():
            click.echo(f"elpase: {trace}: {counted(count, 'request')} skipped: {reason}", err=True)
        return lengths
    if input_len is None and output_len is None:
        return None
    if input_len is None or output_len is None:
        raise InputError("--input-len and --output-len go together")
    if input_len + output_len > config.max_model_len:
        expected = f"at most max_model_len ({config.max_model_len})"
        raise InputError(field="--input-len + --output-len", value=input_len + output_len, expected=expected)
    return [(input_len, output_len)]


def _facts(
    model: ModelSpec,
    gpu: str | None,
    parallel: ParallelSpec,
    bytes_per_token: int,
    settled: Settled,
    running: Running | None,
) -> dict[str, Any]:
    config, capacity, memory = settled.scheduler, settled.capacity, settled.kv.memory
    facts: dict[str, Any] = {
        "model": model.name,
        "gpu": gpu,
        "tensor_parallel_size": parallel.tensor_parallel_size,
        "num_parameters": model.num_parameters,
        "weight_bytes": model.weight_bytes,
        "kv_bytes_per_token_per_gpu": bytes_per_token,
        "num_gpu_blocks": config.num_gpu_blocks,
        "num_gpu_blocks_origin": settled.kv.origin,
        "block_size": config.block_size,
        "kv_cache_size_tokens": capacity.tokens,
        "max_concurrency": capacity.max_concurrency,
        "max_model_len": config.max_model_len,
        "max_num_batched_tokens": config.max_num_batched_tokens,
        "max_num_seqs": config.max_num_seqs,
    }
    if memory is not None:
        facts["memory_bytes_per_gpu"] = {
            "weights": memory.weights_bytes,
            "activations": memory.activations_bytes,
            "cuda_graphs": memory.graphs_bytes,
            "runtime": memory.runtime_bytes,
            "kv_cache": memory.kv_bytes,
            "left_alone": memory.unused_bytes,
            "total": memory.total_bytes,
        }
    if running is not None:
        facts["running"] = {name: getattr(running, name) for name in Running.__dataclass_fields__}
    return facts


def _report(facts: dict[str, Any], settled: Settled, running: Running | None) -> list[str]:
    tp = facts["tensor_parallel_size"]
    on = f" on {tp} x {facts['gpu']}" if facts["gpu"] else ""
    lines = [
        *settled.capacity.lines(),
        "",
        f"{facts['model']}{on}",
        _line("Parameters", f"{facts['num_parameters']:,}"),
        _line("KV bytes per token and GPU", f"{facts['kv_bytes_per_token_per_gpu']:,}"),
        _line("KV blocks", f"{facts['num_gpu_blocks']:,}", f"of {facts['block_size']} tokens, {settled.kv.origin}"),
        _line("max_model_len", f"{facts['max_model_len']:,}"),
        _line("max_num_batched_tokens", f"{facts['max_num_batched_tokens']:,}"),
        _line("max_num_seqs", f"{facts['max_num_seqs']:,}"),
    ]
    if settled.kv.memory is not None:
        lines += ["", "Memory of each GPU (GiB)", *_memory(facts["memory_bytes_per_gpu"])]
    return lines if running is None else [*lines, "", *_running(running)]


def _memory(shares: dict[str, int]) -> list[str]:
    told = {"activations": "estimated", "cuda_graphs": "estimated", "runtime": "estimated"}
    return [_line(name.replace("_", " "), f"{size / GIB:.2f}", told.get(name, "")) for name, size in shares.items()]


def _running(running: Running) -> list[str]:
    return [
        f"Requests of {running.mean_prompt_tokens:,.0f} + {running.mean_output_tokens:,.0f} tokens on average",
        _line("KV blocks held by one", f"{running.mean_blocks:,.1f}", "ceil((input + output / 2) / block size)"),
        _line("fit in the KV cache", f"{running.fit:,}"),
        _line("expected running", f"{running.expected:,}", f"limited by {running.binds}"),
    ]


def _line(label: str, value: str, remark: str = "") -> str:
    return f"  {label:<28}{value:>16}  {remark}".rstrip()
