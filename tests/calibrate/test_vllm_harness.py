"""The vLLM harness apart from vLLM: its waves, what it reads, whom it refuses; with ELPASE_VLLM_PYTHON vLLM too."""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path

import pytest

from calibrate.harness.interpreter import Interpreter, clean_environment, find_interpreter, last_words
from calibrate.harness.vllm import (
    EngineJob,
    Wave,
    engine_arguments,
    origin,
    plan_waves,
    read_records,
    run_job,
    timed_steps,
)
from calibrate.live_model import SMALL_LLAMA, write_model
from calibrate.samples import Samples
from sim.errors import InputError

REAL = os.environ.get("ELPASE_VLLM_PYTHON")


# -- waves -------------------------------------------------------------------------------------------------------------


def test_waves_cover_prompts_and_decodes() -> None:
    waves = plan_waves(4096, 64)
    prompts = {wave.prompts[0] for wave in waves if not wave.decode_steps}
    assert prompts == {1 << i for i in range(12)}
    decodes = {(len(wave.prompts), wave.prompts[0]) for wave in waves if wave.decode_steps}
    assert {(1, 128), (32, 128), (32, 2048)} <= decodes
    assert max(context for _, context in decodes) < 4096
    assert len({wave.id for wave in waves}) == len(waves)


def test_a_mixed_prompt_still_finds_a_place() -> None:
    assert max(len(wave.prompts) + bool(wave.mixed) for wave in plan_waves(4096, 64)) <= 64


def test_any_beginning_covers_the_range() -> None:
    """A short budget still meets short and long, few and many."""
    first = plan_waves(32_768, 256)[:8]
    prompts = [wave.prompts[0] for wave in first if not wave.decode_steps]
    batches = [len(wave.prompts) for wave in first if wave.decode_steps]
    assert max(prompts) >= 64 * min(prompts)
    assert max(batches) >= 16 * min(batches)


# -- what is read ------------------------------------------------------------------------------------------------------


def step(rows, device_s, *, host_s=0.001, graph="FULL", padded=None, sampled=None):
    tokens = sum(n for n, _ in rows)
    return {
        "rows": rows, "sampled": len(rows) if sampled is None else sampled, "device_s": device_s, "host_s": host_s,
        "padded": tokens if padded is None else padded, "graph": graph,
    }  # fmt: skip


META = {
    "device": "NVIDIA H200", "device_memory_bytes": 1 << 37, "driver": "570.1", "dtype": "bfloat16", "threads": 16,
    "versions": {"vllm": "0.32.0", "torch": "2.13.0", "cuda": "12.8"}, "num_gpu_blocks": 1000, "block_size": 16,
    "max_num_batched_tokens": 8192, "max_num_seqs": 256, "max_model_len": 32768, "capture_sizes": [1, 2, 4],
    "tensor_parallel_size": 1,
}  # fmt: skip


def test_decodes_in_a_row_are_one_sample() -> None:
    decodes = [step([[1, 100 + i], [1, 200 + i]], 0.010 + 0.001 * i, padded=4) for i in range(5)]
    records = [{"wave": "a", "steps": [step([[100, 0], [200, 0]], 0.05, graph="NONE"), *decodes]}]
    prompt, decode = timed_steps(records)
    assert prompt.chunks == ((100, 0), (200, 0))
    assert (prompt.repeats, prompt.graph) == (1, "none")
    assert math.isnan(prompt.spread)
    assert decode.decodes == (102, 202)
    assert decode.seconds == pytest.approx(0.012)
    assert (decode.repeats, decode.padded_tokens, decode.graph) == (5, 4, "full")
    assert decode.spread == pytest.approx(0.00136 / 0.012, rel=0.01)


def test_mixed_steps_stay_apart() -> None:
    mixed = step([[1, 100], [16, 0]], 0.02, graph="CUDAGraphMode.PIECEWISE", sampled=1)
    found = list(timed_steps([{"wave": "a", "steps": [mixed, mixed | {"rows": [[1, 101], [16, 16]]}]}]))
    assert [s.regime for s in found] == ["mixed", "mixed"]
    assert (found[0].decodes, found[0].chunks, found[0].num_sampled) == ((100,), ((16, 0),), 1)
    assert found[0].graph == "piecewise"


def test_where_the_samples_come_from() -> None:
    records = [{"meta": META}, {"wave": "a", "steps": [step([[8, 0]], 0.1)]}, {"wave": "b", "skipped": "too long"}]
    found = origin(records, "tiny", SMALL_LLAMA, "elpase calibrate vllm")
    assert (found.device, found.engine_version, found.capture_sizes) == ("NVIDIA H200", "0.32.0", (1, 2, 4))
    assert found.server["max_num_batched_tokens"] == 8192
    assert found.notes["skipped"] == {"b": "too long"}
    assert len(Samples.of_steps(timed_steps(records), found)) == 1


def test_starts_on_two_devices_do_not_mix() -> None:
    with pytest.raises(InputError, match=r"device: got .*NVIDIA H200.*NVIDIA H100"):
        origin([{"meta": META}, {"meta": META | {"device": "NVIDIA H100"}}], "tiny", {}, "")


