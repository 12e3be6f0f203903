"""`elpase report`: one file, and one clear line for what is no folder of a run of this version."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from sim.report.tables import read_frames, write_frames


@pytest.fixture(scope="module")
def finished(tmp_path_factory, elpase) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    assert elpase("replay", "azure-conv", "--limit", 30, "--out", folder).code == 0
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def test_it_is_written_where_it_is_asked_for(run: Path, tmp_path: Path, elpase) -> None:
    done = elpase("report", run, "-o", tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert (done.code, done.out) == (0, "")
    assert done.err == f"elpase: wrote {tmp_path / 'page.html'} ({len(text.encode()) / 1000:,.0f} kB)\n"
    assert text.startswith("<!doctype html>")
    assert "<dt>Command</dt><dd>elpase replay azure-conv --limit 30</dd>" in text
    assert '<section id="explain"' in text
    assert elpase("report", run).code == 0
    assert (run / "report.html").read_text(encoding="utf-8") == text
    assert "got 'moon', expected the path of a profile" in elpase("report", run, "--profile", "moon").error


def test_a_folder_that_is_none(run: Path, tmp_path: Path, elpase) -> None:
    assert "there is no such folder, expected the folder of a run" in elpase("report", tmp_path / "nowhere").error
    assert "is a file, expected the folder of a run" in elpase("report", run / "result.json").error
    (run / "steps.parquet").unlink()
    assert (
        elpase("report", run).error
        == f"{run}: has no steps.parquet: is it what elpase replay --keep-steps --out wrote?"
    )


@pytest.mark.parametrize(
    ("file", "content", "told"),
    [
        ("result.json", '{"sim": {', "result.json:1: not JSON"),
        ("result.json", "{}", "result.json: sim: missing, expected an object"),
        ("requests.parquet", "PAR1", "requests.parquet: not a Parquet table"),
        ("steps.parquet", "", "steps.parquet: not a Parquet table"),
    ],
)
def test_a_file_that_is_spoilt(run: Path, elpase, file: str, content: str, told: str) -> None:
    (run / file).write_text(content, encoding="utf-8")
    assert told in elpase("report", run).error


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        (("duration",), "x", "duration: got 'x', expected a finite number"),
        (("duration",), None, "duration: missing, expected a finite number"),
        (("mean_ttft_ms",), [], "mean_ttft_ms: got [], expected a finite number"),
        (("model_id",), 5, "model_id: got 5, expected a text"),
        (("sim", "load"), None, "sim.load: missing, expected an object"),
        (("sim", "load", "ordering_only"), 1, "sim.load.ordering_only: got 1, expected true or false"),
        (("sim", "steps"), float("nan"), "sim.steps: got nan, expected a finite number"),
        (("sim", "ttft_split_ms", "prefill"), {}, "sim.ttft_split_ms.prefill.mean: missing, expected a finite number"),
    ],
)
def test_a_field_that_will_not_do_is_named(run: Path, elpase, path: tuple[str, ...], value: object, told: str) -> None:
    said = json.loads((run / "result.json").read_text(encoding="utf-8"))
    at = said
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    (run / "result.json").write_text(json.dumps(said), encoding="utf-8")
    assert elpase("report", run).error.startswith(f"{run / 'result.json'}: {told}")


def test_other_latencies_may_be_told(run: Path, tmp_path: Path, elpase) -> None:
    asked = ("--percentile-metrics", "e2el", "--metric-percentiles", 50, "--goodput", "ttft:200")
    assert elpase("replay", "azure-conv", "--limit", 5, *asked, "--out", tmp_path / "few").code == 0
    assert elpase("report", tmp_path / "few").code == 0


def test_files_of_two_runs(run: Path, elpase) -> None:
    said = json.loads((run / "result.json").read_text(encoding="utf-8"))
    (run / "result.json").write_text(json.dumps(said | {"num_prompts": 31}), encoding="utf-8")
    error = elpase("report", run).error
    assert (
        error == f"{run}: result.json says num_prompts 31, requests.parquet has 30 requests: they are of different runs"
    )
    sim = said["sim"] | {"seed": 5}
    (run / "result.json").write_text(json.dumps(said | {"sim": sim}), encoding="utf-8")
    assert elpase("report", run).error == f"{run}: result.json and requests.parquet are of different runs"


def test_steps_of_another_run(run: Path, tmp_path: Path, elpase) -> None:
    assert elpase("replay", "azure-conv", "--limit", 30, "--seed", 1, "--out", tmp_path / "other").code == 0
    shutil.copy(tmp_path / "other" / "steps.parquet", run)
    assert "steps.parquet and requests.parquet are of different runs" in elpase("report", run).error


def test_a_run_of_another_version(run: Path, elpase) -> None:
    frames = read_frames(run)
    frames.meta["elpase_version"] = "9.1.0"
    write_frames(frames, run)
    assert "made by elpase 9.1.0, this is 0.1.0: replay it again" in elpase("report", run).error
    frames.meta["elpase_version"] = "0.1.0"
    del frames.steps["decodes"]
    write_frames(frames, run)
    assert "steps have no decodes: another version's run, replay it again" in elpase("report", run).error


def test_an_output_that_cannot_be_written(run: Path, tmp_path: Path, elpase) -> None:
    assert "is a directory" in elpase("report", run, "-o", tmp_path).error
    assert elpase("report", run, "-o", tmp_path / "no" / "where.html").error.endswith("No such file or directory")


def test_a_run_that_was_cut_short_is_told(run: Path, elpase) -> None:
    """Half of the requests unfinished, as Ctrl-C leaves them."""
    from sim.report.frames import Frames
    from sim.report.result_file import write_json
    from sim.report.summary import summarize

    frames = read_frames(run)
    requests = frames.requests
    cut = requests.index >= 15
    requests["status"] = pd.Series(["unfinished" if late else "finished" for late in cut], dtype="str")
    requests.loc[cut, "finish_s"] = float("nan")
    frames = Frames(requests, frames.itls, frames.steps, {**frames.meta, "partial": True})
    write_frames(frames, run)
    write_json(summarize(frames), run / "result.json")
    assert elpase("report", run).code == 0
    text = (run / "report.html").read_text(encoding="utf-8")
    assert "Cut short: 15 requests did not finish, and are not in the latencies." in text
    assert "15 of 30 requests finished" in text
    assert "Not explained: was cut short (partial)" in text
