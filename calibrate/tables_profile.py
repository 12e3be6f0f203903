"""From kernel tables to a profile: which steps are composed, and what is written down of their origin.

Not for the kernels (op_tables.py, op_files.py) nor the composition (compose.py). The one idea: a profile of composed
steps says so, names the device whose kernels were timed, and states what no kernel table can tell.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from calibrate import op_files
from calibrate.compose import (
    ELEMENTWISE_L2,
    ELEMENTWISE_LAYER_MS,
    MIXED_ATTENTION,
    MIXED_TILE_MS,
    SUSTAINED_CLOCKS,
    TableSteps,
    file_samples,
    table_samples,
)
from calibrate.expert_tables import FILE, SPREAD
from calibrate.grid import GridLimits
from calibrate.make_profile import Target, calibrate
from calibrate.op_tables import OpTables
from calibrate.samples import Origin
from calibrate.synchronous import overheads
from sim.config import EngineConfig
from sim.errors import InputError
from sim.latency.graphs import Graphs, capture_sizes
from sim.latency.profile import ClientTerms
from sim.report.units import percent
from sim.specs import gpu_names, gpu_spec, model_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from calibrate.make_profile import Calibration
    from calibrate.samples import Samples
    from calibrate.synchronous import Alone, Overheads
    from sim.specs import GpuSpec, ModelSpec

STEPS = 900
"""Composed steps: more move no coefficient by as much as its standard error."""
_LONGEST_CONTEXT = 32_768
"""Composed also for models that take less: only long contexts tell what attention costs."""
_MOST_BANDWIDTH = 1.1
TERMS = ("tile_waste", "eager_row_s")
"""Optional coefficients that composed steps have something to say about."""

_TABLES = (
    "NVIDIA AIConfigurator (Apache-2.0): kernel tables (GEMM, {experts}context and generation attention, all-reduce) of"
    " vLLM {version} on {device}, composed for {model} at TP {tp}"
)
_FILES = (
    "casys-kaist/LLMServingSim (MIT): vLLM {version}'s own layers, timed on {device} ({date}) for {model}: dense"
    " layers, attention of decodes, of prompts and of both together, LM head and sampler"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What the user asks for. `server` holds vLLM flags of the profile's server, underscores in the names."""

    name: str
    folder: Path
    model: str = ""
    gpu: str = ""
    tensor_parallel_size: int = 1
    clocks: float = SUSTAINED_CLOCKS
    host_row_s: float = 0.0
    client: ClientTerms | None = None
    server: Mapping[str, object]
    notes: Mapping[str, str]
    command: str = ""


@dataclass(frozen=True, slots=True)
class Composed:
    """Steps, and what is known of them without a fit."""

    samples: Samples
    source: Mapping[str, str]
    """In words."""
    known: Mapping[str, float]
    """Coefficient -> value."""


def compose(recipe: Recipe) -> Composed:
    """The recipe's steps. Raises InputError and OSError."""
    if (recipe.folder / op_files.ATTENTION).exists():
        return _from_files(recipe)
    return _from_tables(recipe)


def make(recipe: Recipe, composed: Composed, alone: list[Alone], on_fold: Callable[[], None]) -> Calibration:
    """Fit and describe. `alone`: a synchronous run, which the host's and the client's terms are found from."""
    samples = composed.samples
    target = Target(
        name=recipe.name,
        model=samples.origins[0].model,
        gpu=_gpu_of(recipe, samples.origins[0].device).name,
        server=recipe.server,
        notes=dict(recipe.notes),
        sources=composed.source,
        command=recipe.command,
        client=recipe.client or ClientTerms(),
    )
    made = calibrate(samples, target, fixed=composed.known, terms=TERMS, on_fold=on_fold)
    if not alone:
        return _with_terms(made, made.profile.client, 0.0, recipe, _unknown(recipe))
    found = overheads(made.profile.law, alone)
    return _with_terms(made, found.client, found.step_s, recipe, _known(found))


