"""The script's profile of a fit: complete, loadable, and the same as the shipped one in all that is not measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from calibrate.derive_h100_qwen3_14b import main, make_profile
from calibrate.fit import fit
from calibrate.samples import Samples, TimedStep
from sim.latency import DEFAULT_PROFILE, Profile


def test_profile_of_a_fit(tmp_path: Path) -> None:
    """Refitting samples of the shipped law gives the shipped profile back, provenance aside."""
    shipped = Profile.load(DEFAULT_PROFILE)
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(300):
        decodes, chunks, chunk = int(rng.integers(1, 300)), int(rng.integers(0, 4)), int(rng.integers(30, 2000))
        rows.append(TimedStep.of([(chunk, 0)] * chunks, [int(rng.integers(10, 2000))] * decodes, 1.0, regime="made"))
    made = Samples.of_steps(rows)
    columns = made.padded_tokens, made.num_seqs, made.decode_context, made.mixed_context, made.chunk_pairs
    samples = replace(made, seconds=shipped.law.device_s(*columns))
    averages = {"mean_prompt_tokens": 986.0, "mean_context_tokens": 1053.0, "mean_cycle_s": 0.0122}
    make_profile(fit(samples), samples, averages).save(tmp_path / "p.json")
    again = Profile.load(tmp_path / "p.json")
    assert again.law.token_s == pytest.approx(shipped.law.token_s, rel=1e-3)
    assert again.law.context_s == pytest.approx(shipped.law.context_s, rel=1e-3)
    for name in ("name", "model", "gpu", "dtype", "engine_version", "server", "client"):
        assert getattr(again, name) == getattr(shipped, name), name
    assert again.domain.num_tokens == (0, samples.num_tokens.max())
    assert again.provenance["implied"].keys() == shipped.provenance["implied"].keys()


def test_the_data_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="steps_2rps"):
        main([str(tmp_path)], standalone_mode=False)
