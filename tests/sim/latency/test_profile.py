"""Profiles: what ships says what its source measured; every bad file is told in one line."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from sim.core.config import SchedulerConfig
from sim.errors import InputError
from sim.experiment import settle
from sim.latency import DEFAULT_PROFILE, FusedLaw, Profile, StepShape, profile_names
from sim.latency.profile import PROFILES, SCHEMA_VERSION

OLD_S = (0.011059145425527805, 0.025424094874450957, 0.17834141469452927)

CONTEXT = 1050
"""Mean context of the source's decodes: prompts of 986 tokens, 128 output tokens."""


@pytest.fixture
def shipped() -> Profile:
    return Profile.load(DEFAULT_PROFILE)


@pytest.fixture
def document() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((PROFILES / f"{DEFAULT_PROFILE}.json").read_text(encoding="utf-8"))
    return document


def step_ms(profile: Profile, decodes: int, prompts: int = 0, prompt: int = 986) -> float:
    tokens = prompts * prompt
    shape = StepShape(
        decodes + tokens, decodes + prompts, decodes * CONTEXT, tokens, tokens * prompt / 2, decodes + prompts
    )
    assert profile.outside(shape) is None
    return 1e3 * sum(profile.step_time(shape))


# What the source (inference-sim/residency-vllm, H100, Qwen3-14B, vLLM 0.23) measured.


@pytest.mark.parametrize("decodes", range(1, 10))
def test_decode_steps_of_the_source(shipped: Profile, decodes: int) -> None:
    """Pure decode of n requests took 11.15 + 0.103 n ms."""
    assert step_ms(shipped, decodes) == pytest.approx(11.15 + 0.103 * decodes, rel=0.02)


@pytest.mark.parametrize("decodes", range(1, 9))
def test_prompt_steps_of_the_source(shipped: Profile, decodes: int) -> None:
    """A step with one 986-token prompt took 39.7 + 0.23 n ms (n requests got a token, the prompt's among them): mostly
    lone prompts, on a cooler GPU than under the sustained load that the profile is for, hence up to 6 % quicker."""
    measured = 39.7 + 0.23 * (decodes + 1)
    assert measured < step_ms(shipped, decodes, prompts=1) < 1.06 * measured


def test_a_step_of_four_prompts(shipped: Profile) -> None:
    """3918 prompt tokens took 166 ms. It was not fitted."""
    assert step_ms(shipped, 0, prompts=4, prompt=3918 // 4) == pytest.approx(166, rel=0.03)


def test_the_sources_server(shipped: Profile) -> None:
    """Budget 8192, 18,038 blocks of 16, chunked prefill, prefix caching; vLLM's count includes the null block."""
    config = settle(None, shipped)
    assert isinstance(config, SchedulerConfig)
    assert (config.max_num_batched_tokens, config.num_gpu_blocks, config.block_size) == (8192, 18_038, 16)
    assert config.enable_chunked_prefill
    assert config.enable_prefix_caching
    assert config.max_num_seqs >= 256, "the client had 256 in flight, and all of them ran"


def test_facts_of_the_machine(shipped: Profile) -> None:
    """40 layers, 8 KV heads of 128, K and V in BF16; the cache and the weights fit in 80 GB."""
    assert shipped.kv_bytes_per_token == 40 * 8 * 128 * 2 * 2
    assert 18_038 * 16 * shipped.kv_bytes_per_token + 14.77e9 * 2 < shipped.device_memory_bytes
    assert (shipped.engine, shipped.engine_version, shipped.gpu, shipped.model) == (
        "vllm",
        "0.23.0",
        "h100",
        "qwen3-14b",
    )


def test_provenance_is_told(shipped: Profile) -> None:
    assert "inference-sim/residency-vllm" in shipped.provenance["sources"]["served steps"]
    assert shipped.provenance["command"].startswith("python -m calibrate.")
    assert shipped.provenance["date"]
    assert all(size["median_abs"] < 0.04 for size in shipped.residuals.values())


def test_shipped_names() -> None:
    assert DEFAULT_PROFILE in profile_names()
    for name in profile_names():
        assert Profile.load(name).name == name


@pytest.mark.parametrize("name", profile_names())
def test_a_profile_can_be_sent_to_another_process(name: str) -> None:
    profile = Profile.load(name)
    assert pickle.loads(pickle.dumps(profile)) == profile


# Domain


@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        (StepShape(40_000, 1, 0, 40_000, 1e8, 1), "num_tokens 40000 is outside [0, 32768]"),
        (StepShape(300, 300, 600_000, 0, 0.0, 300), "decode_context 600000 is outside"),
        (StepShape(8192, 1, 0, 8192, 1e9, 1), "chunk_pairs 1e+09 is outside"),
    ],
)
def test_outside_names_the_axis(shipped: Profile, shape: StepShape, axis: str) -> None:
    assert (shipped.outside(shape) or "").startswith(axis)
    clipped = shipped.domain.clip(shape)
    assert shipped.outside(clipped) is None
    assert sum(shipped.step_time(clipped)) < sum(shipped.step_time(shape))


