"""The flags of `vllm serve` on any verb: spelled as there, grouped in the help, removed ones explained."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import click
import pytest

from sim.cli.flags import GROUPS, OURS, REMOVED, EngineCommand, engine_config, engine_options
from sim.config import EngineConfig
from sim.errors import InputError


@click.command(cls=EngineCommand, context_settings={"token_normalize_func": lambda name: name.replace("_", "-")})
@click.option("--out", help="Elsewhere.")
@engine_options
def verb(out: str | None, **flags: Any) -> EngineConfig:
    return engine_config(flags)


def parse(*args: str) -> EngineConfig:
    config: EngineConfig = verb.main(list(args), standalone_mode=False)
    return config


def test_no_flag_says_nothing() -> None:
    assert parse() == EngineConfig()


def test_each_field_has_its_flag() -> None:
    named = [flag.name for flags in (*GROUPS.values(), *OURS.values()) for flag in flags]
    assert sorted(named) == sorted(field.name for field in fields(EngineConfig))


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--max-num-seqs", "64"], {"max_num_seqs": 64}),
        (["--max_num_seqs", "64"], {"max_num_seqs": 64}),
        (["--max-num-batched-tokens=8k"], {"max_num_batched_tokens": 8000}),
        (["--max-num-batched-tokens", "8K"], {"max_num_batched_tokens": 8192}),
        (["--max-model-len", "auto"], {"max_model_len": -1}),
        (["--max-model-len", "-1"], {"max_model_len": -1}),
        (["--kv-cache-memory-bytes", "25.6g"], {"kv_cache_memory_bytes": 25_600_000_000}),
        (["--no-enable-prefix-caching"], {"enable_prefix_caching": False}),
        (["--enable_prefix_caching"], {"enable_prefix_caching": True}),
        (["--no-scheduler-reserve-full-isl"], {"scheduler_reserve_full_isl": False}),
        (["--kv-cache-dtype", "fp8_e4m3"], {"kv_cache_dtype": "fp8_e4m3"}),
        (["--device-memory-utilization", "0.5"], {"gpu_memory_utilization": 0.5}),
        (["-tp", "4"], {"tensor_parallel_size": 4}),
        (["--tp", "4"], {"tensor_parallel_size": 4}),
        (["--no-async-scheduling"], {"async_scheduling": False}),
        (["-sc", "{}"], {"speculative_config": "{}"}),
    ],
)
def test_spellings(args: list[str], expected: dict[str, Any]) -> None:
    assert parse(*args) == EngineConfig(**expected)


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["--max-num-seqs", "1k"], "not a valid integer"),  # vLLM takes suffixes for tokens and bytes only
        (["--max-num-batched-tokens", "1.5K"], "'1.5K' is not a whole number such as 8192, 8k"),
        (["--max-num-batched-tokens", "many"], "'many' is not a whole number"),
        (["--watermark", "low"], "not a valid float"),
        (["--scheduling-policy", "lifo"], "'lifo' is not one of 'fcfs', 'priority'"),
        (["--max-num-seqz", "4"], "No such option"),
        (["--max-num-seqs"], "requires an argument"),
    ],
)
def test_bad_values(args: list[str], told: str) -> None:
    with pytest.raises(click.UsageError) as error:
        parse(*args)
    assert told in error.value.format_message()


def test_ranges_are_vllms() -> None:
    with pytest.raises(InputError, match=r"watermark: got 1\.5"):
        parse("--watermark", "1.5")


@pytest.mark.parametrize("name", REMOVED)
@pytest.mark.parametrize("value", [[], ["4"]])
def test_removed_flags_say_since_when_and_what_instead(name: str, value: list[str]) -> None:
    """Also without their value, and before any other complaint."""
    flag = f"--{name.replace('_', '-')}"
    with pytest.raises(InputError) as error:
        parse("--max-num-seqs", "x", flag, *value)
    assert str(error.value).startswith(f"{flag}: ")
    assert str(error.value) == f"{flag}: {REMOVED[name]}"


@pytest.mark.parametrize(
    "args",
    [["--swap-space", "8", "--kv-preemption", "swap"], ["--kv_preemption=swap", "--swap_space=8"]],
)
def test_swap_space_is_back_where_swapping_is(args: list[str]) -> None:
    assert parse(*args) == EngineConfig(kv_preemption="swap", swap_space=8.0)


def test_and_only_there() -> None:
    with pytest.raises(InputError, match=r"^--swap-space: gone since vLLM 0\.18"):
        parse("--kv-preemption", "recompute", "--swap-space", "8")
    with pytest.raises(click.BadParameter, match="'' is not a valid float"):
        parse("--kv-preemption", "swap", "--swap-space")


def test_help_shows_groups_and_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(click.exceptions.Exit):
        verb.main(["--help"], standalone_mode=False)
        raise click.exceptions.Exit
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.index("--out") < shown.index("vLLM: Scheduler:") < shown.index("vLLM: KV cache:")
    assert "Share of the GPU that vLLM takes. Default: 0.92." in shown
    assert "Longest prompt plus output. Default: the model's own." in shown
    assert "num-scheduler-steps" not in shown
