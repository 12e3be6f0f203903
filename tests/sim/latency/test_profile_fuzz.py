"""Every field of a profile, spoilt in every way: one line that names the file and the field, whatever it is."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sim.errors import InputError
from sim.latency import Profile
from sim.latency.profile import PROFILES

CONFIG = {
    "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 512,
    "intermediate_size": 128, "max_position_embeddings": 8192, "num_experts": 4, "moe_intermediate_size": 32,
    "decoder_sparse_step": 1, "first_k_dense_replace": 1, "n_shared_experts": 1,
    "rope_scaling": {"factor": 2.0, "rope_type": "linear"}, "quantization_config": {"quant_method": "awq", "bits": 4},
}  # fmt: skip
WHOLE: dict[str, Any] = json.loads((PROFILES / "h100-llama-3.1-8b.json").read_text(encoding="utf-8")) | {
    "model": "tiny",
    "model_config": CONFIG,
}
WHOLE["server"] |= {"max_model_len": 4096, "block_size": 16, "watermark": 0.5, "kv_cache_memory_bytes": 1 << 30}

FREE = ("residuals", "held_out", "provenance")
"""Objects that are only shown."""
GONE = object()
WRONG: dict[type, list[Any]] = {
    bool: [1, "x", [], {}, math.nan],
    int: [True, "x", "", [], {}, [[]], 1.5, -2, math.nan, math.inf, 1e300, 10**30, 10**400],
    float: [True, "x", "", [], {}, -2, math.nan, math.inf, 1e300, 10**30, 10**400],
    str: [True, "", 3, [], ["x"], {}, {"a": {"b": [1]}}],
    list: [3, "x", {}, [[]], [1, "a"], [math.nan, math.nan], [-1, 5], [0, 10**400], [5, 1]],
    dict: [3, "x", [], [{}], math.nan],
}


def paths(table: dict[str, Any], at: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, value in table.items():
        path = (*at, name)
        yield path
        if isinstance(value, dict) and name not in FREE:
            yield from paths(value, path)


def may_be_gone(path: tuple[str, ...]) -> bool:
    """What came with a later elpase, what a server need not say, and what a config.json has defaults for."""
    later = ("graphs", "tile_waste", "elementwise_s", "eager_s", "eager_row_s", "host_step_s", "host_row_s")
    needed = ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size", "quant_method", "bits")
    if path[0] in ("server", "model_config") and len(path) > 1:
        return path[-1] not in needed
    return path[-1] in (*later, "held_out", "request_token_s")


def spoilt(path: tuple[str, ...], value: object) -> dict[str, Any]:
    document = copy.deepcopy(WHOLE)
    table = document
    for name in path[:-1]:
        table = table[name]
    if value is GONE:
        del table[path[-1]]
    else:
        table[path[-1]] = value
    return document


def test_the_whole_one_loads(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(json.dumps(WHOLE))
    assert Profile.load(tmp_path / "p.json").known_model().num_layers == 2


@pytest.mark.parametrize("path", list(paths(WHOLE)), ids=".".join)
def test_a_spoilt_field_is_one_line_with_file_and_field(path: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    right = WHOLE
    for name in path:
        right = right[name]
    # A config.json's null is as good as nothing, for a model's family a word is as good as another.
    values = [*([] if may_be_gone(path) else [GONE, None]), *WRONG[type(right)]]
    if path[0] == "model_config":
        values = [value for value in values if not isinstance(right, str) and value not in ("", [], {})]
    if path[-1] == "bits":
        values.remove(1.5)  # with its scales a weight may take half a bit more
    for value in values:
        file.write_text(json.dumps(spoilt(path, value)))
        with pytest.raises(InputError) as caught:
            Profile.load(file)
        told = str(caught.value)
        assert told.startswith((f"{file}: {path[0]}", f"{file}: model: ")), (value, told)
        assert path[-1] in told or path[0] == "model_config", (value, told)
        assert told.isprintable()


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("max_num_seq", "; did you mean 'max_num_seqs'?"),
        ("max-num-seqs", "; did you mean 'max_num_seqs'?"),
        ("blocksize", "; did you mean 'block_size'?"),
        ("no_such_setting", "a flag of vllm serve that elpase knows"),
        ("server", "a flag of vllm serve that elpase knows"),
    ],
)
def test_a_server_flag_that_nobody_knows(name: str, told: str, tmp_path: Path) -> None:
    """Passed over, it would leave the user with another server than the file says."""
    file = tmp_path / "p.json"
    file.write_text(json.dumps(spoilt(("server", name), 64)))
    with pytest.raises(InputError) as caught:
        Profile.load(file)
    assert str(caught.value).startswith(f"{file}: server.{name}: got 64, expected a flag of vllm serve")
    assert str(caught.value).endswith(told)


def test_a_number_of_5000_digits(tmp_path: Path) -> None:
    """Python refuses to read it at all."""
    file = tmp_path / "p.json"
    file.write_text('{"schema_version": ' + "9" * 5000 + "}")
    with pytest.raises(InputError, match="not JSON that can be read"):
        Profile.load(file)


def test_a_profile_without_a_name() -> None:
    with pytest.raises(InputError, match="profile: got '', expected the path of a profile, or one of"):
        Profile.load("")
