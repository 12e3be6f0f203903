"""Whatever the user gets wrong is one line on stderr, exit code 2, and no file more than before."""

from __future__ import annotations

import gzip
import json
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import sim.latency.profile
from sim.cli.flags import REMOVED

ELPASE = str(Path(sys.executable).with_name("elpase"))
HEADER = "arrival_s,prompt_tokens,output_tokens\n"
GOOD = f"{HEADER}0,10,2\n"
SHIPPED = Path(sim.latency.profile.__file__).parent / "profiles/h100-qwen3-14b.json"

JSON_LINE = '{"arrival_s": 0, "prompt_tokens": 10, "output_tokens": 2}\n'

FILES: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", "t: file: got 'an empty file', expected a trace"),
    "only blank lines": ("\n \r\n\n", "t: file: got 'an empty file', expected a trace"),
    "only a header": (HEADER, "t:1: rows: got 'only a header', expected at least one row"),
    "no header": ("0,10,2\n", "t:1: header: got '0,10,2', expected a line of column names above the rows"),
    "truncated row": (f"{GOOD}1,10", "t:3: columns: got '1,10', expected 3 values"),
    "truncated JSON": (JSON_LINE + JSON_LINE[:-4], "t:2: JSON: got 'the end of the text', expected one whole JSON"),
    "truncated gzip": (gzip.compress(GOOD.encode())[:-9], "gzip data: got 'Compressed file ended"),
    "binary": (bytes(range(256)) * 4, "t:1: encoding: got b'"),
    "UTF-16": (GOOD.encode("utf-16"), r"t:1: encoding: got b'\xff', expected UTF-8 text"),
    "old Mac line ends": (GOOD.replace("\n", "\r"), "t:1: line: got "),
    "semicolons": (GOOD.replace(",", ";"), "t:1: separator: got ';', expected columns separated by ','"),
    "tabs": (GOOD.replace(",", "\t"), r"t:1: separator: got '\t', expected columns separated by ','"),
    "mixed CSV and JSON": (GOOD + JSON_LINE, "t:3: arrival_s: got '{"),
    "mixed JSON and CSV": (JSON_LINE + GOOD, "t:2: JSON: got 'arrival_s"),
    "two dialects in one file": (f"{GOOD}TIMESTAMP,ContextTokens,GeneratedTokens\n", "t:3: arrival_s: got 'TIMESTAMP'"),
    "some other table": ("name,size\nx,3\n", "t:1: format: got 'name,size', expected one of: azure ("),
    "unsorted": (f"{HEADER}5,1,1\n4,1,1\n", "t:3: arrival_s: got '4', expected a time not before the row above"),
    "nothing usable": (f"{HEADER}0,0,5\n", "t: requests: got '1 skipped: prompt of 0 tokens', expected at least one"),
    "all too long": (f"{HEADER}0,50000,5\n", "t: requests: got '1 skipped: longer than max_model_len'"),
}
CELLS = {
    "negative time": ("-1,10,2", "arrival_s: got '-1', expected seconds from 0"),
    "NaN time": ("nan,10,2", "arrival_s: got 'nan', expected seconds from 0"),
    "infinite time": ("inf,10,2", "arrival_s: got 'inf', expected seconds from 0"),
    "huge time": ("1e300,10,2", "arrival_s: got '1e300', expected seconds from 0 to 1000000000"),
    "time of text": ("noon,10,2", "arrival_s: got 'noon', expected seconds from 0"),
    "negative tokens": ("0,-10,2", "prompt_tokens: got '-10', expected an integer from 0"),
    "NaN tokens": ("0,nan,2", "prompt_tokens: got 'nan', expected an integer from 0"),
    "half a token": ("0,10,2.5", "output_tokens: got '2.5', expected an integer from 0"),
    "tokens of text": ("0,10,many", "output_tokens: got 'many', expected an integer from 0"),
    "huge tokens": ("0,10,99999999999999999999", "output_tokens: got '99999999999999999999', expected an integer"),
    "tokens of 5000 digits": ("0," + "9" * 5000 + ",2", "prompt_tokens: got '9999"),
    "no tokens": ("0,,2", "prompt_tokens: got '', expected an integer"),
}
FILES |= {name: (f"{GOOD}{row}\n", f"t:3: {told}") for name, (row, told) in CELLS.items()}

