"""A profile of samples says what they are of, where it holds, and what nobody could tell."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from calibrate.make_profile import Target, calibrate, domain, padded
from calibrate.report import FILES, markdown, write_report
from calibrate.samples import Samples, TimedStep
from sim.errors import InputError
from sim.latency import ClientTerms, Graphs, Profile, StepShape

TERMS = ("tile_waste", "eager_s")
TINY = {
    "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
    "intermediate_size": 128, "vocab_size": 512, "max_position_embeddings": 256,
}  # fmt: skip


def test_a_profile_with_its_report(h200_samples, h200_law, tmp_path: Path) -> None:
    samples = h200_samples()
    target = Target(
        name="h200-test", client=ClientTerms(0.01), server={"async_scheduling": False}, command="elpase calibrate fit"
    )
    made = calibrate(samples, target, terms=TERMS)
    profile = made.profile
    profile.save(tmp_path / "p.json")
    assert Profile.load(tmp_path / "p.json") == profile
    assert (profile.gpu, profile.model, profile.engine, profile.engine_version) == (
        "h200",
        "llama-3.1-8b",
        "torch",
        "2.13.0",
    )
    assert profile.law.graphs == h200_law.graphs
    assert profile.server == {"async_scheduling": False}
    assert profile.client.request_s == 0.01
    assert profile.kv_bytes_per_token == 32 * 8 * 128 * 2 * 2
    assert profile.held_out["median_abs"] < 0.02
    assert profile.provenance["sources"]["samples 1"]["device"] == "NVIDIA H200"
    for shape in (StepShape(37, 37, 37_000, 0, 0.0, 37), StepShape(2000, 5, 4000, 1996, 2e6, 5)):
        assert sum(profile.step_time(shape)) == pytest.approx(sum(h200_law.price(shape)), rel=0.02)
    assert profile.law.host_step_s == pytest.approx(1.2e-3, rel=0.03)

    write_report(made, tmp_path)
    assert all((tmp_path / name).stat().st_size > 1000 for name in FILES)
    text = (tmp_path / "report.md").read_text()
    for name in FILES[1:]:
        assert f"]({name})" in text
    for told in ("NVIDIA H200", "driver: 570.1", "flash", "TFLOP/s", "4,800 GB/s", "held-out median", "`eager_s`"):
        assert told in text, told
    assert str(tmp_path) not in text


def test_the_report_says_what_is_unknown(h200_samples) -> None:
    samples = h200_samples(90)
    logged = np.where(samples.num_decodes > 0, np.nan, samples.decode_context)
    made = calibrate(replace(samples, decode_context=logged), Target(name="p"), terms=())
    assert "context_s and mixed_context_s cannot be found" in markdown(made)
    assert "context_s and mixed_context_s cannot be found" in made.profile.provenance["notes"]["contexts"]


def test_a_device_that_is_not_in_the_catalogue(h200_samples) -> None:
    cpu = replace(
        h200_samples(1).origins[0], device="AMD EPYC", model="tiny", model_config=TINY, dtype="float32",
        notes={"device_memory_bytes": 64 << 30},
    )  # fmt: skip
    made = calibrate(h200_samples(90, origin=cpu), Target(name="cpu"), terms=())
    assert (made.profile.gpu, made.profile.model, made.profile.dtype) == ("AMD EPYC", "tiny", "float32")
    assert made.profile.device_memory_bytes == 64 << 30
    assert made.profile.model_config == TINY
    assert made.profile.known_model().num_layers == 2
    assert "is not in the catalogue of GPUs" in markdown(made)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"device": "Etched Sohu"}, "--gpu: expected one of .*, as the samples do not say how much memory"),
        ({"model": ""}, "--model: expected a name or a config.json, as the samples name no model"),
        ({"model": "gpt-5"}, "--model: got 'gpt-5', expected"),
    ],
)
def test_samples_that_do_not_say_what_they_are_of(h200_samples, changed: dict[str, str], told: str) -> None:
    origin = replace(h200_samples(1).origins[0], **changed)
    with pytest.raises(InputError, match=told):
        calibrate(h200_samples(60, origin=origin), Target(name="p"), terms=())


def test_samples_that_follow_no_law(h200_samples) -> None:
    """Times that have nothing to do with the steps: the profile says that it is worth nothing."""
    samples = h200_samples(60)
    luck = np.exp(np.random.default_rng(1).normal(-4, 1.0, len(samples)))
    made = calibrate(replace(samples, seconds=luck), Target(name="p"), terms=())
    assert "Time them again" in made.profile.provenance["notes"]["worth"]


def test_one_shape_only(h200_samples) -> None:
    one = h200_samples(60).where(np.zeros(500, dtype=int))
    with pytest.raises(InputError, match=r"samples: got 1, expected at least .* different step shapes?"):
        calibrate(one, Target(name="p"))


def test_the_domain_is_what_was_timed() -> None:
    rows = [TimedStep.of([], [500] * 4, 0.01), TimedStep.of([(100, 50)], [], 0.01)]
    found = domain(Samples.of_steps(rows))
    assert (found.num_tokens, found.num_seqs) == ((4, 100), (1, 4))
    assert (found.decode_context, found.chunk_pairs) == ((0, 2000), (0, 10_000))


def test_padding_where_samples_do_not_say() -> None:
    rows = [
        TimedStep.of([], [9] * 3, 0.01),
        TimedStep.of([(3, 0)], [], 0.01),
        TimedStep.of([], [9] * 3, 1, graph="none"),
    ]
    decodes = padded(Samples.of_steps(rows), Graphs((1, 2, 4)))
    assert decodes.padded_tokens.tolist() == [4, 3, 3]
    assert decodes.graph.tolist() == ["full", "none", "none"]
    everything = padded(Samples.of_steps(rows), Graphs((1, 2, 4), mixed=True))
    assert everything.padded_tokens.tolist() == [4, 4, 3]
    assert everything.graph.tolist() == ["full", "piecewise", "none"]