def test_a_file_whose_last_line_was_cut(tmp_path: Path) -> None:
    file = tmp_path / "steps.jsonl"
    file.write_text('{"wave": "a", "steps": []}\n{"wave": "b", "st', encoding="utf-8")
    assert [record["wave"] for record in read_records(file)] == ["a"]
    file.write_text('{"wave": "a", "st\n{"wave": "b", "steps": []}\n', encoding="utf-8")
    with pytest.raises(InputError, match=r"steps.jsonl:1: not JSON"):
        read_records(file)
    assert read_records(tmp_path / "none") == []


def test_a_finished_job_starts_nothing(tmp_path: Path) -> None:
    out = tmp_path / "steps.jsonl"
    out.write_text('{"wave": "a", "steps": []}\n', encoding="utf-8")
    seen: list[int] = []
    nobody = Interpreter(tmp_path / "no-python", "0.32.0")
    run_job(nobody, EngineJob({}, [Wave("a", (8,))], out, 1.0), lambda: seen.append(1))
    assert seen == [1]


def test_an_engine_that_fails_is_told_in_one_line(tmp_path: Path) -> None:
    """This interpreter has no vllm, as the script finds out."""
    job = EngineJob({}, [Wave("a", (8,))], tmp_path / "steps.jsonl", 1.0)
    with pytest.raises(InputError, match="vLLM ended with status 1: ModuleNotFoundError"):
        run_job(Interpreter(Path(sys.executable), "0.32.0"), job, lambda: None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["steps.log"]


# -- interpreters ------------------------------------------------------------------------------------------------------


def fake_python(folder: Path, versions: list[str], *, found: bool = True) -> Path:
    """A program that answers as an interpreter with these versions of vLLM would."""
    answer = json.dumps({"found": found, "versions": versions})
    path = folder / "python"
    path.write_text(f"#!/bin/sh\necho some warning\necho '{answer}'\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(("version", "cpu"), [("0.32.0", False), ("0.32.1+cpu", True)])
def test_an_interpreter_of_the_line(tmp_path: Path, version: str, cpu: bool) -> None:
    vllm = find_interpreter(fake_python(tmp_path, [version]))
    assert (vllm.version, vllm.is_cpu, vllm.command) == (version, cpu, tmp_path / "vllm")


@pytest.mark.parametrize("version", ["0.31.0", "0.33.0", "0.3.2", "0.320.1"])
def test_another_version_is_refused(tmp_path: Path, version: str) -> None:
    with pytest.raises(InputError, match=f"vLLM: got '{version}', expected 0.32.x"):
        find_interpreter(fake_python(tmp_path, [version]))


def test_interpreters_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such interpreter"):
        find_interpreter(tmp_path / "missing")
    with pytest.raises(InputError, match="has no vLLM"):
        find_interpreter(sys.executable)
    plain = tmp_path / "text"
    plain.write_text("hello", encoding="utf-8")
    with pytest.raises(InputError, match="no such interpreter"):
        find_interpreter(plain)
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\nexit 3\n", encoding="utf-8")
    silent.chmod(0o755)
    with pytest.raises(InputError, match="no Python interpreter that answers"):
        find_interpreter(silent)


def test_our_packages_are_not_seen_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/ours")
    found = clean_environment(OMP_NUM_THREADS="1")
    assert "PYTHONPATH" not in found
    assert found["OMP_NUM_THREADS"] == "1"
    assert found["PATH"] == os.environ["PATH"]


def test_last_words(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("INFO start\nValueError: no such model\n  cleaning up\n\n", encoding="utf-8")
    assert last_words(log) == "ValueError: no such model"
    log.write_text("INFO start\nlast\n", encoding="utf-8")
    assert last_words(log) == "last"
    log.write_text("", encoding="utf-8")
    assert last_words(log) == "nothing was logged"


# -- the real thing ----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(REAL is None, reason="ELPASE_VLLM_PYTHON does not name a Python with vLLM 0.32")
def test_the_real_engine(tmp_path: Path) -> None:
    """Waves come out as they were asked for, with contexts that grow token by token, and times for device and host."""
    assert REAL is not None
    vllm = find_interpreter(REAL)
    model = write_model(tmp_path / "model")
    arguments = engine_arguments(
        model, dtype="float32", max_model_len=1024, max_num_batched_tokens=64, max_num_seqs=8, enforce_eager=True,
        block_size=32,
    )  # fmt: skip
    out = tmp_path / "steps.jsonl"
    waves = [Wave("one", (40, 40), 3, (20,)), Wave("too long", (2000,))]
    environment = {"OMP_NUM_THREADS": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    run_job(vllm, EngineJob(arguments, waves, out, 60.0, environment), lambda: None)
    _, one, too_long = read_records(out)
    assert [s["rows"] for s in one["steps"]] == [
        [[40, 0], [24, 0]],
        [[1, 40], [16, 24]],
        *([[1, 41 + i], [1, 40 + i]] for i in range(3)),
        [[1, 44], [1, 43], [20, 0]],
    ]
    assert [s["sampled"] for s in one["steps"]] == [1, 2, 2, 2, 2, 3]
    assert all(s["device_s"] > 0 and s["host_s"] > 0 for s in one["steps"])
    assert "max_model_len" in too_long["skipped"]