def _with_terms(
    made: Calibration, client: ClientTerms, step_s: float, recipe: Recipe, told: Mapping[str, str]
) -> Calibration:
    """The host's time goes where it acts: apart when the server is synchronous, else into the device's gaps.

    A step that was composed too slow is made faster instead.
    """
    profile, law = made.profile, made.profile.law
    if step_s < 0 or profile.server.get("async_scheduling", True):
        law = replace(law, step_s=float(f"{max(0.0, law.step_s + step_s):.6g}"), host_row_s=recipe.host_row_s)
    else:
        host_step_s = float(f"{max(0.0, step_s - recipe.host_row_s):.4g}")
        law = replace(law, host_step_s=host_step_s, host_row_s=recipe.host_row_s)
    client = ClientTerms(round(client.request_s, 5), client.response_s, float(f"{client.request_token_s:.3g}"))
    notes = {**profile.provenance["notes"], **told}
    provenance = {**profile.provenance, "notes": notes}
    profile = replace(profile, law=law, client=client, provenance=provenance)
    return replace(made, profile=profile, statements={**made.statements, **told})


def _known(found: Overheads) -> dict[str, str]:
    return {
        "host": f"a synchronous run's tokens take {1e3 * abs(found.step_s):.2f} ms"
        f" {'longer' if found.step_s > 0 else 'less'} than the composed step of one sequence (its kinds of request"
        f" differ by up to {1e3 * found.spread_s:.2f} ms): step_s or host_step_s has been set by it",
        "client": "request_s and request_token_s are what the synchronous run's TTFT has beyond the composed prompt's"
        " step; the second holds the tokenizer and any error of the composed prompts",
    }


def _unknown(recipe: Recipe) -> dict[str, str]:
    told = {"host": "kernel tables say nothing of the host, and no synchronous run was given: no host time per step"}
    if recipe.client is None:
        told["client"] = "no served run was given: what HTTP and tokenizer add to a TTFT is not known and is 0"
    return told


# -- the two sources ---------------------------------------------------------------------------------------------------


def _from_tables(recipe: Recipe) -> Composed:
    if not recipe.model:
        raise InputError(field="--model", expected="a model: the tables are of kernels, not of a model")
    tables, model = OpTables(recipe.folder), model_spec(recipe.model)
    gpu = _gpu_of(recipe, tables.device)
    tp = recipe.tensor_parallel_size
    steps = TableSteps(tables, gpu, model, tp, recipe.clocks)
    limits, graphs = _limits(recipe, gpu, model)
    origin = Origin(
        device=tables.device,
        model=model.name,
        tensor_parallel_size=tp,
        dtype=model.dtype,
        engine="vllm",
        engine_version=tables.engine_version,
        capture_sizes=graphs.sizes,
        notes=_table_notes(steps),
        command=recipe.command,
    )
    experts = "" if model.experts is None else "experts, "
    told = _TABLES.format(version=tables.engine_version, device=tables.device, model=model.name, tp=tp, experts=experts)
    sources = {"kernels": told, **_kind_notes(steps)}
    return Composed(table_samples(steps, limits, graphs, STEPS, origin), sources, steps.known_terms())


def _table_notes(steps: TableSteps) -> dict[str, str]:
    return {
        "composition": "no step was measured as a whole: each is the sum of its kernels",
        "clocks": f"GEMMs and prompt attention bound by arithmetic take {steps.clocks:g} times as long as in a loop of"
        " one kernel: the ratio between served steps and the same tables, fitted for h100-qwen3-14b on an H100",
        "mixed steps": f"no table has prompts and decodes together: beside a prompt a decode row's attention is taken"
        f" {MIXED_ATTENTION:g} times as long (h100-qwen3-14b), and {1e6 * MIXED_TILE_MS:.0f} ns more per row, layer"
        " and KV head (scaled from the mixed batches of an RTX PRO 6000 and an RTX 4090)",
        "elementwise": f"norms, rotary embedding and activation: {1e3 * ELEMENTWISE_LAYER_MS:.0f} us per layer or"
        f" {ELEMENTWISE_L2:g} of their bytes over the memory bandwidth, as timed on an RTX 4090 and an RTX PRO 6000",
        **_kind_notes(steps),
    }


