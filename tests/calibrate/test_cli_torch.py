"""`elpase calibrate torch`, then `fit`, then `run`: from a config.json to a comparison, on a CPU with a tiny model."""

from __future__ import annotations

import json
import os

import pytest
from click.testing import CliRunner

from calibrate import torch_options
from calibrate.samples_file import read_samples
from sim.cli.main import cli

CONFIG = {
    "model_type": "qwen3",
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_hidden_layers": 2,
    "intermediate_size": 64,
    "vocab_size": 97,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
}
MEASURE = ("--device", "cpu", "--threads", "1", "--kv-gib", "0.004")


def _elpase(*words):
    return CliRunner().invoke(cli, ["calibrate", *map(str, words)])


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "tiny.json").write_text(json.dumps(CONFIG))
    return tmp_path


def _measured(folder, *more):
    reach = ("--max-tokens", 64, "--max-seqs", 8, "--max-context", 100, "--steps", 40)
    where = ("--model", folder / "tiny.json", "--out", folder / "s.parquet")
    return _elpase("torch", *where, "--budget-s", 8, *reach, *MEASURE, *more)


@pytest.fixture
def with_torch():
    os.environ.setdefault("TRITON_INTERPRET", "1")
    pytest.importorskip("torch").set_num_threads(1)


def test_from_a_config_to_a_comparison(folder, with_torch):
    """The whole way; times on a busy machine are not looked at."""
    measured = _measured(folder)
    assert measured.exit_code == 0, measured.output
    samples = read_samples(folder / "s.parquet")
    origin = samples.origins[0]
    assert (origin.engine, origin.model, origin.dtype, origin.tensor_parallel_size) == ("torch", "tiny", "float32", 1)
    assert origin.notes["attention"] == "sdpa"
    assert origin.notes["threads"] == 1
    assert origin.model_config == CONFIG
    assert "calibrate torch" in origin.command
    assert str(folder) not in origin.command
    assert any(regime.startswith("served") for regime in samples.regime)

    fitted = _elpase("fit", folder / "s.parquet", "--out", folder / "p.json", "--term", "none")
    assert fitted.exit_code == 0, fitted.output

    compared = _elpase(
        "run", "random", "--model", folder / "tiny.json", "--profile", folder / "p.json", "--json", "--repeats", 2,
        "--num-prompts", 5, "--request-rate", 50, "--random-input-len", 20, "--random-output-len", 4,
        "--run-samples", folder / "run.parquet", *MEASURE,
    )  # fmt: skip
    assert compared.exit_code == 0, compared.output
    told = json.loads(compared.stdout)
    assert len(told["real_runs"]) == 2
    assert told["requests"] == 5
    assert told["config"]["async_scheduling"] is False
    for name, error in told["errors"].items():
        assert error == pytest.approx(told["simulated"][name] / told["real"][name] - 1)
    assert told["steps"][0]["steps"] > 4
    assert len(read_samples(folder / "run.parquet")) == sum(steps["steps"] for steps in told["steps"])


def test_a_profile_can_be_fitted_between_the_runs(folder, with_torch):
    run = _elpase(
        "run", "random", "--model", folder / "tiny.json", "--calibrate-s", 9, "--repeats", 2, "--num-prompts", 4,
        "--random-input-len", 20, "--random-output-len", 4, "--max-num-batched-tokens", 64, "--max-num-seqs", 8,
        "--samples", folder / "s.parquet", "--save-profile", folder / "here.json", *MEASURE,
    )  # fmt: skip
    assert run.exit_code == 0, run.output
    assert "TPOT mean" in run.output
    assert "priced one by one" in run.output
    assert json.loads((folder / "here.json").read_text())["engine"] == "torch"
    assert len(read_samples(folder / "s.parquet")) > 20


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "--profile, or --calibrate-s"),
        (("--profile", "h100-qwen3-14b", "--calibrate-s", 5), "--profile, or --calibrate-s"),
        (("--profile", "h100-qwen3-14b", "--samples", "s.parquet"), "--samples goes with --calibrate-s"),
        (("--calibrate-s", 5, "--save-profile", "nowhere/p.json"), "nowhere/p.json"),
    ],
)
def test_flags_that_contradict_are_told(folder, words, told):
    run = _elpase("run", "random", "--model", folder / "tiny.json", *words)
    assert run.exit_code != 0
    assert told in run.output + str(run.exception)


def test_a_measurement_goes_on_where_it_stopped(folder, with_torch):
    first = _measured(folder, "--no-served")
    again = _measured(folder, "--no-served")
    assert first.exit_code == again.exit_code == 0, again.output
    assert again.output.startswith("0 new samples") or int(again.output.split()[0]) < int(first.output.split()[0])


def test_the_shard_of_four_gpus_is_named_as_such(folder, with_torch):
    (folder / "tiny.json").write_text(json.dumps(CONFIG | {"num_key_value_heads": 4}))
    measured = _measured(folder, "--shard-of", 4, "--no-served")
    assert measured.exit_code == 0, measured.output
    origin = read_samples(folder / "s.parquet").origins[0]
    assert origin.tensor_parallel_size == 4
    assert "not timed" in origin.notes["collectives"]


def test_a_profile_of_another_model_is_refused(folder, with_torch):
    (folder / "other.json").write_text(json.dumps(CONFIG | {"vocab_size": 50}))
    run = _elpase("run", "random", "--model", folder / "other.json", "--profile", "h100-qwen3-14b", *MEASURE)
    assert "model of profile h100-qwen3-14b: got 'qwen3-14b', expected other" in str(run.exception)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--model", "nothing", "--out", "s.parquet"), "--model: got 'nothing'"),
        (("--model", "qwen3-14b", "--out", "nowhere/s.parquet"), "--out: got 'nowhere/s.parquet'"),
    ],
)
def test_what_cannot_be_is_told_in_one_line(words, told, monkeypatch):
    pytest.importorskip("torch")
    failed = _elpase("torch", *words, "--device", "cpu")
    assert told in str(failed.exception)


def test_a_device_that_is_not_here_is_told_with_those_that_are(folder, with_torch):
    failed = _elpase("torch", "--model", folder / "tiny.json", "--out", folder / "s.parquet", "--device", "tpu")
    assert str(failed.exception).startswith("--device: got 'tpu', expected one of cpu")


def test_without_torch_the_error_says_how_to_get_it(folder, monkeypatch):
    monkeypatch.setattr(torch_options, "find_spec", lambda _name: None)
    assert "pip install 'elpase[torch]'" in str(_measured(folder).exception)


@pytest.mark.parametrize("verb", ["torch", "run"])
def test_help_needs_no_torch(verb):
    told = _elpase(verb, "--help")
    assert told.exit_code == 0
    assert "Real passes" in told.output
