"""`elpase compare`: exit codes, folders, and one clear line for what is no result."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def runs(tmp_path_factory, elpase) -> Path:
    """A folder with two runs of one workload, `plain` and `small` (another token budget)."""
    folder = tmp_path_factory.mktemp("runs")
    for name, budget in (("plain", 8192), ("small", 512)):
        args = ("azure-conv", "--limit", 40, "--max-num-batched-tokens", budget, "--out", folder / name)
        assert elpase("replay", *args).code == 0
    return folder


@pytest.fixture(scope="module")
def real() -> dict:
    """What the real vLLM's benchmark wrote (12 requests, 4 in flight)."""
    golden = json.loads((ROOT / "tests/sim/report/golden/bench_serve.json").read_text(encoding="utf-8"))
    return golden["cases"]["capped_all_metrics"]["result"]


def test_a_run_is_equal_to_itself(runs: Path, elpase) -> None:
    done = elpase("compare", runs / "plain", runs / "plain" / "result.json", "--tolerance", "p99_itl_ms=0")
    assert done.code == 0
    assert "+0.0 %" not in done.out
    assert " 0.0 %" in done.out
    assert "within 0.0 %" in done.out
    assert "Not the same workload" not in done.out
    assert "throughput x mean latency" in done.out


def test_a_small_budget_is_beyond_a_tolerance(runs: Path, elpase) -> None:
    args = ("compare", runs / "plain", runs / "small", "--tolerance", "p99_itl_ms=0.2", "--json")
    done = elpase(*args, "--tolerance", "output_throughput=0.2")
    assert done.code == 1
    (told,) = json.loads(done.out)
    figures = told["figures"]
    assert figures["p99_itl_ms"]["within"] is False
    assert figures["output_throughput"]["within"] is True
    wanted = [json.loads((runs / name / "result.json").read_text()) for name in ("plain", "small")]
    ratio = wanted[1]["p99_itl_ms"] / wanted[0]["p99_itl_ms"]
    assert figures["p99_itl_ms"]["error"] == pytest.approx(ratio - 1)
    assert told["sound"] is True


def test_a_file_that_breaks_a_law_ends_with_1(tmp_path: Path, real: dict, elpase) -> None:
    (tmp_path / "real.json").write_text(json.dumps(real | {"duration": 50.0}), encoding="utf-8")
    done = elpase("compare", tmp_path / "real.json", tmp_path / "real.json")
    assert done.code == 1
    assert "BROKEN  real       Rates: request_throughput" in done.out


def test_what_the_real_benchmark_wrote_is_sound(tmp_path: Path, real: dict, elpase) -> None:
    (tmp_path / "real.json").write_text(json.dumps(real), encoding="utf-8")
    done = elpase("compare", tmp_path / "real.json", tmp_path / "real.json", "--json")
    assert done.code == 0
    (told,) = json.loads(done.out)
    for key, figure in told["figures"].items():
        if key in real:
            assert figure["real"] == pytest.approx(real[key], rel=1e-9), key


def test_folders_are_matched_by_names(runs: Path, tmp_path: Path, elpase) -> None:
    shutil.copytree(runs, tmp_path / "other")
    shutil.copytree(runs / "plain", tmp_path / "other" / "third")
    done = elpase("compare", runs, tmp_path / "other", "--json")
    assert [told["name"] for told in json.loads(done.out)] == ["plain", "small"]
    assert done.err == f"elpase: note: only in {tmp_path / 'other'}: third\n"
    table = elpase("compare", runs, tmp_path / "other").out
    assert [line.split()[0] for line in table.splitlines()[:3]] == ["error", "plain", "small"]
    (only,) = json.loads(elpase("compare", runs, tmp_path / "other", "--run", "small", "--json").out)
    assert only["name"] == "small"


def test_a_sweep_s_layout_is_read(runs: Path, tmp_path: Path, elpase) -> None:
    """As `vllm bench sweep serve` leaves it: a folder per combination, run=N.json, and the same again in a summary."""
    for name in ("SERVE--max_num_batched_tokens=512-BENCH--request_rate=4", "BENCH--request_rate=8"):
        folder = tmp_path / "sweep" / name
        folder.mkdir(parents=True)
        shutil.copy(runs / "plain" / "result.json", folder / "run=0.json")
        (folder / "summary.json").write_text('[{"run_number": 0}]', encoding="utf-8")
    told = json.loads(elpase("compare", tmp_path / "sweep", tmp_path / "sweep", "--json").out)
    assert [one["name"].partition("/")[2] for one in told] == ["run=0", "run=0"]


def test_our_sweep_beside_vllm_s(tmp_path: Path, elpase) -> None:
    """The folder of `elpase sweep`, and inside it the one that `vllm bench sweep serve` would have left."""
    ours = tmp_path / "ours"
    args = ("azure-conv", "--limit", 10, "--vary", "max_num_batched_tokens=512,2048", "--out", ours)
    assert elpase("sweep", *args).code == 0
    done = elpase("compare", ours / "bench_sweep", ours, "--json")
    assert done.code == 0, done
    names = [f"SERVE--max_num_batched_tokens={budget}/run=0" for budget in (2048, 512)]
    assert [told["name"] for told in json.loads(done.out)] == names


@pytest.mark.parametrize("pair", [("plain", "small"), ("", "")], ids=["one pair", "many"])
@pytest.mark.parametrize("kind", ["png", "svg"])
def test_pictures(runs: Path, tmp_path: Path, elpase, pair: tuple[str, str], kind: str) -> None:
    path = tmp_path / f"errors.{kind}"
    assert elpase("compare", *(runs / name for name in pair), "--plot", path).code == 0
    opening = path.read_bytes()[:100]
    assert opening.startswith(b"\x89PNG" if kind == "png" else b"<?xml")