def _kind_notes(steps: TableSteps) -> dict[str, str]:
    """Of what only some models have: which rows of the tables it was read from."""
    model, notes = steps.model, {}
    if model.experts is not None:
        kernels = steps.tables.experts(model, steps.tp)
        notes["experts"] = (
            f"{model.experts.num_experts} experts, {model.experts.num_experts_per_tok} of them per token: {FILE},"
            f" kernel_source {kernels.kernel}, moe_dtype {kernels.dtype}, distribution {SPREAD} (evenly spread tokens"
            " would need other times); the router is a GEMM beside them"
        )
    if model.num_window_layers:
        notes["windows"] = (
            f"attention of {model.num_window_layers} of {model.num_layers} layers is that of kernels timed with"
            f" window_size {model.window}"
        )
    return notes


def _from_files(recipe: Recipe) -> Composed:
    meta = op_files.read_meta(recipe.folder / op_files.META)
    model = model_spec(recipe.model or meta.model)
    tp, gpu = recipe.tensor_parallel_size, _gpu_of(recipe, meta.device)
    steps = op_files.FileSteps.read(recipe.folder, model, tp)
    _require_possible(steps, gpu, tp)
    limits, graphs = _limits(recipe, gpu, model)
    limits = replace(
        limits,
        max_tokens=min(limits.max_tokens, meta.max_num_batched_tokens),
        max_seqs=min(limits.max_seqs, meta.max_num_seqs),
    )
    origin = Origin(
        device=meta.device,
        model=model.name,
        tensor_parallel_size=tp,
        dtype=model.dtype,
        engine="vllm",
        engine_version=meta.engine_version,
        date=meta.date,
        capture_sizes=graphs.sizes,
        notes=_file_notes(tp),
        command=recipe.command,
    )
    told = _FILES.format(version=meta.engine_version, device=meta.device, date=meta.date, model=model.name)
    return Composed(file_samples(steps, limits, graphs, STEPS, origin), {"layers": told}, steps.known_terms())


def _file_notes(tp: int) -> dict[str, str]:
    notes = {"composition": "no step was measured as a whole: each is the sum of its layers, timed one by one"}
    if tp > 1:
        notes["collectives"] = "the files have no all-reduces: what GPUs say to each other is missing from every step"
    return notes


def _require_possible(steps: op_files.FileSteps, gpu: GpuSpec, tp: int) -> None:
    """Files do not always say of how many GPUs' share they are; reading the weights faster than memory allows does."""
    model = steps.model
    read_bytes = (model.weight_bytes - 4 * model.vocab_size * model.hidden_size) / tp
    share = read_bytes / (float(steps.dense_us[1][0]) / 1e6) / gpu.bandwidth_bytes_per_s
    if share > _MOST_BANDWIDTH:
        expected = (
            f"the GPUs whose share was timed: weights would be read at {percent(share)} of {gpu.name}'s bandwidth"
        )
        raise InputError(field="--tp", value=tp, expected=expected)


def _limits(recipe: Recipe, gpu: GpuSpec, model: ModelSpec) -> tuple[GridLimits, Graphs]:
    """What a server with such flags can have in one step and in its cache."""
    config = EngineConfig().resolve(gpu=gpu, model=model, server_defaults=recipe.server)
    limits = GridLimits(
        max_tokens=config.max_num_batched_tokens,
        max_seqs=config.max_num_seqs,
        max_context=_LONGEST_CONTEXT,
        kv_tokens=(config.num_gpu_blocks - 1) * config.block_size,
        max_model_len=max(_LONGEST_CONTEXT, config.max_model_len),
    )
    largest = recipe.server.get("max_cudagraph_capture_size")
    sizes = capture_sizes(
        limits.max_tokens,
        limits.max_seqs,
        capability=gpu.capability,
        largest=largest if isinstance(largest, int) else None,
    )
    return limits, Graphs(sizes, mixed=True)


def _gpu_of(recipe: Recipe, device: str) -> GpuSpec:
    if recipe.gpu:
        return gpu_spec(recipe.gpu)
    known = {gpu_spec(name).device_name.lower(): name for name in gpu_names()}
    name = known.get(device.lower())
    if name is None:
        raise InputError(field="--gpu", value=device, expected=f"one of {', '.join(gpu_names())}")
    return gpu_spec(name)
