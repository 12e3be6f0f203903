"""`calibrate log`, `calibrate vllm` and `validate live` as commands: what they write, and one line for bad input."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from calibrate.cli_live import command as live
from calibrate.live_model import write_model
from calibrate.samples_file import read_samples
from sim.cli.main import main
from sim.latency.profile import Profile

DATA = Path(__file__).parent / "data"
STEP = (
    "Iteration(0): 0 context requests, 0 context tokens, 1 generation requests, {tokens} generation tokens, iteration "
    "elapsed time: 9.00 ms\n"
)
REAL = os.environ.get("ELPASE_VLLM_PYTHON")


def elpase(*words: object) -> tuple[int, str]:
    """Exit code and what stood on stderr."""
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return int(ended.value.code or 0), ""


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]):
    """Runs elpase; returns the exit code and the lines on stdout and stderr."""

    def run(*words: object) -> tuple[int, str, str]:
        code, _ = elpase(*words)
        captured = capsys.readouterr()
        return code, captured.out.strip(), captured.err.strip()

    return run


# -- calibrate log -----------------------------------------------------------------------------------------------------


def test_a_log_becomes_samples(told, tmp_path: Path) -> None:
    out = tmp_path / "samples.parquet"
    code, said, _ = told(
        "calibrate", "log", DATA / "vllm_0_32.log", "--gpu", "a CPU", "--model", "tiny", "--dtype", "float32",
        "--out", out,
    )  # fmt: skip
    assert code == 0
    assert said.startswith("14 samples in ")
    samples = read_samples(out)
    assert samples.chunk_tokens[:2].tolist() == [389, 511]
    origin = samples.origins[0]
    assert (origin.device, origin.engine, origin.engine_version) == ("a CPU", "vllm", "0.32.0")
    assert origin.server == {"async_scheduling": False}
    assert origin.command.startswith("elpase calibrate log")
    assert str(tmp_path) not in origin.command


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--gpu", "", "--model", "tiny"), "--gpu: got '', expected a name"),
        (("--gpu", "a CPU", "--model", ""), "--model: got '', expected a name"),
        (("--gpu", "a", "--model", "b", "--device-memory", "0"), "--device-memory: got 0, expected bytes, 1 or more"),
        (("--gpu", "a", "--model", "b", "--device-memory", "-5"), "--device-memory: got -5, expected bytes, 1 or more"),
    ],
)
def test_origins_that_say_nothing(told, tmp_path: Path, words: tuple[str, ...], line: str) -> None:
    out = tmp_path / "samples.parquet"
    assert told("calibrate", "log", DATA / "vllm_0_32_stamped.log", *words, "--out", out)[::2] == (
        2,
        f"elpase: error: {line}",
    )
    assert not out.exists()


def test_a_name_of_the_catalogue_is_the_devices_own(told, tmp_path: Path) -> None:
    out = tmp_path / "samples.parquet"
    told("calibrate", "log", DATA / "vllm_0_32.log", "--gpu", "h100", "--model", "qwen3-14b", "--out", out)
    assert "H100" in read_samples(out).origins[0].device


def test_a_device_and_a_model_of_no_catalogue(told, tmp_path: Path) -> None:
    """All that a profile of them needs, so that fitting does not ask again."""
    out, model = tmp_path / "samples.parquet", DATA / "vllm_cpu/config.json"
    words = ("--gpu", "AMD EPYC", "--device-memory", "24G", "--model", model, "--dtype", "float32", "--out", out)
    assert told("calibrate", "log", DATA / "vllm_0_32_stamped.log", *words)[0] == 0
    origin = read_samples(out).origins[0]
    assert (origin.model, origin.model_config["hidden_size"]) == ("vllm_cpu", 256)
    assert origin.notes["device_memory_bytes"] == 24 << 30
    made = tmp_path / "mine.json"
    assert told("calibrate", "fit", out, "--term", "none", "--out", made)[0] == 0
    profile = Profile.load(made)
    # K and V of 4 layers: 2 heads of 64 floats each
    assert (profile.device_memory_bytes, profile.kv_bytes_per_token) == (24 << 30, 4 * 2 * 2 * 64 * 4)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("hello\n", "no iteration lines"),
        (f"Asynchronous scheduling is enabled.\n{STEP.format(tokens=1)}", "taken under async scheduling"),
        (
            f"{STEP.format(tokens=9)}Asynchronous scheduling is disabled.\n",
            "no step whose totals say what was computed",
        ),
    ],
)
def test_logs_that_say_nothing(told, tmp_path: Path, text: str, line: str) -> None:
    log, out = tmp_path / "server.log", tmp_path / "samples.parquet"
    log.write_text(text, encoding="utf-8")
    code, said, error = told("calibrate", "log", log, "--gpu", "h100", "--model", "m", "--out", out)
    assert (code, said) == (2, "")
    assert error.count("\n") == 0
    assert f"server.log: {line}" in error
    assert not out.exists()


def test_a_log_without_a_head_needs_somebodys_word(told, tmp_path: Path) -> None:
    log, out = tmp_path / "server.log", tmp_path / "samples.parquet"
    text = (DATA / "vllm_0_32_stamped.log").read_text(encoding="utf-8").replace("CPU KV", "GPU KV")
    log.write_text(text, encoding="utf-8")
    words = ("calibrate", "log", log, "--gpu", "h100", "--model", "m", "--out", out)
    assert told(*words)[0] == 2
    assert told(*words, "--synchronous")[0] == 0
    assert len(read_samples(out)) == 80


# -- calibrate vllm, validate live -------------------------------------------------------------------------------------


def test_an_interpreter_without_vllm(told, tmp_path: Path) -> None:
    model, out = write_model(tmp_path / "model"), tmp_path / "samples.parquet"
    code, _, error = told("calibrate", "vllm", "--vllm-python", sys.executable, "--model", model, "--out", out)
    assert code == 2
    assert "has no vLLM, expected a Python interpreter that has vLLM 0.32" in error
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--vllm-python", "/no/python"], "no such interpreter"),
        (["--vllm-python", sys.executable, "--budgets", "many"], "expected whole numbers such as 128,512,2048"),
        (["--vllm-python", sys.executable, "--budgets", "0,5"], "expected numbers of 1 or more"),
        (["--vllm-python", sys.executable, "--rates", "2,0"], "expected requests per second, above 0"),
        (["--vllm-python", sys.executable, "--rates", "fast"], "expected auto, or numbers such as 2,5,inf"),
        (["--vllm-python", sys.executable, "--repeats", "0"], "--repeats"),
    ],
)
def test_bad_input_to_validate_live(tmp_path: Path, words: list[str], line: str) -> None:
    out = tmp_path / "out"
    result = CliRunner().invoke(live, [*words, "--out", str(out)], standalone_mode=True)
    assert result.exit_code != 0
    assert line in (result.output + str(result.exception))
    assert not out.exists()


@pytest.mark.skipif(REAL is None, reason="ELPASE_VLLM_PYTHON does not name a Python with vLLM 0.32")
def test_a_small_live_validation(tmp_path: Path) -> None:
    """Real servers, two settings; the second call finds all runs there."""
    assert REAL is not None
    out = tmp_path / "out"
    words = ["--vllm-python", REAL, "--out", str(out), "--budgets", "128", "--rates", "inf", "--repeats", "1", "--json",
             "--num-prompts", "20"]  # fmt: skip
    first = CliRunner().invoke(live, words, catch_exceptions=False)
    document = json.loads(first.stdout)
    assert document["real_runs"] == 3
    assert {check["cell"] for check in document["checks"]} == {"128 @ inf", "512, 100 blocks @ inf"}
    assert all(abs(check["error"]) < 1.0 for check in document["checks"])
    runs = {path: path.stat().st_mtime for path in out.rglob("run.json")}
    assert len(runs) == 3
    again = json.loads(CliRunner().invoke(live, words, catch_exceptions=False).stdout)
    assert {path: path.stat().st_mtime for path in out.rglob("run.json")} == runs
    assert again["checks"] == document["checks"]