FLAGS: dict[str, tuple[list[str], str]] = {
    "unknown flag": (["--max-num-seq", "4"], "--max-num-seqs"),
    "unknown flag far from all": (["--zzz"], "No such option '--zzz'"),
    "a flag of vllm serve": (
        ["--model", "x"],
        "No such option '--model'; model, GPU and times are those of the latency",
    ),
    "a flag of vllm bench": (["--save-result"], "No such option '--save-result'; results go to the folder that --out"),
    "empty profile": (["--profile", ""], "profile: got '', expected the path of a profile"),
    "text for a number": (["--max-num-seqs", "many"], "Invalid value for '--max-num-seqs': 'many'"),
    "no value": (["--max-num-seqs"], "'--max-num-seqs' requires an argument"),
    "an argument too many": (["another.csv"], "Got unexpected extra argument (another.csv)"),
    "no seats": (["--max-num-seqs", "0"], "max_num_seqs: got 0"),
    "huge seats": (["--max-num-seqs", "9" * 30], "max_num_batched_tokens: got 8192, expected at least max_num_seqs"),
    "huge blocks": (["--num-gpu-blocks-override", "9" * 12], "num_gpu_blocks: got 999999999999, expected from 2"),
    "NaN": (["--watermark", "nan"], "watermark: got nan"),
    "not built yet": (["--stream-interval", "4"], "--stream-interval"),
    "budget below seats": (
        ["--max-num-batched-tokens", "64", "--max-num-seqs", "128"],
        "max_num_batched_tokens: got 64, expected at least max_num_seqs (128)",
    ),
    "active above seats": (
        ["--max-num-active-seqs", "300", "--max-num-seqs", "256"],
        "max_num_active_seqs: got 300, expected from 1 to max_num_seqs (256)",
    ),
    "no chunks and a budget below the longest prompt": (
        ["--no-enable-chunked-prefill", "--max-num-batched-tokens", "2048"],
        "max_num_batched_tokens: got 2048, expected at least max_model_len (40960) when chunked prefill is off",
    ),
    "threshold above the longest prompt": (
        ["--long-prefill-token-threshold", "5000", "--max-model-len", "4096"],
        "long_prefill_token_threshold: got 5000, expected from 0 (none) to max_model_len (4096)",
    ),
    "longer than the model": (["--max-model-len", "50000"], "max_model_len: got 50000, expected at most 40960"),
    "too few blocks": (["--num-gpu-blocks-override", "100"], "max_model_len: got 40960, expected at most 1584"),
    "unknown profile": (["--profile", "h200"], "profile: got 'h200', expected the path of a profile, or one of cpu"),
    "profile that is a trace": (["--profile", "t"], "t:1: not JSON"),
    "unknown metric": (["--percentile-metrics", "ttfb"], "--percentile-metrics: got 'ttfb', expected any of ttft"),
    "percentile of 101": (["--metric-percentiles", "101"], "--metric-percentiles: got '101', expected numbers from 0"),
    "unknown service level": (["--goodput", "itl:5"], "--goodput: got 'itl:5'"),
    "service level of text": (["--goodput", "ttft:soon"], "--goodput: got 'soon'"),
    "brackets": (["--compilation-config", "[" * 100_000], "compilation_config: got '[[[["),
    "brackets of a key": (["-cc.mode", "[" * 100_000], "compilation_config.mode: got '[[[["),
    "brackets for a ratio": (["--random-range-ratio", "[" * 100_000], "is neither a number nor {"),
    "timeline without a place": (["--timeline"], "--timeline needs --out"),
    "limit of 0": (["--limit", "0"], "Invalid value for '--limit': 0"),
    "negative seed": (["--seed", "-1"], "Invalid value for '--seed': -1"),
    "window of nothing": (["--start", "50"], "t: requests: got 'none in the window, the last one read is at 0 s'"),
    "window backwards": (["--start", "5", "--end", "3"], "--end: got 3.0"),
    "NaN start": (["--start", "nan"], "--start: got nan, expected seconds >= 0"),
    "rate scale of 0": (["--rate-scale", "0"], "--rate-scale: got 0.0, expected a finite number > 0"),
    "strict": (["--strict", "--max-model-len", "11"], "t:2: prompt_tokens + output_tokens: got 12, expected at most"),
    "unknown format": (["--format", "excel"], "Invalid value for '--format': 'excel'"),
    "another format": (["--format", "azure"], "t:1: header: got "),
    "out that is empty": (["--out", ""], "Invalid value for '--out': ''"),
    "out that is a file": (["--out", "t"], "'--out': Directory 't' is a file"),
    "out below a file": (["--out", "t/run"], "t/run: Not a directory"),
    "out that is a device": (["--out", "/dev/full"], "/dev/full: Not a directory"),
    "out where nobody may write": (["--out", "/proc/run"], "/proc/run: "),
}
FLAGS |= {f"removed: {name}": ([f"--{name.replace('_', '-')}", "4"], REMOVED[name]) for name in REMOVED}


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def everything(folder: Path) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.mark.parametrize("name", FILES)
def test_a_bad_file(name: str, elpase, here: Path) -> None:
    content, told = FILES[name]
    (here / "t").write_bytes(content if isinstance(content, bytes) else content.encode())
    before = everything(here)
    assert told in elpase("replay", "t", "--out", "run").error
    assert everything(here) == before


