"""`vllm serve`'s scheduler and cache flags for any verb: `engine_options` adds them, `engine_config` collects them.

Not for what they mean together: that is `sim.config`. The one idea: one table of flags gives the options, the groups
of the help text and the check against vLLM's own parser.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from sim.cli.vllm_args import JSON_FLAGS, human_int, rewritten
from sim.config import (
    AUTO_LENGTH,
    DTYPES,
    KV_CACHE_DTYPES,
    KV_OFFLOADING_BACKENDS,
    KV_PREEMPTIONS,
    OPTIMIZATION_LEVELS,
    PERFORMANCE_MODES,
    POLICIES,
    VLLM_DEFAULTS,
    EngineConfig,
)
from sim.errors import InputError
from sim.host import SWAP_SPACE_GIB, SWAP_SPACE_GONE
from sim.without_effect import NO_EFFECT, NOT_BUILT

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

Decorated = TypeVar("Decorated", bound="Callable[..., Any]")


def whole_number(text: str) -> int:
    """A whole number as vLLM takes it: 8192, 8k (8,000) or 8K (8,192)."""
    try:
        return human_int(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is not a whole number such as 8192, 8k (8,000) or 8K (8,192).") from error


def numbers(text: str) -> tuple[float, ...]:
    """Numbers with commas between them: 0.8,0.6,0.4."""
    try:
        return tuple(map(float, text.split(",")))
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is not a number, nor numbers such as 0.8,0.6,0.4.") from error


def sizes(text: str) -> tuple[int, ...]:
    """Whole numbers: `1 2 4` on the command line, which arrives here as 1,2,4."""
    try:
        return tuple(map(int, text.split(",")))
    except ValueError as error:
        raise click.BadParameter(f"{text!r} are not whole numbers such as 1 2 4.") from error


def length(text: str) -> int:
    """A whole number, or `auto`."""
    return AUTO_LENGTH if text.strip().lower() in ("auto", str(AUTO_LENGTH)) else whole_number(text)


class Flag(NamedTuple):
    """One flag: its field in `EngineConfig`, type, help, and other spellings."""

    name: str
    kind: Any
    """As `click.option` takes it; `bool` makes a pair, --x and --no-x."""
    help: str
    aliases: tuple[str, ...] = ()


GROUPS: Mapping[str, tuple[Flag, ...]] = {
    "Scheduler": (
        Flag("max_num_batched_tokens", whole_number, "Tokens of one step. Default: by GPU, as vLLM's API server."),
        Flag("max_num_seqs", int, "Requests that run at once. Default: by GPU, as vLLM's API server."),
        Flag("max_num_active_seqs", int, "Fewer requests that run at once, without a smaller max-num-seqs."),
        Flag("max_num_scheduled_tokens", whole_number, "Tokens that a step may schedule, if fewer than its budget."),
        Flag("enable_chunked_prefill", bool, "Let a prompt take several steps."),
        Flag("long_prefill_token_threshold", int, "Longest piece of a prompt in a shared step; 0 is no limit."),
        Flag("long_prefill_token_threshold_adaptive", bool, "Raise that threshold to a fair share of the budget."),
        Flag("scheduling_policy", click.Choice(POLICIES), "Order of waiting requests."),
        Flag("scheduler_reserve_full_isl", bool, "Admit a request only when all of its prompt fits."),
        Flag("watermark", float, "Fraction of KV blocks kept free at admission."),
        Flag("async_scheduling", bool, "Decide a step while the one before it runs."),
        Flag("performance_mode", click.Choice(PERFORMANCE_MODES), "`throughput` doubles both default budgets."),
    ),
    "Speculative decoding": (
        Flag("speculative_config", str, "As JSON, or key by key: -sc.method ngram.", ("-sc",)),
        Flag("spec_method", str, "Its method: ngram, ngram_gpu, eagle, eagle3 or draft_model."),
        Flag("spec_model", str, "Its model: a name of the catalogue, or a config.json."),
        Flag("spec_tokens", int, "Its num_speculative_tokens."),
    ),
    "CUDA graphs": (
        Flag("enforce_eager", bool, "No CUDA graphs."),
        Flag("cudagraph_capture_sizes", sizes, "Numbers of tokens to capture. Default: by vLLM's rule."),
        Flag("max_cudagraph_capture_size", whole_number, "The largest of them. Default: by vLLM's rule."),
        Flag("compilation_config", str, "As JSON, or key by key: -cc.cudagraph_mode=NONE.", ("-cc",)),
        Flag("optimization_level", click.Choice(OPTIMIZATION_LEVELS), "-O0 to -O3: from -O2 on, all graphs."),
    ),
    "KV cache": (
        Flag("gpu_memory_utilization", float, "Share of the GPU that vLLM takes.", ("--device-memory-utilization",)),
        Flag("kv_cache_memory_bytes", whole_number, "Bytes of KV cache per GPU, in place of that share."),
        Flag("num_gpu_blocks_override", int, "KV blocks, in place of what fits in memory."),
        Flag("block_size", int, "Tokens of one KV block."),
        Flag("enable_prefix_caching", bool, "Reuse the KV blocks of equal beginnings."),
        Flag("kv_offloading_size", float, "GiB of host memory, over all GPUs, to offload KV blocks to."),
        Flag("kv_cache_dtype", click.Choice(KV_CACHE_DTYPES), "Type of K and V; `auto` is the model's."),
    ),
    "Model and GPUs": (
        Flag("max_model_len", length, "Longest prompt plus output. Default: the model's own."),
        Flag("dtype", click.Choice(DTYPES), "Type of weights and activations."),
        Flag("tensor_parallel_size", int, "GPUs that serve the model together.", ("-tp", "--tp")),
    ),
    "Accepted, without effect in one engine": (
        Flag("prefill_schedule_interval", int, "Admit prompts every N steps."),
        Flag("disable_hybrid_kv_cache_manager", bool, "One block size for all kinds of layers."),
        Flag("disable_chunked_mm_input", bool, "Keep images whole."),
        Flag("prefix_caching_hash_algo", str, "Hash of a block's tokens."),
    ),
    "Not built yet": (
        Flag("kv_offloading_backend", click.Choice(KV_OFFLOADING_BACKENDS), "Who offloads KV blocks."),
        Flag("max_num_queued_reqs", int, "Requests that the API server takes in."),
        Flag("max_num_queued_tokens", whole_number, "Prompt tokens that the API server takes in."),
        Flag("stream_interval", int, "Tokens sent together."),
        Flag("pipeline_parallel_size", int, "Pipeline stages.", ("-pp",)),
        Flag("data_parallel_size", int, "Replicas.", ("-dp",)),
    ),
}

OURS: Mapping[str, tuple[Flag, ...]] = {
    "Preemption": (
        Flag(
            "kv_preemption",
            click.Choice(KV_PREEMPTIONS),
            "What becomes of a preempted request's KV: computed again (V1's default); found in host memory, where all"
            " KV is copied (V1 with --kv-offloading-size); or swapped there and back, as V0 did: a counterfactual.",
        ),
        Flag(
            "swap_space", float, f"GiB of host memory per GPU, with --kv-preemption swap. Default: {SWAP_SPACE_GIB:g}."
        ),
        Flag(
            "offload_prompt_only", bool, "Offload KV of prompts only, not of generated text. Default: yes, as vLLM's."
        ),
        Flag("pcie_bandwidth", float, "GB/s to or from host memory. Default: by GPU, else 50."),
        Flag("pcie_latency", float, "Microseconds from a copy's launch to its first byte. Default: 10."),
    ),
    "Drafts": (
        Flag("draft_acceptance", numbers, "How often a draft is accepted: vLLM's log line of rates, or one number."),
        Flag("drafter_cost", float, "Time of one pass of the drafter, as a share of the model's own."),
    ),
}
"""Flags that no vLLM of today has."""

_SWAP = "V1 preempts by recompute only"
_MULTI_STEP = "multi-step scheduling ended with V0; --async-scheduling overlaps the host's work instead"
_PARTIAL = "V1 never read it; use --long-prefill-token-threshold to keep long prompts from filling a step"

REMOVED: Mapping[str, str] = {
    "swap_space": SWAP_SPACE_GONE,
    "preemption_mode": f"gone since vLLM 0.11: {_SWAP}",
    "max_num_partial_prefills": f"gone since July 2026 (vLLM pull request 49244): {_PARTIAL}",
    "max_long_partial_prefills": f"gone since July 2026 (vLLM pull request 49244): {_PARTIAL}",
    "num_scheduler_steps": f"gone since vLLM 0.10.1: {_MULTI_STEP}",
    "multi_step_stream_outputs": f"gone since vLLM 0.10.1: {_MULTI_STEP}",
    "use_v2_block_manager": "without a meaning since vLLM 0.6.4, and gone: there is one block manager",
    "num_lookahead_slots": "gone since vLLM 0.12: speculative decoding counts its own slots",
    "delay_factor": "gone since vLLM 0.11: nothing delays admission; see --watermark and --max-num-active-seqs",
    "scheduler_delay_factor": "gone since vLLM 0.11: nothing delays admission; see --watermark, --max-num-active-seqs",
    "disable_async_output_proc": "gone since vLLM 0.11: it was part of V0",
}
"""Flags of earlier versions, each with since when it is gone and what there is instead.

