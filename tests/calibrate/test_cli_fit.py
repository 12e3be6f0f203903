"""`elpase calibrate fit`: whole or nothing, and one line for whatever is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from calibrate.samples_file import write_samples
from sim.cli.main import main
from sim.latency import Profile


def run(*args: object) -> int:
    with pytest.raises(SystemExit) as caught:
        main([str(arg) for arg in args])
    assert isinstance(caught.value.code, int)
    return caught.value.code


@pytest.fixture
def table(h200_samples, tmp_path: Path) -> Path:
    write_samples(tmp_path / "torch.parquet", h200_samples(120))
    return tmp_path / "torch.parquet"


def test_a_profile_and_a_report(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "h200-mine.json"
    options = ["--term", "tile_waste", "--term", "eager_s", "--fix", "batch_slowdown=0.03", "--request-s", "0.005"]
    options += ["--server", "async_scheduling=false", "--server", "max-num-seqs=512"]
    assert run("calibrate", "fit", table, "--out", out, "--report", tmp_path / "report", *options) == 0
    profile = Profile.load(out)
    assert profile.name == "h200-mine"
    assert profile.law.batch_slowdown == 0.03
    assert profile.server == {"async_scheduling": False, "max_num_seqs": 512}
    assert profile.client.request_s == 0.005
    assert sorted(p.name for p in (tmp_path / "report").iterdir()) == [
        "law.png", "predicted.png", "report.md", "residuals.png",
    ]  # fmt: skip
    told = capsys.readouterr().out
    assert "h200-mine: 120 steps" in told
    assert "held out (5 folds" in told
    for text in (out.read_text(), (tmp_path / "report" / "report.md").read_text()):
        assert str(tmp_path) not in text, "no path of this machine"
    assert profile.provenance["command"].startswith("elpase calibrate fit torch.parquet --out h200-mine.json ")


def test_nothing_is_written_of_a_failed_fit(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither a profile without its report nor half of one."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("calibrate.report.write_report", full)
    before = sorted(tmp_path.iterdir())
    args = ("calibrate", "fit", table, "--out", tmp_path / "p.json", "--report", tmp_path / "report")
    assert run(*args, "--term", "none") == 2
    assert "No space left" in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before


def columns_missing(path: Path) -> None:
    pq.write_table(pq.read_table(path).drop_columns(["seconds", "graph"]), path)


def one_shape(path: Path) -> None:
    table = pq.read_table(path)
    pq.write_table(table.take([0] * 50), path)


def negative(path: Path) -> None:
    table = pq.read_table(path)
    column = table.column("seconds").to_pylist()
    column[6] = -0.5
    pq.write_table(table.set_column(table.schema.get_field_index("seconds"), "seconds", [column]), path)


def mixed_devices(path: Path) -> None:
    table = pq.read_table(path)
    devices = ["NVIDIA H200"] * 100 + ["NVIDIA L4"] * 20
    pq.write_table(table.set_column(0, "device", [devices]), path)


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (columns_missing, "expected also the columns seconds, graph"),
        (one_shape, "samples: got 1, expected at least"),
        (negative, "seconds in row 7: got -0.5, expected a positive time"),
        (mixed_devices, "device: got 'NVIDIA H200, NVIDIA L4', expected rows of one device"),
        (lambda path: path.write_text("x"), "not a Parquet table"),
        (lambda path: path.unlink(), "No such file or directory"),
    ],
)
def test_bad_samples(spoil, told: str, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spoil(table)
    before = sorted(tmp_path.iterdir())
    assert run("calibrate", "fit", table, "--out", tmp_path / "p.json", "--report", tmp_path / "report") == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("elpase: error: ")
    assert told in err
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--out", "no/such/folder/p.json"], "no/such/folder/p.json: expected a file in a folder that exists"),
        (["--out", "p.json", "--fix", "speed=3"], "got 'speed', expected one of step_s"),
        (["--out", "p.json", "--fix", "sharpness=0.5"], "sharpness: got 0.5, expected a number from 1 to 1000"),
        (["--out", "p.json", "--fix", "step_s=fast"], "step_s: got 'fast', expected a number"),
        (["--out", "p.json", "--graphs", "vllm"], "got 'vllm', expected auto, or vllm:MAX_NUM_BATCHED_TOKENS"),
        (["--out", "p.json", "--server", "async"], "got 'async', expected FLAG=VALUE"),
        (["--out", "p.json", "--server", "max-seqs=3"], "elpase knows; did you mean 'max_num_seqs'?"),
        (["--out", "p.json", "--server", "block_size=3"], "block_size: got 3, expected a multiple of 16"),
        (["--out", "p.json", "--gpu", "h300"], "--gpu: got 'h300', expected one of"),
    ],
)
def test_bad_options(options: list[str], told: str, table: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    assert run("calibrate", "fit", table, *options) == 2
    err = capsys.readouterr().err
    assert told in err
    assert err.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


def test_the_group_lists_its_verbs(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("calibrate", "--help") == 0
    told = capsys.readouterr().out
    assert all(f"  {verb} " in told for verb in ("torch", "vllm", "log", "tables", "fit", "run"))


def test_graphs_and_contexts_that_a_log_does_not_say(h200_samples, tmp_path: Path) -> None:
    made = h200_samples(120)
    plain = made.of_steps(
        [
            step.of_totals(step.num_chunks, step.chunk_tokens, len(step.decodes or ()), step.seconds)
            for step in made.steps()
        ],
        made.origins[0],
    )
    write_samples(tmp_path / "log.parquet", plain)
    out = tmp_path / "p.json"
    options = ("--mean-context", 1000, "--graphs", "vllm:8192,512", "--term", "none", "--fix", "context_s=3.3e-8")
    assert run("calibrate", "fit", tmp_path / "log.parquet", "--out", out, *options) == 0
    document = json.loads(out.read_text())
    assert document["law"]["graphs"]["sizes"][-1] == 512
    assert document["law"]["graphs"]["mixed"] is True
    assert document["law"]["coefficients"]["context_s"]["value"] == 3.3e-8
    assert document["domain"]["decode_context"][1] == 1000 * max(made.num_decodes)
    assert "contexts" not in document["provenance"]["notes"], "they are known now"