BAD = {
    "another file": ('{"a": 1}', "not a result, expected a result of vllm bench serve, elpase replay, GuideLLM"),
    "truncated": ('{"completed": 1, "dur', ":1: not JSON: Unterminated string"),
    "a list": ("[1, 2]", "not a result"),
    "a summary": ('[{"run_number": 0}]', "a sweep's summary of several results"),
    "appended": ('{"output_throughput": 1}\n{"output_throughput": 2}', "several results in one file"),
    "a CSV": ("0.5,100,5\n0.7,80,9\n", ":1: not JSON: Extra data"),
    "lines of JSON": ('{"arrival_s": 0.5}\n{"arrival_s": 1}', ":2: not JSON: Extra data"),
    "pretty, and then another": ('{\n "a": 1\n}\n{}', ":4: not JSON: Extra data"),
    "binary": (b"\xff\xfe\x00", "not JSON: not text"),
    "nothing": ("", "not JSON"),
    "brackets": ("[" * 100_000, "not JSON that can be read: nested too deep"),
    "a number without end": ('{"a": ' + "9" * 5000 + "}", "not JSON that can be read: Exceeds the limit"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_result_is_one_line(tmp_path: Path, runs: Path, elpase, case: str) -> None:
    content, told = BAD[case]
    path = tmp_path / "bad.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    error = elpase("compare", runs / "plain", path).error
    assert error.startswith(str(path))
    assert told in error


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"completed": 0}, "completed: no request was answered"),
        ({"mean_ttft_ms": float("nan")}, "mean_ttft_ms: got nan, expected a finite number"),
        ({"mean_ttft_ms": "12"}, "mean_ttft_ms: got '12', expected a finite number"),
        ({"duration": None}, "duration: missing, expected a finite number"),
        ({"ttfts": [0.1]}, "of different lengths"),
        ({"ttfts": [float("nan")] * 12}, "ttfts[0]: got nan, expected numbers from 0 "),
        ({"ttfts": [1e308] * 12}, "ttfts[0]: got 1e+308, expected numbers from 0 to 1e"),
        ({"ttfts": [True] * 12}, "ttfts[0]: got True, expected numbers"),
        ({"request_throughput": 1e308}, "request_throughput: got 1e+308, expected a finite number from 0 to 1e"),
        ({"itls": None}, "itls: expected a list: was it written with --save-detailed?"),
        ({"max_concurrency": 0}, "max_concurrency: got 0, expected an integer >= 1"),
    ],
)
def test_a_field_that_will_not_do_is_named(tmp_path: Path, real: dict, elpase, change: dict, told: str) -> None:
    (tmp_path / "real.json").write_text(json.dumps(real | change), encoding="utf-8")
    error = elpase("compare", tmp_path / "real.json", tmp_path / "real.json").error
    assert error.startswith(f"{tmp_path / 'real.json'}")
    assert told in error


def test_a_model_s_name_cannot_write_over_the_terminal(runs: Path, tmp_path: Path, elpase) -> None:
    plain = runs / "plain" / "result.json"
    evil = tmp_path / "evil.json"
    sim = {"partial": True, "unfinished": "c\x1b[2J"}
    evil.write_text(json.dumps({**json.loads(plain.read_text()), "model_id": "a\nb\x1b[31m", "sim": sim}))
    told = elpase("compare", plain, evil).out
    assert all(line.isprintable() for line in told.splitlines())
    assert re.search(r", a b \[31m, \d+ requests in ", told)
    assert re.search(r"another model: .*, a b \[31m\n", told)
    assert "cut short: some requests unfinished\n" in told


def test_a_count_that_no_float_holds(runs: Path, tmp_path: Path, elpase) -> None:
    plain = runs / "plain" / "result.json"
    sim = {"partial": True, "unfinished": 10**400}
    (tmp_path / "big.json").write_text(json.dumps({**json.loads(plain.read_text()), "sim": sim}))
    assert "cut short: some requests unfinished\n" in elpase("compare", plain, tmp_path / "big.json").out


def test_flags_that_will_not_do(runs: Path, tmp_path: Path, elpase) -> None:
    plain = runs / "plain"
    assert "did you mean mean_ttft_ms?" in elpase("compare", plain, plain, "--tolerance", "mean_tftt_ms=0.1").error
    for text in ("mean_ttft_ms", "=1", "mean_ttft_ms=x", "mean_ttft_ms=nan", "mean_ttft_ms=-1"):
        assert "expected METRIC=FRACTION" in elpase("compare", plain, plain, "--tolerance", text).error
    assert "expected one of plain, small" in elpase("compare", runs, runs, "--run", "big").error
    lone = elpase("compare", plain, plain, "--run", "big").error
    assert lone == "--run: got 'big', expected plain, or none, as there is one of each"
    assert elpase("compare", plain, plain, "--run", "plain").code == 0
    (tmp_path / "empty").mkdir()
    assert "no result in this folder" in elpase("compare", runs, tmp_path / "empty").error
    shutil.copytree(plain, tmp_path / "others" / "x")
    shutil.copytree(plain, tmp_path / "others" / "y")
    assert "(plain, small) has the name of one of" in elpase("compare", runs, tmp_path / "others").error
    assert "--run says which" in elpase("compare", runs, tmp_path / "others" / "x").error