def test_clip_leaves_a_shape_inside_alone(shipped: Profile) -> None:
    inside = StepShape(990, 5, 4 * CONTEXT, 986, 986**2 / 2, 5)
    assert shipped.domain.clip(inside) == inside


# Files


def test_round_trip(shipped: Profile, tmp_path: Path) -> None:
    shipped.save(tmp_path / "p.json")
    assert Profile.load(tmp_path / "p.json") == shipped


def test_fields_of_a_later_elpase_are_passed_over(document: dict[str, Any], tmp_path: Path) -> None:
    """A new optional field does not raise the schema version, and an old elpase reads the file all the same."""
    document["something_new"] = {"a": 1}
    document["client"]["new_term_s"] = 1.0
    assert load(document, tmp_path) == Profile.load(DEFAULT_PROFILE)


def test_a_profile_of_the_first_schema_prices_as_it_did() -> None:
    """The file as the first version shipped it. Times: what that version's law gave for them."""
    old = Profile.load(Path(__file__).parent / "golden" / "h100-qwen3-14b.schema1.json")
    assert (old.law.graphs.sizes, old.law.eager_s, old.law.elementwise_s) == ((), 0.0, 0.0)
    assert (old.held_out, old.model_config) == ({}, {})
    assert old.known_gpu() is not None
    assert old.known_model().num_layers == 40
    for shape, seconds in [
        (StepShape(1, 1, 1050, 0, 0.0, 1), OLD_S[0]),
        (StepShape(200, 200, 210_000, 0, 0.0, 200), OLD_S[1]),
        (StepShape(4000, 9, 8400, 3992, 3992**2 / 2, 9), OLD_S[2]),
    ]:
        assert sum(old.step_time(shape)) == pytest.approx(seconds, rel=1e-9)


def test_what_a_newer_profile_may_say_wrongly(document: dict[str, Any], tmp_path: Path) -> None:
    document["law"]["graphs"] = {"sizes": [4, 2], "mixed": True}
    assert "law.graphs.sizes: got [4, 2], expected ascending" in error(document, tmp_path)
    document["law"]["graphs"] = {"sizes": "all", "mixed": True}
    assert "law.graphs.sizes: got 'all', expected a list" in error(document, tmp_path)
    document["law"]["graphs"] = {"sizes": [1], "mixed": 1}
    assert "law.graphs.mixed: got 1, expected true or false" in error(document, tmp_path)


def test_a_device_and_a_model_that_no_catalogue_has(document: dict[str, Any], tmp_path: Path) -> None:
    """A CPU and a small model: the profile carries the model's config."""
    config = {
        "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
        "intermediate_size": 128, "vocab_size": 512, "max_position_embeddings": 256,
    }  # fmt: skip
    document |= {"gpu": "AMD EPYC", "model": "tiny", "model_config": config, "dtype": "float32"}
    document["server"] = {"max_num_batched_tokens": 64, "max_num_seqs": 8, "num_gpu_blocks_override": 100}
    profile = load(document, tmp_path)
    assert profile.known_gpu() is None
    assert (profile.known_model().num_layers, profile.known_model().dtype) == (2, "float32")
    assert settle(None, profile).max_num_batched_tokens == 64


def test_a_profile_of_before_a_coefficient_still_loads(document: dict[str, Any], tmp_path: Path) -> None:
    for later in ("tile_waste", "host_step_s", "host_row_s"):
        del document["law"]["coefficients"][later]
    assert load(document, tmp_path).law.tile_waste == 0.0


def load(document: object, tmp_path: Path) -> Profile:
    file = tmp_path / "p.json"
    file.write_text(json.dumps(document), encoding="utf-8")
    return Profile.load(file)


def error(document: object, tmp_path: Path) -> str:
    with pytest.raises(InputError) as caught:
        load(document, tmp_path)
    message = str(caught.value)
    assert message.startswith(str(tmp_path / "p.json"))
    assert "\n" not in message
    return message