Source: vLLM pull requests 8704, 22138, 22779, 25334, 29000, 36216, 49244.
"""


class GroupedOption(click.Option):
    """An option that knows its section of the help text."""

    def __init__(self, *args: Any, group: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.group = group


class SwapSpace(GroupedOption):
    """Removed from vLLM, with or without a value; back where `--kv-preemption swap` is."""

    def handle_parse_result(
        self, ctx: click.Context, opts: Mapping[str, Any], args: list[str]
    ) -> tuple[Any, list[str]]:
        """Refuse it before anybody looks at what was said otherwise."""
        if "swap_space" in opts and opts.get("kv_preemption") != "swap":
            raise InputError(f"--swap-space: {REMOVED['swap_space']}")
        return super().handle_parse_result(ctx, opts, args)


class EngineCommand(click.Command):
    """A command whose help has a section for each group of `GroupedOption`s, after its other options.

    It takes vLLM's spellings, see `vllm_args`.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Rewrite what click does not know."""
        return super().parse_args(ctx, rewritten(args))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section per group."""
        sections: dict[str, list[tuple[str, str]]] = {"Options": []}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is not None:
                group = param.group if isinstance(param, GroupedOption) else "Options"
                sections.setdefault(group, []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


def given(ctx: click.Context, *names: str) -> list[str]:
    """The flags among `names` that the command line says, as they are spelt there."""
    unset = (None, click.core.ParameterSource.DEFAULT, click.core.ParameterSource.DEFAULT_MAP)
    return [f"--{name.replace('_', '-')}" for name in names if ctx.get_parameter_source(name) not in unset]


def engine_options(function: Decorated, *, without: Collection[str] = ()) -> Decorated:
    """Add all flags to a click command (made with `cls=EngineCommand` for grouped help), but for those that it has in
    a way of its own (`without`, by name).

    The command gets each flag's value under its name with underscores, None where it was not given: hand them to
    `engine_config`. A flag that vLLM no longer has fails with what replaced it.
    """
    for name in REMOVED:
        if name != "swap_space":
            function = _removed(name)(function)
    sections = {f"vLLM: {group}": flags for group, flags in GROUPS.items()} | dict(OURS)
    for section, flags in reversed(list(sections.items())):
        for flag in reversed(flags):
            if flag.name not in without:
                function = _option(section, flag)(function)
    return function


def engine_config(kwargs: Mapping[str, Any]) -> EngineConfig:
    """The config that a command's keyword arguments say. Raises InputError for a value that vLLM refuses."""
    return EngineConfig(**{field.name: kwargs[field.name] for field in fields(EngineConfig) if field.name in kwargs})


