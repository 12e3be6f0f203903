"""From flags to numbers: vLLM 0.32's defaults, its refusals, and what stands above what."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.cli.flags import human_int
from sim.config import EngineConfig, batch_defaults
from sim.errors import InputError
from sim.specs import gpu_spec, model_spec
from sim.without_effect import NOT_BUILT

H100 = gpu_spec("h100")
QWEN = model_spec("qwen3-14b")
MEASURED = {
    "max_num_batched_tokens": 8192,
    "num_gpu_blocks_override": 18_038,
    "block_size": 16,
    "async_scheduling": True,
}


def resolve(gpu: str = "h100", **flags: Any) -> Any:
    return EngineConfig(**{"num_gpu_blocks_override": 20_000, **flags}).resolve(gpu=gpu_spec(gpu), model=QWEN)


@pytest.mark.parametrize(
    ("gpu", "tokens", "seqs"),
    [
        ("b200", 16384, 1024),
        ("h200", 8192, 1024),
        ("h100", 8192, 1024),
        ("rtx-pro-6000", 8192, 1024),
        ("a100-80gb", 2048, 256),
        ("l40s", 2048, 256),
        ("rtx4090", 2048, 256),
    ],
)
def test_budgets_by_gpu(gpu: str, tokens: int, seqs: int) -> None:
    assert batch_defaults(gpu_spec(gpu)) == (tokens, seqs)
    config = resolve(gpu)
    assert (config.max_num_batched_tokens, config.max_num_seqs) == (tokens, seqs)


@pytest.mark.parametrize(
    ("flags", "tokens", "seqs"),
    [
        ({"max_num_batched_tokens": 512}, 512, 512),  # unset seqs shrink to the budget
        ({"max_num_seqs": 1, "max_model_len": 1000}, 1000, 1),  # an unset budget, to what seqs can fill
        ({"enable_chunked_prefill": False}, 40_960, 1024),  # an unset budget, to a whole prompt
        ({"enable_chunked_prefill": False, "max_num_batched_tokens": 65_536}, 65_536, 1024),
        ({"performance_mode": "throughput"}, 16_384, 2048),
        ({"performance_mode": "throughput", "max_num_seqs": 64}, 16_384, 64),
        ({"performance_mode": "interactivity"}, 8192, 1024),
    ],
)
def test_what_is_left_open_is_fitted(flags: dict[str, Any], tokens: int, seqs: int) -> None:
    config = resolve(**flags)
    assert (config.max_num_batched_tokens, config.max_num_seqs) == (tokens, seqs)


def test_defaults_that_depend_on_nothing() -> None:
    config = resolve()
    assert (config.block_size, config.policy, config.watermark) == (16, "fcfs", 0.0)
    assert config.enable_prefix_caching
    assert config.enable_chunked_prefill
    assert config.scheduler_reserve_full_isl
    assert config.long_prefill_token_threshold == 0
    assert config.max_model_len == 40_960


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"max_num_batched_tokens": 100, "max_num_seqs": 101}, "max_num_batched_tokens: got 100"),
        ({"max_num_active_seqs": 2000}, "max_num_active_seqs: got 2000"),
        ({"enable_chunked_prefill": False, "max_num_batched_tokens": 8192}, "max_num_batched_tokens: got 8192"),
        ({"long_prefill_token_threshold": 50_000}, "long_prefill_token_threshold: got 50000"),
        ({"max_model_len": 40_961}, "max_model_len: got 40961, expected at most 40960, .* qwen3-14b's config.json"),
        ({"num_gpu_blocks_override": 2560}, "max_model_len: got 40960, expected at most 40944, .* 2560 KV blocks"),
        ({"watermark": 1.0}, r"watermark: got 1.0, expected a fraction in \[0, 1\)"),
        ({"watermark": float("nan")}, "watermark: got nan"),
        ({"gpu_memory_utilization": 0.0}, r"gpu_memory_utilization: got 0.0, expected a fraction in \(0, 1\]"),
        ({"gpu_memory_utilization": 1.01}, "gpu_memory_utilization: got 1.01"),
        ({"max_num_seqs": 0}, "max_num_seqs: got 0, expected 1 or more"),
        ({"max_num_batched_tokens": -1}, "max_num_batched_tokens: got -1"),
        ({"max_model_len": 0}, "max_model_len: got 0, expected 1 or more, or auto"),
        ({"block_size": 17}, "block_size: got 17, expected a multiple of 16"),
        ({"scheduling_policy": "lifo"}, "scheduling_policy: got 'lifo', expected one of fcfs, priority"),
        ({"performance_mode": "fast"}, "performance_mode: got 'fast'"),
        ({"kv_cache_dtype": "int1"}, "kv_cache_dtype: got 'int1'"),
        ({"prefill_schedule_interval": 0}, "prefill_schedule_interval: got 0"),
    ],
)
def test_vllms_refusals(flags: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        resolve(**flags)


def test_the_longest_request_may_fill_all_blocks_but_the_null_block() -> None:
    assert resolve(num_gpu_blocks_override=2561).max_model_len == 40_960


ASKED = {
    "async_scheduling": True,
    "speculative_config": '{"method": "ngram"}',
    "spec_method": "ngram",
    "spec_model": "a/drafter",
    "spec_tokens": 4,
    "kv_offloading_backend": "lmcache",
    "max_num_queued_reqs": 8,
    "max_num_queued_tokens": 8,
    "stream_interval": 2,
    "pipeline_parallel_size": 2,
    "data_parallel_size": 2,
}


@pytest.mark.parametrize("name", NOT_BUILT)
def test_what_is_not_built_is_refused_when_asked_for(name: str) -> None:
    with pytest.raises(InputError, match=f"--{name.replace('_', '-')}: not built yet: "):
        resolve(**{name: ASKED[name]})
    assert resolve(**{name: NOT_BUILT[name].only}) == resolve()


def test_flags_without_effect_are_accepted() -> None:
    assert resolve(prefill_schedule_interval=4) == resolve()


class TestMeasured:
    """The settings that a profile was measured under stand between flags and vLLM's defaults."""

    def settle(self, **flags: Any) -> Any:
        return EngineConfig(**flags).settle(gpu=H100, model=QWEN, server_defaults=MEASURED)

    def test_they_fill_what_no_flag_says(self) -> None:
        settled = self.settle()
        assert (settled.scheduler.max_num_batched_tokens, settled.scheduler.num_gpu_blocks) == (8192, 18_038)
        assert settled.kv.origin == "measured with the profile"

    def test_flags_stand_above(self) -> None:
        assert self.settle(max_num_batched_tokens=2048).scheduler.max_num_batched_tokens == 2048
        assert self.settle(num_gpu_blocks_override=5000).scheduler.num_gpu_blocks == 5000

    def test_measured_seqs_shrink_to_a_smaller_budget_as_unset_ones_do(self) -> None:
        config = EngineConfig(max_num_batched_tokens=128).resolve(
            gpu=H100, model=QWEN, server_defaults={**MEASURED, "max_num_seqs": 256}
        )
        assert config.max_num_seqs == 128

    def test_blocks_of_another_size_share_the_same_memory(self) -> None:
        assert self.settle(block_size=32).scheduler.num_gpu_blocks == 9019

    @pytest.mark.parametrize(
        "flags", [{"gpu_memory_utilization": 0.5}, {"kv_cache_dtype": "fp8"}, {"tensor_parallel_size": 2}]
    )
    def test_another_memory_makes_the_measured_blocks_worthless(self, flags: dict[str, Any]) -> None:
        settled = self.settle(**flags)
        assert settled.kv.origin == "estimated"
        assert settled.scheduler.num_gpu_blocks != 18_038

    def test_saying_the_default_again_changes_nothing(self) -> None:
        assert self.settle(tensor_parallel_size=1, kv_cache_dtype="auto").kv.origin == "measured with the profile"

    def test_kv_memory_is_exact(self) -> None:
        settled = self.settle(kv_cache_memory_bytes=18_000 * 16 * 163_840 + 1)
        assert (settled.scheduler.num_gpu_blocks, settled.kv.origin) == (18_000, "--kv-cache-memory-bytes")

    def test_names_that_are_no_flags_are_passed_over(self) -> None:
        EngineConfig().resolve(gpu=H100, model=QWEN, server_defaults={**MEASURED, "enforce_eager": False})


