"""The reader of `vllm019` op files, against a folder whose layers follow formulas."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pandas as pd
import pytest

from calibrate.compose import file_samples
from calibrate.grid import GridLimits, GridStep
from calibrate.op_files import FileSteps, read_meta
from calibrate.samples import Origin
from sim.cli.main import main
from sim.errors import InputError
from sim.latency.graphs import NO_GRAPHS
from sim.specs import model_spec

MODEL = model_spec("llama-3.1-8b")
LAYERS = 32

META = """profiler_version: 1.0.0
vllm_version: 0.19.0
gpu: NVIDIA GeForce RTX 4090
profiled_at: '2026-08-17T19:43:32+00:00'
model: meta-llama/Llama-3.1-8B
engine_effective:
  max_num_batched_tokens: 2048
  max_num_seqs: 256
  model: (local folder)_
"""

DENSE_US = {"layernorm": 3, "qkv_proj": 10, "rotary_emb": 2, "o_proj": 8, "gate_up_proj": 30, "act_fn": 4,
            "down_proj": 20, "embedding": 5, "final_layernorm": 3}  # fmt: skip
"""Each layer takes so many microseconds, and a hundredth of it per token."""


def attention_us(chunk: int, before: int, rows: int, context: int) -> float:
    return 10 + 1e-3 * chunk * (before + chunk / 2) + 0.1 * rows + 1e-3 * rows * context * (2 if chunk else 1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    dense = [(layer, n, us * (1 + n / 100)) for layer, us in DENSE_US.items() for n in (1, 100, 1000, 2304)]
    pd.DataFrame(dense, columns=["layer", "tokens", "time_us"]).to_csv(tmp_path / "op_dense.csv", index=False)
    head = [(layer, n, us + n) for layer, us in (("lm_head", 1000), ("sampler", 20)) for n in (1, 100, 256)]
    pd.DataFrame(head, columns=["layer", "sequences", "time_us"]).to_csv(tmp_path / "op_per_sequence.csv", index=False)
    sizes = (16, 128, 1024, 2048)
    batches = [(0, 0, rows, context) for rows, context in product((1, 16, 256), (16, 1024, 16384))]
    batches += [(chunk, before, 0, 0) for chunk, before in product(sizes, (0, 512, 16384))]
    batches += list(product(sizes, (0, 512), (1, 16, 128), (16, 1024)))
    rows = [(*batch, attention_us(*batch)) for batch in batches]
    names = ["prefill_chunk", "kv_prefill", "n_decode", "kv_decode", "time_us"]
    pd.DataFrame(rows, columns=names).to_csv(tmp_path / "op_attention.csv", index=False)
    (tmp_path / "op_meta.yaml").write_text(META, encoding="utf-8")
    return tmp_path


def layers_us(tokens: int, seqs: int) -> float:
    """Dense layers, LM head and sampler, by hand: two norms per layer, each other layer once."""
    per_layer = 2 * 3 + 10 + 2 + 8 + 30 + 4 + 20
    return (LAYERS * per_layer + 5 + 3) * (1 + tokens / 100) + 1020 + 2 * seqs


def test_meta(folder: Path) -> None:
    meta = read_meta(folder / "op_meta.yaml")
    assert (meta.device, meta.engine_version) == ("NVIDIA GeForce RTX 4090", "0.19.0")
    assert meta.model == "meta-llama/Llama-3.1-8B", "not the engine's own folder"
    assert (meta.date, meta.max_num_batched_tokens, meta.max_num_seqs) == ("2026-08-17", 2048, 256)


def test_steps_that_were_timed(folder: Path) -> None:
    steps = FileSteps.read(folder, MODEL)
    decode = steps.seconds(GridStep((), (1024,) * 16), 16)
    assert decode == pytest.approx((layers_us(16, 16) + LAYERS * attention_us(0, 0, 16, 1024)) / 1e6, rel=1e-3)
    prompt = steps.seconds(GridStep(((1024, 512),), ()), 1024)
    assert prompt == pytest.approx((layers_us(1024, 1) + LAYERS * attention_us(1024, 512, 0, 0)) / 1e6, rel=1e-3)


def test_mixed_batches_are_just_as_they_were_timed(folder: Path) -> None:
    steps = FileSteps.read(folder, MODEL)
    found = {row[:4]: row[4] for row in steps.mixed(kv_tokens=20_000, max_tokens=2048)}
    assert found[1024, 512, 16, 1024] == pytest.approx(
        (layers_us(1040, 17) + LAYERS * attention_us(1024, 512, 16, 1024)) / 1e6, rel=1e-6
    )
    assert (2048, 0, 1, 16) not in found, "2,049 tokens are beyond the budget"
    assert (16, 0, 128, 1024) not in found, "131,088 tokens do not fit the cache"
    assert len(found) == 4 * 2 * 3 * 2 - 12 - 6


def test_samples(folder: Path) -> None:
    limits = GridLimits(max_tokens=2048, max_seqs=256, max_context=8192, kv_tokens=41_392, max_model_len=32_768)
    samples = file_samples(FileSteps.read(folder, MODEL), limits, NO_GRAPHS, 60, Origin(device="x"))
    assert set(samples.regime) == {"decode", "prompt", "mixed"}
    assert (samples.regime == "mixed").sum() == 4 * 2 * 3 * 2 - 12 - 6
    assert (samples.num_tokens <= 2048).all()


@pytest.mark.parametrize(
    ("file", "old", "new", "told"),
    [
        ("op_meta.yaml", "gpu: NVIDIA GeForce RTX 4090\n", "", "op_meta.yaml: gpu: missing key"),
        ("op_meta.yaml", "max_num_seqs: 256", "max_num_seqs: many", "op_meta.yaml: not a whole number"),
        ("op_dense.csv", "tokens", "n", "op_dense.csv: tokens: missing column"),
        (
            "op_dense.csv",
            "o_proj",
            "out",
            "op_dense.csv: layer: missing layer, got 'o_proj', expected layernorm, qkv_proj",
        ),
        (
            "op_per_sequence.csv",
            "sampler",
            "s",
            "op_per_sequence.csv: layer: missing layer, got 'sampler', expected lm_head, sampler",
        ),
        ("op_attention.csv", ",12.368\n", ",-1\n", "op_attention.csv:11: time_us: got '-1.0', expected a time > 0"),
    ],
)
def test_bad_files(folder: Path, file: str, old: str, new: str, told: str) -> None:
    path = folder / file
    text = path.read_text(encoding="utf-8")
    if file == "op_attention.csv":
        lines = text.splitlines(keepends=True)
        lines[10] = lines[10].rpartition(",")[0] + ",-1\n"
        path.write_text("".join(lines), encoding="utf-8")
    else:
        assert old in text
        path.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(InputError) as error:
        FileSteps.read(folder, MODEL)
    assert told in str(error.value)


def test_what_needs_no_fit(folder: Path) -> None:
    """Norms, rotary embedding, activation and sampler, and one attention call; a hundredth more per token."""
    known = FileSteps.read(folder, MODEL).known_terms()
    elementwise_us = LAYERS * (2 * 3 + 2 + 4) + 5 + 3
    attention = LAYERS * attention_us(0, 0, 1, 16)
    assert known["step_s"] == pytest.approx((elementwise_us * 1.01 + 21 + attention) / 1e6, rel=1e-3)
    assert known["elementwise_s"] == pytest.approx(elementwise_us / 100 / 1e6)


def test_layers_that_no_single_gpu_could_run(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """15 GB of weights in 2.5 ms: 5.6 TB/s, more than a 4090 has, so these were timed on a share of the model."""
    with pytest.raises(SystemExit):
        main(["calibrate", "tables", str(folder), "--out", str(tmp_path / "p.json")])
    told = capsys.readouterr().err
    assert "--tp: got 1, expected the GPUs whose share was timed: weights would be read at" in told
    assert told.count("\n") == 1