def _option(group: str, flag: Flag) -> Callable[[Decorated], Decorated]:
    dashed = flag.name.replace("_", "-")
    spelled = f"--{dashed}/--no-{dashed}" if flag.kind is bool else f"--{dashed}"
    kind: dict[str, Any] = {} if flag.kind is bool else {"type": flag.kind}
    kind |= {"metavar": _METAVARS[flag.kind]} if flag.kind in _METAVARS else {}
    kind |= {"metavar": "JSON"} if spelled in JSON_FLAGS else {}
    names = (flag.name, spelled, *flag.aliases)
    if flag.name == "swap_space":
        kind |= {"cls": SwapSpace, "is_flag": False, "flag_value": "", "is_eager": True}
    return click.option(*names, default=None, help=_help(flag), group=group, **{"cls": GroupedOption, **kind})


_METAVARS = {whole_number: "INTEGER", length: "INTEGER", numbers: "RATES", sizes: "SIZES"}


def _help(flag: Flag) -> str:
    if flag.name in NOT_BUILT:
        only = NOT_BUILT[flag.name].only
        return flag.help if only is None else f"{flag.help} Only {str(only).lower()} is simulated."
    if flag.name in NO_EFFECT or flag.name not in VLLM_DEFAULTS:
        return flag.help
    default = VLLM_DEFAULTS[flag.name]
    return f"{flag.help} Default: {('no', 'yes')[default] if isinstance(default, bool) else default}."


def _removed(name: str) -> Callable[[Decorated], Decorated]:
    dashed = f"--{name.replace('_', '-')}"

    def refuse(_ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
        if value is not None:
            raise InputError(f"{dashed}: {REMOVED[name]}")

    # With `flag_value` it takes a value or none, as some of these did and others did not; eager, to be told first.
    return click.option(
        dashed, is_flag=False, flag_value="", hidden=True, expose_value=False, is_eager=True, callback=refuse
    )