@pytest.mark.parametrize("name", FLAGS)
def test_bad_flags(name: str, elpase, here: Path) -> None:
    args, told = FLAGS[name]
    (here / "t").write_text(GOOD)
    before = everything(here)
    out = [] if "--out" in args or args == ["--timeline"] else ["--out", "run"]
    assert told in elpase("replay", "t", *out, *args).error
    assert everything(here) == before


@pytest.mark.parametrize("trace", ["nowhere.csv", "azure-konv", ".", "", "x" * 5000])
def test_a_trace_that_is_none(trace: str, elpase, here: Path) -> None:
    error = elpase("replay", trace, "--out", "run").error
    assert error.startswith(f"{trace}: file: got " if trace else "TRACE: got ''")
    assert trace == "." or "file" in error.split("expected ")[1]
    assert everything(here) == {}


def test_what_is_wrong_late_in_the_file_leaves_an_earlier_result_as_it_was(elpase, here, no_pictures) -> None:
    (here / "t").write_text(GOOD)
    assert elpase("replay", "t", "--out", "run").code == 0
    (here / "t").write_text(GOOD + "1,10,2\n" * 20 + "2,10,x\n")
    before = everything(here)
    assert "t:23: output_tokens: got 'x'" in elpase("replay", "t", "--out", "run").error
    assert everything(here) == before


class TestProfiles:
    def altered(self, here: Path, **changes: Any) -> Path:
        (here / "t").write_text(GOOD)
        (here / "p.json").write_text(json.dumps(json.loads(SHIPPED.read_text()) | changes))
        return here / "p.json"

    def test_a_newer_schema(self, elpase, here) -> None:
        (name,) = [key for key in json.loads(SHIPPED.read_text()) if "schema" in key]
        path = self.altered(here, **{name: 99})
        error = elpase("replay", "t", "--profile", path.name).error
        assert error.startswith("p.json: ")
        assert "99" in error

    @pytest.mark.parametrize("text", ["", "{", "[]", "{}", "null", "\xff", '{"schema_version": NaN}'])
    def test_not_a_profile(self, text, elpase, here) -> None:
        self.altered(here).write_text(text, encoding="latin-1")
        assert elpase("replay", "t", "--profile", "p.json").error.startswith("p.json")

    def test_far_outside_its_domain(self, elpase, here) -> None:
        (here / "t").write_text(f"{GOOD}1,40000,2\n")
        before = everything(here)
        flags = ("--max-num-batched-tokens", 40000, "--outside", "raise", "--out", "run")
        error = elpase("replay", "t", *flags).error
        assert "is outside [" in error
        assert "of profile h100-qwen3-14b" in error
        assert everything(here) == before


def nothing_above_64_kib() -> None:
    """As on a disk that is full: enough for the tables of a short run, not for the pictures."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, 64 * 1024))


def test_a_full_disk_is_told_and_leaves_nothing(here: Path) -> None:
    """The figures are printed all the same: the run may have been long."""
    (here / "t").write_text(GOOD)
    before = everything(here)
    command = [ELPASE, "replay", "t", "--out", "run"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=nothing_above_64_kib)
    assert (done.returncode, done.stderr) == (2, "elpase: error: run: File too large\n")
    assert "Successful requests:" in done.stdout
    assert everything(here) == before