def test_auto_length_fits_the_cache() -> None:
    assert resolve(max_model_len=-1, num_gpu_blocks_override=1000).max_model_len == 999 * 16
    assert resolve(max_model_len=-1).max_model_len == 40_960


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({}, "max_model_len: expected a length"),
        ({"max_model_len": 4096}, "max_num_batched_tokens: expected a number, as no GPU"),
        ({"max_model_len": 4096, "max_num_batched_tokens": 2048}, "max_num_seqs: expected a number, as no GPU"),
        (
            {"max_model_len": 4096, "max_num_batched_tokens": 2048, "max_num_seqs": 8},
            "num_gpu_blocks_override: expected",
        ),
    ],
)
def test_without_gpu_and_model_flags_must_say(flags: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        EngineConfig(**flags).resolve()


@given(
    gpu=st.sampled_from(["b200", "h100", "a100-80gb", "l4"]),
    length=st.integers(1, 40_960),
    chunked=st.booleans(),
    seqs=st.none() | st.integers(1, 4096),
)
def test_open_settings_never_contradict(gpu: str, length: int, chunked: bool, seqs: int | None) -> None:
    """Whatever else is said, defaults alone never make a server that vLLM refuses, unless seqs alone is too much."""
    flags = {"max_model_len": length, "enable_chunked_prefill": chunked, "max_num_seqs": seqs}
    try:
        config = resolve(gpu, **flags)
    except InputError:
        assert seqs is not None
        assert seqs > batch_defaults(gpu_spec(gpu))[0]
        return
    assert config.max_num_seqs <= config.max_num_batched_tokens <= config.max_num_seqs * length


@pytest.mark.parametrize(
    ("text", "value"),
    [("8192", 8192), (" 16 ", 16), ("1k", 1000), ("1K", 1024), ("25.6k", 25_600), ("2M", 2**21), ("1g", 10**9),
     ("3T", 3 << 40), ("-1", -1)],
)  # fmt: skip
def test_human_int(text: str, value: int) -> None:
    assert human_int(text) == value


@pytest.mark.parametrize("text", ["", "k", "1.5K", "1.5", "8 k", "1kk", "1e3", "nan", "8192 tokens", "9" * 400 + "k"])
def test_what_is_no_number(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        human_int(text)
