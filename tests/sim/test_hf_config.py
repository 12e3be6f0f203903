"""Any config.json of a dense decoder is read as vLLM reads it; what is not modelled is refused by its field."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sim.errors import InputError
from sim.hf_config import HfConfig
from sim.specs import ModelSpec

PLAIN: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 4, "num_attention_heads": 16,
    "num_key_value_heads": 4, "intermediate_size": 8192, "vocab_size": 1000, "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16", "tie_word_embeddings": False,
}  # fmt: skip


def without(*names: str, **more: Any) -> dict[str, Any]:
    return {name: value for name, value in PLAIN.items() if name not in names} | more


def test_missing_fields_have_the_defaults_of_the_field() -> None:
    spec = ModelSpec.from_hf_config(without("num_key_value_heads"))
    assert (spec.num_kv_heads, spec.head_size) == (16, 128)


def test_head_dim_need_not_be_hidden_over_heads() -> None:
    assert ModelSpec.from_hf_config(PLAIN | {"head_dim": 64}).head_size == 64
    assert ModelSpec.from_hf_config(PLAIN | {"head_dim": None}).head_size == 128


def test_the_decoder_of_a_multimodal_model_is_nested() -> None:
    nested = {"model_type": "llava", "hidden_size": 1, "torch_dtype": "float16", "text_config": without("torch_dtype")}
    spec = ModelSpec.from_hf_config(nested)
    assert (spec.hidden_size, spec.num_layers, spec.dtype) == (2048, 4, "float16")


def test_gpt2_names_and_two_matrices() -> None:
    """GPT-2 XL: 1,557,611,200 parameters; biases and learned positions, under 0.2 %, are not counted."""
    config = {
        "model_type": "gpt2",
        "n_embd": 1600,
        "n_layer": 48,
        "n_head": 25,
        "vocab_size": 50257,
        "n_positions": 1024,
    }
    spec = ModelSpec.from_hf_config(config)
    assert spec.num_parameters == pytest.approx(1_557_611_200, rel=0.003)
    assert spec.max_model_len == 1024


def test_tying_saves_one_embedding() -> None:
    tied = ModelSpec.from_hf_config(PLAIN | {"tie_word_embeddings": True})
    assert ModelSpec.from_hf_config(PLAIN).num_parameters - tied.num_parameters == 1000 * 2048


@pytest.mark.parametrize(
    ("stated", "expected"),
    [("bfloat16", "bfloat16"), ("torch.float16", "float16"), ("float32", "bfloat16"), (None, "bfloat16")],
)
def test_auto_dtype_computes_in_two_bytes(stated: str | None, expected: str) -> None:
    assert ModelSpec.from_hf_config(PLAIN | {"torch_dtype": stated}).dtype == expected
    assert ModelSpec.from_hf_config(without("torch_dtype", dtype=stated)).dtype == expected


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, 4096),
        ({"rope_scaling": None}, 4096),
        ({"rope_scaling": {"type": "linear", "factor": 4.0}}, 16384),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, 8192),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, 4096),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, 4096),
        ({"rope_scaling": {"rope_type": "longrope"}, "original_max_position_embeddings": 2048}, 2048),
        ({"max_seq_len": 1024}, 1024),
        ({"max_position_embeddings": None}, 2048),
    ],
)
def test_longest_sequence(more: dict[str, Any], expected: int) -> None:
    assert ModelSpec.from_hf_config(PLAIN | more).max_model_len == expected


@pytest.mark.parametrize(
    ("quantization", "bits"),
    [
        ({"quant_method": "fp8"}, 8.0),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, 4 + 20 / 128),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, 8.0),
        ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 8}}}}, 8.0),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 4.5),
        ({"quant_method": "modelopt", "quantization": {"quant_algo": "NVFP4"}}, 4.5),
        ({"quant_method": "mxfp4"}, 16.0),  # vLLM quantizes experts with it, and here are none
    ],
)
def test_quantized_linear_layers(quantization: dict[str, Any], bits: float) -> None:
    plain = ModelSpec.from_hf_config(PLAIN)
    linear = plain.num_parameters - (2 * 1000 * 2048 + 2048 + 4 * 2 * 2048)  # all but embeddings and norms
    spec = ModelSpec.from_hf_config(PLAIN | {"quantization_config": quantization})
    assert spec.num_parameters == plain.num_parameters
    assert plain.weight_bytes - spec.weight_bytes == pytest.approx(linear * (16 - bits) / 8, abs=1)


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"kv_lora_rank": 512}, "kv_lora_rank"),
        ({"sliding_window": 4096}, "sliding_window"),
        ({"sliding_window": 4096, "use_sliding_window": True}, "sliding_window"),
        ({"layer_types": ["sliding_attention"] * 4, "sliding_window": 128}, "layer_types"),
        ({"layer_types": ["full_attention", "sliding_attention"], "sliding_window": 128}, "layer_types"),
        ({"layer_types": ["full_attention", "sliding_attention"] * 2}, "sliding_window"),
        ({"layer_types": [["full_attention"]] * 4}, "layer_types"),
        ({"layer_types": ["linear_attention", "full_attention"]}, "layer_types"),
        ({"attention_chunk_size": 8192}, "attention_chunk_size"),
        ({"mamba_d_state": 16}, "mamba_d_state"),
        ({"is_encoder_decoder": True}, "is_encoder_decoder"),
        ({"quantization_config": {"quant_method": "magic"}}, "quantization_config.quant_method"),
        ({"num_attention_heads": [16, 8]}, "num_attention_heads"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"num_hidden_layers": -4}, "num_hidden_layers"),
        ({"hidden_size": "2048"}, "hidden_size"),
        ({"vocab_size": True}, "vocab_size"),
        ({"vocab_size": 1e9}, "vocab_size"),
        ({"torch_dtype": "int8"}, "torch_dtype"),
        ({"vocab_size": None}, "vocab_size"),
    ],
)
def test_what_is_not_supported_names_its_field(more: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as error:
        ModelSpec.from_hf_config(PLAIN | more)
    assert error.value.field == field


def test_a_window_that_is_switched_off_is_no_window() -> None:
    """Qwen2 states 131072 with `use_sliding_window` false; newer files list every layer as full attention."""
    assert HfConfig(PLAIN | {"sliding_window": 4096, "use_sliding_window": False})
    assert HfConfig(PLAIN | {"sliding_window": 4096, "layer_types": ["full_attention"] * 4})


def test_windowed_layers_beside_full_ones() -> None:
    mixed = {"layer_types": ["sliding_attention"] * 3 + ["full_attention"], "sliding_window": 128}
    spec = ModelSpec.from_hf_config(PLAIN | mixed)
    assert (spec.window, spec.num_window_layers) == (128, 3)
    assert ModelSpec.from_hf_config(PLAIN).num_window_layers == 0


def test_mxfp4_is_of_experts_only() -> None:
    """8 experts of 3 x 2048 x 512 in each of 4 layers: 4.25 bits of them, 16 of everything else."""
    experts = {"num_local_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 512}
    plain = ModelSpec.from_hf_config(PLAIN | experts)
    packed = ModelSpec.from_hf_config(PLAIN | experts | {"quantization_config": {"quant_method": "mxfp4"}})
    assert plain.weight_bytes - packed.weight_bytes == 4 * 8 * 3 * 2048 * 512 * (16 - 4.25) / 8
    assert plain.num_parameters == packed.num_parameters


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "config.json:1: not JSON: Expecting value"),
        (b'{"hidden_size": 2048,\n"num_hidden', "config.json:2: not JSON: "),
        (b"[1, 2]", "config.json: got [1, 2], expected a Hugging Face config.json: one JSON object"),
        (b"\xff\xfe\x00", "config.json: not JSON: not text, expected a Hugging Face config.json"),
        (b"{}", "config.json: num_attention_heads: expected a whole number of 1 or more (the field is missing)"),
    ],
)
def test_a_bad_file_is_told_by_its_name(tmp_path: Path, content: bytes, told: str) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(InputError) as error:
        ModelSpec.from_hf_config(tmp_path)
    assert str(error.value).startswith(f"{tmp_path}/{told}")


def test_a_missing_file_is_the_systems_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ModelSpec.from_hf_config(tmp_path / "nowhere.json")