def test_unknown_name() -> None:
    with pytest.raises(InputError, match=r"profile: got 'h100-qwen3-15b', expected .*one of .*h100-qwen3-14b"):
        Profile.load("h100-qwen3-15b")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b'{"schema_version": 1,\n "name": }', ":2: not JSON"),
        (b"", ":1: not JSON"),
        (b"\x89PNG\xff\xfe\x00", "not JSON: not text"),
        (b"[1, 2]", "expected a JSON object"),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_not_a_profile_at_all(content: bytes, told: str, tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    file.write_bytes(content)
    with pytest.raises(InputError) as caught:
        Profile.load(file)
    assert told in str(caught.value)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


REQUIRED = [
    ("schema_version",),
    ("name",),
    ("model",),
    ("gpu",),
    ("tensor_parallel_size",),
    ("dtype",),
    ("engine",),
    ("engine_version",),
    ("domain",),
    ("domain", "decode_context"),
    ("client", "request_s"),
    ("server",),
    ("kv_bytes_per_token",),
    ("device_memory_bytes",),
    ("residuals",),
    ("provenance",),
    ("law",),
    ("law", "kind"),
    ("law", "coefficients", "token_s"),
    ("law", "coefficients", "token_s", "value"),
    ("law", "coefficients", "token_s", "unit"),
]


def put(document: dict[str, Any], path: tuple[str, ...], value: object) -> dict[str, Any]:
    table = document
    for key in path[:-1]:
        table = table[key]
    table[path[-1]] = value
    return document


@pytest.mark.parametrize("path", REQUIRED, ids=".".join)
def test_missing_field(path: tuple[str, ...], document: dict[str, Any], tmp_path: Path) -> None:
    message = error(put(document, path, None), tmp_path)
    assert f": {'.'.join(path)}: missing, expected " in message


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("schema_version", "1", "an integer >= 1"),
        ("schema_version", True, "an integer >= 1"),
        ("name", 3, "a text"),
        ("tensor_parallel_size", 0, "an integer >= 1"),
        ("tensor_parallel_size", 1.5, "an integer >= 1"),
        ("kv_bytes_per_token", -1, "an integer >= 1"),
        ("client", [], "an object"),
        ("client.request_s", "8 ms", "a finite number"),
        ("client.request_s", -0.1, "a finite number"),
        ("client.request_s", float("nan"), "a finite number"),
        ("client.request_s", float("inf"), "a finite number"),
        ("domain.num_tokens", [1], "a pair [low, high]"),
        ("domain.num_tokens", [5, 1], "a pair [low, high]"),
        ("domain.num_tokens", ["1", "5"], "a pair [low, high]"),
        ("server.block_size", [16], "a flag's value"),
        ("server.compilation_config", {}, "a flag's value"),
        ("server.compilation_config", "{", "a JSON object"),
        ("server.compilation_config", "[]", "a JSON object"),
        ("server.compilation_config", '{"cudagraph_mod": "FULL"}', "a key that vLLM 0.32 has: mode, cudagraph_mode"),
        ("server.compilation_config", '{"cudagraph_mode": "MOST"}', "as its cudagraph_mode one of NONE, PIECEWISE"),
        ("server.speculative_config", "3", "a JSON object"),
        ("server.speculative_config", '{"methd": "ngram"}', "a key that vLLM 0.32 has: method"),
        ("server.speculative_config", '{"method": "guess"}', "as its method one of ngram, ngram_gpu"),
        (
            "server.speculative_config",
            '{"num_speculative_tokens": 129}',
            "as its num_speculative_tokens a whole number",
        ),
        ("law.kind", "neural", "'fused'"),
        ("law.coefficients.token_s", 4e-5, "an object"),
        ("law.coefficients.token_s.value", -4e-5, "a finite number from 0"),
        ("law.coefficients.token_s.unit", "ms / token", "'s / token'"),
        ("law.coefficients.sharpness.value", 0.5, "a finite number from 1"),
        ("law.coefficients.tile_waste.value", 2, "a finite number from 0 to 1"),
    ],
)
def test_wrong_value(path: str, value: object, expected: str, document: dict[str, Any], tmp_path: Path) -> None:
    message = error(put(document, tuple(path.split(".")), value), tmp_path)
    assert f": {path}: got " in message
    assert f"expected {expected}" in message


def test_a_server_may_say_objects_as_their_text(document: dict[str, Any], tmp_path: Path) -> None:
    """As `vllm serve` takes them."""
    file = tmp_path / "p.json"
    server = {"compilation_config": '{"cudagraph_mode": "NONE"}', "speculative_config": '{"method": "ngram"}'}
    file.write_text(json.dumps({**document, "server": server}))
    assert Profile.load(file).server == server


def test_newer_schema(document: dict[str, Any], tmp_path: Path) -> None:
    message = error(put(document, ("schema_version",), SCHEMA_VERSION + 1), tmp_path)
    assert f"schema_version: got {SCHEMA_VERSION + 1}, expected at most {SCHEMA_VERSION}" in message
    assert "newer elpase" in message


def test_a_law_from_elsewhere(tmp_path: Path) -> None:
    """18.5 ms and 0.0505 ms for each token, whatever the step; saved and loaded as any other."""
    law = FusedLaw.linear(step_s=18.5e-3, token_s=50.5e-6)
    profile = Profile.of_law("stated", law, model="llama-3.2-3b", gpu="rtx5090", server={"max_num_seqs": 4})
    shape = StepShape(2048, 3, decode_context=10**6, chunk_tokens=2046, chunk_pairs=1e12, num_sampled=3)
    assert sum(profile.step_time(shape)) == pytest.approx(0.0185 + 2048 * 50.5e-6)
    assert profile.outside(shape) is None
    # 28 layers, 8 KV heads of 128, K and V in 2 bytes.
    assert profile.kv_bytes_per_token == 28 * 8 * 128 * 2 * 2
    profile.save(tmp_path / "law.json")
    assert Profile.load(tmp_path / "law.json") == profile
