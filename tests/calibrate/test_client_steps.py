"""Client-seen gaps as samples, on rows of the source's form made by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from calibrate.client_steps import read_client_steps
from calibrate.samples import LONE, SUSTAINED
from sim.errors import InputError

HEADER = "run,step,n,first,decode,prefill_tokens,dt_ms"

ROWS = [
    "0,1,1,1,0,1000.0,900.0",  # nobody decodes: the gap holds idle time
    "0,2,1,0,1,0.0,11.0",
    "0,3,3,2,1,2000.0,80.0",  # 2 steps after a prompt: in a row
    *(f"0,{step},3,0,3,0.0,11.5" for step in range(4, 10)),
    "0,10,4,1,3,900.0,40.0",  # 7 steps after one: lone
    "1,1,2,1,1,1000.0,41.0",  # another run: what was before is not known
]


@pytest.fixture
def steps(tmp_path: Path) -> Path:
    path = tmp_path / "steps.csv"
    path.write_text("\n".join([HEADER, *ROWS]), encoding="utf-8")
    return path


def test_steps(steps: Path) -> None:
    samples, averages = read_client_steps(steps)
    assert len(samples) == 10, "the gap that holds idle time is left out"
    # 4900 prompt tokens of 5 prompts; 24 decoded tokens beside the 5 first ones.
    assert averages["mean_prompt_tokens"] == 980
    context = averages["mean_context_tokens"]
    assert context == pytest.approx(980 + (24 / 5 + 1) / 2)
    two_prompts = list(samples.regime).index("served, prompts in a row")
    assert samples.num_tokens[two_prompts] == 2001
    assert samples.num_seqs[two_prompts] == 3
    assert samples.chunk_pairs[two_prompts] == 2 * 1000**2 / 2
    assert samples.mixed_context[two_prompts] == samples.decode_context[two_prompts] == pytest.approx(context)
    assert samples.seconds[two_prompts] == pytest.approx(0.08)


def test_lone_prompts_and_prompts_in_a_row(steps: Path) -> None:
    samples, _ = read_client_steps(steps)
    assert list(samples.regime) == [
        "served, decode",
        "served, prompts in a row",
        *["served, decode"] * 6,
        "served, lone prompts",
        "served, lone prompts",
    ]
    assert [state == LONE for state in samples.state] == [regime.endswith("lone prompts") for regime in samples.regime]
    assert set(samples.state) == {LONE, SUSTAINED}
    assert all(samples.mixed_context[samples.regime == "served, decode"] == 0)


def test_missing_column(tmp_path: Path) -> None:
    path = tmp_path / "steps.csv"
    path.write_text("run,step,n,first,decode,prefill_tokens\n0,1,1,0,1,0\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"steps\.csv: dt_ms: missing column"):
        read_client_steps(path)
