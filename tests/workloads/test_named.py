"""Built-in workloads are like the traces they were derived from; and the derivation finds what was put in."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import workloads
from workloads import BUILTIN_NAMES, TraceError, builtin, open_workload, read_trace, synthetic
from workloads.arrivals import Arrivals, GapQuantiles
from workloads.derive_builtin import main
from workloads.lengths import UniformRange

DATA = Path(__file__).with_name("data")
SHIPPED = Path(workloads.__file__).with_name("data")

# Of the real traces: requests, requests per second, coefficient of variation of the gaps, means of prompt and output,
# medians, 99th percentiles, and mean of prompt * output over the product of the means.
REAL = {
    "azure-conv": (19_366, 5.530, 1.094, (1154.7, 211.1), (1020, 129), (4142, 601), 0.917),
    "azure-code": (8_819, 2.566, 13.15, (2047.8, 27.9), (1469, 13), (7436, 251), 1.002),
}


@pytest.mark.parametrize("name", BUILTIN_NAMES)
def test_a_builtin_has_the_lengths_of_its_trace(name):
    """Within 2 %, which straight lines through a table's tail may cost, and four standard errors of 50,000 draws."""
    _, _, _, means, medians, p99s, together = REAL[name]
    count = 50_000
    requests = list(builtin(name, num_requests=count, seed=1))
    prompts = np.array([r.prompt_tokens for r in requests], dtype=float)
    outputs = np.array([r.output_tokens for r in requests], dtype=float)
    for drawn, mean, median, p99 in zip((prompts, outputs), means, medians, p99s, strict=True):
        assert drawn.mean() == pytest.approx(mean, abs=0.02 * mean + 4 * drawn.std() / count**0.5)
        # The conversation trace's outputs have two humps with little between: its median moves easily.
        assert np.median(drawn) == pytest.approx(median, rel=0.05)
        assert (drawn > p99).mean() <= 0.01 + 4 * (0.01 * 0.99 / count) ** 0.5
        assert (drawn >= p99).mean() >= 0.01 - 4 * (0.01 * 0.99 / count) ** 0.5
    error = 4 * prompts.std() / prompts.mean() * outputs.std() / outputs.mean() / count**0.5
    assert (prompts * outputs).mean() / prompts.mean() / outputs.mean() == pytest.approx(together, abs=0.01 + error)


def test_azure_conv_comes_at_the_rate_and_with_the_bursts_of_its_trace():
    count, rate, variation, *_ = REAL["azure-conv"]
    arrivals_s = np.array([r.arrival_s for r in builtin("azure-conv")])
    gaps_s = np.diff(arrivals_s)
    assert len(arrivals_s) == count
    assert 1 / gaps_s.mean() == pytest.approx(rate, rel=4 * variation / count**0.5)
    assert gaps_s.std() / gaps_s.mean() == pytest.approx(variation, rel=0.05)


def test_azure_code_comes_in_bursts_with_long_pauses():
    """Straight lines through the tail of a table cost a tenth of a variation of 13."""
    _, rate, variation, *_ = REAL["azure-code"]
    facts = json.loads((SHIPPED / "azure-code.json").read_text())["arrivals"]
    law = GapQuantiles(tuple(facts["q"]), tuple(facts["gap_s"]), facts["rate_per_s"])
    gaps_s = np.diff(law.times_s(1_000_000, np.random.default_rng(1)))
    assert 1 / gaps_s.mean() == pytest.approx(rate, rel=4 * variation / 1e6**0.5)
    assert gaps_s.std() / gaps_s.mean() == pytest.approx(variation, rel=0.15)
    drawn_s = np.diff([r.arrival_s for r in builtin("azure-code")])
    assert np.median(drawn_s) == pytest.approx(np.median(gaps_s), rel=0.1)


@pytest.mark.parametrize("name", BUILTIN_NAMES)
def test_what_ships_says_where_it_comes_from(name):
    facts = json.loads((SHIPPED / f"{name}.json").read_text())
    assert facts["origin"]["licence"] == "CC-BY-4.0"
    assert "Azure Public Dataset" in facts["origin"]["source"]
    assert facts["num_requests"] == facts["origin"]["rows"] == REAL[name][0]


def test_open_workload_takes_names_and_paths():
    assert list(open_workload("azure-conv", limit=5, seed=2)) == list(builtin("azure-conv", seed=2))[:5]
    path = DATA / "azure_2023.csv"
    assert list(open_workload(path)) == list(open_workload(str(path))) == list(read_trace(path))
    scaled = [r.arrival_s * 2 for r in open_workload("azure-conv", limit=5, rate_scale=2.0)]
    assert scaled == pytest.approx([r.arrival_s for r in open_workload("azure-conv", limit=5)])


def test_a_file_may_bear_a_builtins_name(tmp_path, monkeypatch):
    (tmp_path / "azure-conv").write_bytes((DATA / "azure_2023.csv").read_bytes())
    monkeypatch.chdir(tmp_path)
    assert len(list(open_workload("./azure-conv"))) == 20


def test_an_unknown_builtin_names_the_known_ones():
    with pytest.raises(TraceError, match="azure-code, azure-conv"):
        builtin("azure")


def test_deriving_finds_what_was_put_in(tmp_path):
    """A trace of known laws: burstiness, bounds and medians come back."""
    made = synthetic(5000, Arrivals(8.0, burstiness=0.5), UniformRange(1000, 0.5), UniformRange(100, 0.2))
    trace, out = tmp_path / "made.csv", tmp_path / "made.json"
    rows = [f"{r.arrival_s},{r.prompt_tokens},{r.output_tokens}" for r in made]
    trace.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *rows]))
    main([str(trace), "--name", "made", "--out", str(out), "--source", "here", "--licence", "none"])
    facts = json.loads(out.read_text())
    assert facts["num_requests"] == 5000
    # Mean of 5000 gaps with a coefficient of variation of 1.41: standard error 2 %; of burstiness, about 5 %.
    assert facts["arrivals"]["rate_per_s"] == pytest.approx(8.0, rel=0.08)
    assert facts["arrivals"]["burstiness"] == pytest.approx(0.5, rel=0.2)
    prompts = dict(zip(facts["prompt_tokens"]["q"], facts["prompt_tokens"]["tokens"], strict=True))
    assert (prompts[0.0], prompts[1.0]) == (pytest.approx(500, abs=5), pytest.approx(1500, abs=5))
    assert prompts[0.5] == pytest.approx(1000, abs=4 * 1000 / (2 * 5000**0.5))
    assert len(facts["output_tokens"]["laws"]) == len(facts["output_tokens"]["prompt_upto"]) + 1 == 10
    assert all(law["tokens"][0] >= 80 and law["tokens"][-1] <= 120 for law in facts["output_tokens"]["laws"])
