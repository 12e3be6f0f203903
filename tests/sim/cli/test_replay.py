"""`elpase replay` from end to end on small workloads: what it writes, prints and says."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

import sim.cli.replay

ELPASE = str(Path(sys.executable).with_name("elpase"))
GOLDEN = json.loads((Path(__file__).parents[1] / "report/golden/bench_serve.json").read_text())["cases"]
HEADER = "arrival_s,prompt_tokens,output_tokens\n"
SESSIONS = (
    *("sessions", "--num-prompts", "5", "--request-rate", "5"),
    *("--sessions-range-ratio", "0.5", "--sessions-think-s", "1", "--sessions-prefix-len", "100"),
)


@pytest.fixture(scope="module")
def whole_run(elpase, tmp_path_factory):
    """One run with all that can be written."""
    folder = tmp_path_factory.mktemp("whole") / "a" / "out"
    return elpase("replay", "azure-conv", "--limit", 40, "--out", folder, "--timeline"), folder


@pytest.fixture
def result_of(elpase, tmp_path, no_pictures):
    """The result.json of a run."""

    def result(*args: object) -> dict[str, Any]:
        done = elpase("replay", *args, "--out", tmp_path / "out")
        assert done.code == 0, done.err
        loaded: dict[str, Any] = json.loads((tmp_path / "out/result.json").read_text())
        return loaded

    return result


class TestStepsThatAreNotKept:
    """The summary of a run too long for its steps to be kept."""

    def test_the_same_keys_and_figures_and_no_file_of_steps(self, elpase, tmp_path, no_pictures) -> None:
        def result_of(how: str) -> dict[str, Any]:
            done = elpase("replay", "azure-conv", "--limit", 60, how, "--out", tmp_path / "out")
            assert (done.code, done.err) == (0, f"elpase: wrote {tmp_path / 'out'}/\n")
            result: dict[str, Any] = json.loads((tmp_path / "out/result.json").read_text())
            return result

        kept, result = result_of("--keep-steps"), result_of("--no-keep-steps")
        assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["requests.parquet", "result.json"]
        assert list(result) == [name for name, value in kept.items() if not isinstance(value, list)]
        differ = {name for name in result if name != "sim" and result[name] != kept[name]}
        assert differ <= {f"{figure}_itl_ms" for figure in ("mean", "median", "std", "p99")}
        assert result["p99_itl_ms"] == pytest.approx(kept["p99_itl_ms"], rel=result["sim"]["itl_percentile_error"])
        differ = {name for name in result["sim"] if result["sim"][name] != kept["sim"][name]}
        assert differ == {"flags", "itl_percentile_error"}

    def test_from_some_number_of_requests_on_it_is_said(self, elpase, monkeypatch) -> None:
        monkeypatch.setattr(sim.cli.replay, "MOST_KEPT", 9)
        short = ("replay", "azure-conv", "--limit")
        assert elpase(*short, 9).err == ""
        assert elpase(*short, 10, "--keep-steps").err == ""
        assert elpase(*short, 10).err == (
            "elpase: note: up to 10 requests, more than 9: steps and tokens are not kept (no pictures, no"
            " steps.parquet, ITL percentiles within 0.02 %); --keep-steps keeps them\n"
        )

    def test_a_timeline_is_of_steps(self, elpase, tmp_path, monkeypatch, no_pictures) -> None:
        args = ("replay", "azure-conv", "--limit", 10, "--timeline", "--out", tmp_path / "out")
        assert elpase(*args, "--no-keep-steps").error == "--timeline needs --keep-steps"
        monkeypatch.setattr(sim.cli.replay, "MOST_KEPT", 9)
        assert elpase(*args).code == 0
        assert (tmp_path / "out/timeline.json.gz").exists()

    def test_the_table_of_requests_is_the_same_but_for_token_gaps(self, elpase, tmp_path, no_pictures, trace) -> None:
        """Those who were refused among them."""
        path = trace("0.0,100,20\n0.1,300,5\n0.2,30,1\n")
        flags = ("--no-enable-chunked-prefill", "--no-enable-prefix-caching", "--max-num-scheduled-tokens", 100)
        for steps in ("--keep-steps", "--no-keep-steps"):
            assert elpase("replay", path, *flags, steps, "--out", tmp_path / steps).code == 0
        kept, table = (
            pq.read_table(tmp_path / steps / "requests.parquet") for steps in ("--keep-steps", "--no-keep-steps")
        )
        kept = kept.drop_columns("itls_s")
        assert kept["status"].to_pylist() == ["finished", "rejected", "finished"]
        assert table.schema.equals(kept.schema)
        assert table.to_pandas().equals(kept.to_pandas())

    def test_what_needs_steps_says_so(self, elpase, tmp_path) -> None:
        out = tmp_path / "out"
        elpase("replay", "azure-conv", "--limit", 10, "--no-keep-steps", "--out", out)
        told = f"{out}: has no steps.parquet: is it what elpase replay --keep-steps --out wrote?"
        assert elpase("explain", out).error == told


@pytest.fixture
def trace(tmp_path):
    def write(rows: str) -> Path:
        path = tmp_path / "t.csv"
        path.write_text(HEADER + rows)
        return path

    return write


class TestFiles:
    def test_all_that_was_promised_is_there_and_nothing_else(self, whole_run) -> None:
        done, folder = whole_run
        assert (done.code, done.err) == (0, f"elpase: wrote {folder}/\n")
        assert sorted(path.name for path in folder.iterdir()) == [
            "latency.png",
            "requests.parquet",
            "result.json",
            "steps.parquet",
            "timeline.json.gz",
            "timeseries.png",
        ]
        assert [path.name for path in folder.parent.iterdir()] == ["out"]

    def test_the_result_has_vllms_keys_in_vllms_order_then_sim(self, whole_run) -> None:
        result = json.loads((whole_run[1] / "result.json").read_text())
        assert list(result) == [*GOLDEN["open_defaults"]["result"], "sim"]
        assert (result["num_prompts"], result["completed"], result["failed"]) == (40, 40, 0)
        assert result["total_output_tokens"] == sum(result["output_lens"])
        assert [len(gaps) for gaps in result["itls"]] == [n - 1 for n in result["output_lens"]]

    def test_the_sim_block_says_what_made_it(self, whole_run) -> None:
        block = json.loads((whole_run[1] / "result.json").read_text())["sim"]
        said = {name: block[name] for name in ("vllm_semantics", "profile", "seed", "trace", "partial")}
        assert said == {
            "vllm_semantics": "0.32",
            "profile": "h100-qwen3-14b",
            "seed": 0,
            "trace": "azure-conv",
            "partial": False,
        }
        assert block["config"]["max_num_batched_tokens"] == 8192
        for name in ("extrapolated_steps", "preemptions", "recomputed_tokens", "prefix_hit_rate", "peak_kv_usage"):
            assert block[name] >= 0

    def test_the_tables_add_up(self, whole_run) -> None:
        """Each token is computed once, but for every request's last, which nobody needs."""
        requests, steps = (pd.read_parquet(whole_run[1] / f"{name}.parquet") for name in ("requests", "steps"))
        assert len(requests) == 40
        assert steps["num_tokens"].sum() == (requests["prompt_tokens"] + requests["output_tokens"] - 1).sum()
        assert steps["sampled"].sum() == requests["output_tokens"].sum()
        assert (requests["arrival_s"] <= requests["send_s"]).all()
        assert (requests["send_s"] < requests["queued_s"]).all()
        assert (requests["first_token_s"] < requests["finish_s"]).all()

    def test_pictures_and_timeline_are_what_they_are_called(self, whole_run) -> None:
        for name in ("latency.png", "timeseries.png"):
            assert (whole_run[1] / name).read_bytes().startswith(b"\x89PNG")
        with gzip.open(whole_run[1] / "timeline.json.gz", "rt") as file:
            assert json.load(file)["traceEvents"]

    def test_the_console_shows_vllms_table_and_ours(self, whole_run) -> None:
        out = whole_run[0].out
        labels = [line[:40] for line in GOLDEN["open_defaults"]["table"].splitlines() if line[:1].isalpha()]
        assert [line[:40] for line in out.splitlines()[: len(labels) + 4] if line[:1].isalpha()] == labels
        assert f"{'Successful requests:':<40} 40" in out
        assert "vLLM 0.32" in out

    def test_an_earlier_run_in_the_folder_gives_way(self, elpase, tmp_path, trace, no_pictures) -> None:
        """What it wrote and this run does not would tell of another run; the user's own files stay."""
        for name in ("timeline.json.gz", "result.json", "notes.txt"):
            (tmp_path / name).write_text("old")
        assert elpase("replay", trace("0,10,2\n"), "--out", tmp_path).code == 0
        assert not (tmp_path / "timeline.json.gz").exists()
        assert json.loads((tmp_path / "result.json").read_text())["completed"] == 1
        assert (tmp_path / "notes.txt").read_text() == "old"

    def test_without_out_nothing_is_written(self, elpase, tmp_path, trace, monkeypatch) -> None:
        path = trace("0,10,2\n")
        monkeypatch.chdir(tmp_path)
        done = elpase("replay", path)
        assert (done.code, done.err) == (0, "")
        assert [entry.name for entry in tmp_path.iterdir()] == ["t.csv"]


class TestRuns:
    def test_one_request_of_one_token(self, result_of, trace) -> None:
        result = result_of(trace("3,10,1\n"))
        (ttft_s,) = result["ttfts"]
        assert result["latencies"] == [ttft_s]
        assert result["itls"] == [[]]
        assert result["mean_tpot_ms"] == result["mean_itl_ms"] == 0.0
        assert result["start_times"] == [3.0]
        assert result["duration"] == pytest.approx(3.0 + ttft_s)
        assert result["sim"]["steps"] == 1

    def test_a_limit_beyond_the_trace_is_the_whole_trace(self, elpase, trace) -> None:
        done = elpase("replay", trace("0,10,2\n1,10,2\n"), "--limit", 1000)
        assert (done.code, done.err) == (0, "")
        assert f"{'Successful requests:':<40} 2 " in done.out

    def test_years_between_two_requests_cost_nothing(self, result_of, trace) -> None:
        result = result_of(trace("0,10,2\n900000000,10,2\n"))
        assert (result["max_concurrent_requests"], result["max_output_tokens_per_s"]) == (1, 2.0)
        assert result["duration"] == pytest.approx(9e8)

    def test_skipped_rows_are_told_with_their_number(self, elpase, trace) -> None:
        done = elpase("replay", trace("0,10,0\n0,0,2\n1,0,2\n1,50000,2\n2,5,2\n"))
        assert done.code == 0
        assert sorted(done.err.splitlines()) == [
            "elpase: note: skipped 1 row: longer than max_model_len",
            "elpase: note: skipped 1 row: output of 0 tokens",
            "elpase: note: skipped 2 rows: prompt of 0 tokens",
        ]

    def test_times_that_are_dates_are_moved_and_told(self, elpase, trace, result_of) -> None:
        path = trace("1700000000,200,2\n1700000001.5,300,2\n")
        assert (
            elpase("replay", path).err == f"elpase: note: {path} starts at 1,700,000,000 s: arrivals count from there\n"
        )
        result = result_of(path)
        assert result["start_times"] == [0.0, 1.5]
        assert result["duration"] < 10

    def test_priorities_without_effect_are_told(self, elpase, tmp_path) -> None:
        path = tmp_path / "t.csv"
        path.write_text("arrival_s,prompt_tokens,output_tokens,priority\n0,10,2,0\n1,10,2,-3\n")
        assert elpase("replay", path).err.startswith("elpase: note: the requests' priorities do nothing under")
        assert elpase("replay", path, "--scheduling-policy", "priority").err == ""
        done = elpase("replay", path, "--scheduling-policy", "priority", "--limit", 1)
        assert done.err.startswith("elpase: note: no request has a priority")

    @pytest.mark.parametrize("flags", [("--kv-preemption", "swap", "--swap-space"), ("--kv-offloading-size",)])
    def test_host_memory_without_a_block_is_told(self, elpase, tmp_path, flags) -> None:
        """A block of 16 tokens takes 16 x 163,840 bytes: 2.5 MiB."""
        path = tmp_path / "t.csv"
        path.write_text("arrival_s,prompt_tokens,output_tokens\n0,10,2\n")
        for size in (0, 0.002):
            assert "note: the host memory given holds no KV block: " in elpase("replay", path, *flags, size).err
        assert "note: the host memory" not in elpase("replay", path, *flags, 0.0025).err

    def test_prompts_that_are_not_sent_are_told(self, elpase) -> None:
        """vLLM 0.32's PrefixRepetitionRandomDataset: 13 // 10 prompts for each of 10 prefixes."""
        done = elpase("replay", "prefix_repetition", "--num-prompts", 13)
        assert done.err.startswith("elpase: note: prefix_repetition sends 10 of 13 prompts")
        assert done.err.count("\n") == 1
        assert "Successful requests:                     10 " in done.out
        assert elpase("replay", "prefix_repetition", "--num-prompts", 20).err == ""

    def test_a_run_in_which_everybody_is_refused(self, elpase, tmp_path, trace) -> None:
        """No step, no token, and still a result, with a picture of nothing."""
        flags = ("--no-enable-chunked-prefill", "--no-enable-prefix-caching", "--max-num-scheduled-tokens", 100)
        done = elpase("replay", trace("0,200,2\n1,300,2\n"), *flags, "--out", tmp_path / "out", "--timeline")
        assert done.code == 0
        assert "note: the server refused 2 of 2 requests: request csv-0: prompt tokens: got 200" in done.err
        result = json.loads((tmp_path / "out/result.json").read_text())
        assert (result["completed"], result["failed"], result["sim"]["steps"]) == (0, 2, 0)
        assert all("expected <= 100 in one step" in error for error in result["errors"])

    def test_extrapolated_steps_are_one_warning_line(self, elpase, trace) -> None:
        done = elpase("replay", trace("0,40000,2\n"), "--max-num-batched-tokens", 40000)
        assert done.code == 0
        assert done.err.count("\n") == 1
        assert done.err.startswith("elpase: warning: a step's ")
        assert "such steps are extrapolated" in done.err
        assert elpase("replay", trace("0,40000,2\n"), "--max-num-batched-tokens", 40000, "--outside", "clip").err == ""

    def test_percentiles_and_goodput_as_vllm_takes_them(self, result_of, elpase, trace) -> None:
        path = trace("0,10,1\n0,10,30\n")
        metrics = ("--percentile-metrics", "ttft,e2el", "--metric-percentiles", "25,99.9")
        result = result_of(path, *metrics, "--goodput", "ttft:1000", "e2el:100")
        assert {"p25_ttft_ms", "p99.9_ttft_ms", "p25_e2el_ms", "p99.9_e2el_ms"} <= set(result)
        assert "mean_tpot_ms" not in result
        assert result["request_goodput"] == pytest.approx(1 / result["duration"])
        assert result_of("--goodput", "ttft:1000", "e2el:100", path)["request_goodput"] == result["request_goodput"]
        assert (
            result_of(path, "--goodput", "ttft:1000", "--goodput=e2el:100")["request_goodput"]
            == (result["request_goodput"])
        )

    def test_the_clients_cap_holds(self, result_of) -> None:
        result = result_of("random", "--num-prompts", 12, "--max-concurrency", 3, "--random-output-len", 8)
        assert result["max_concurrency"] == 3
        assert result["sim"]["peak_running"] == 3
        assert result["request_rate"] == "inf"

    @pytest.mark.parametrize(
        "dress",
        [
            lambda text: b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode() + b"\r\n\r\n",
            lambda text: gzip.compress(text.encode()),
            lambda text: "\n".join(",".join(f'"{c}"' for c in line.split(",")) for line in text.split()).encode(),
            lambda text: text.replace(",", " , ").replace("200", "2e2").replace("2\n", "2.0\n").encode(),
            lambda text: b"\n\n" + text.strip().encode(),
        ],
        ids=["BOM and CRLF", "gzip", "quoted", "spaces and floats", "blank lines above, no end of line"],
    )
    def test_odd_but_legal_files_are_the_same_trace(self, dress, elpase, tmp_path, trace) -> None:
        path = trace("0,200,2\n10,300,2\n")
        plain = elpase("replay", path)
        path.write_bytes(dress(path.read_text()))
        assert elpase("replay", path) == plain


class TestSeed:
    def test_same_seed_same_bytes_whatever_the_hash_seed(self, elpase, tmp_path) -> None:
        """Here, and in another process with another order of all sets of text."""
        assert elpase("replay", *SESSIONS, "--out", tmp_path / "here").code == 0
        command = [ELPASE, "replay", *SESSIONS, "--out", tmp_path / "there"]
        subprocess.run(command, check=True, capture_output=True, env=os.environ | {"PYTHONHASHSEED": "1"})
        here, there = ({p.name: p.read_bytes() for p in (tmp_path / side).iterdir()} for side in ("here", "there"))
        assert here["result.json"] == there["result.json"]
        assert here == there

    def test_another_seed_is_another_run(self, result_of) -> None:
        first, again, other = (result_of(*SESSIONS, "--seed", seed) for seed in (3, 3, 4))
        assert first == again
        assert other["input_lens"] != first["input_lens"]
        assert other["start_times"] != first["start_times"]
        assert other["sim"]["seed"] == 4


class TestTraffic:
    """What a result says of its traffic, as vLLM writes it."""

    def said(self, result: dict[str, Any]) -> dict[str, Any]:
        names = ("request_rate", "burstiness", "ramp_up_strategy", "ramp_up_start_rps", "ramp_up_end_rps")
        return {name: result[name] for name in names if name in result}

    def test_a_rate(self, result_of) -> None:
        flags = ("--num-prompts", 10, "--random-output-len", 2)
        result = result_of("random", *flags, "--request-rate", 4, "--burstiness", 0.5)
        assert self.said(result) == {"request_rate": 4.0, "burstiness": 0.5}
        # vLLM stretches the gaps so that the last request comes at n / rate.
        assert result["start_times"][-1] == pytest.approx(10 / 4)
        twice = result_of("random", *flags, "--request-rate", 4, "--burstiness", 0.5, "--rate-scale", 2)
        assert self.said(twice)["request_rate"] == 8.0
        assert twice["start_times"] == pytest.approx([at / 2 for at in result["start_times"]])

    def test_no_rate_is_inf(self, result_of) -> None:
        result = result_of("random", "--num-prompts", 3, "--random-output-len", 2)
        assert self.said(result) == {"request_rate": "inf", "burstiness": 1.0}
        assert result["start_times"] == [0.0] * 3

    def test_endless_burstiness_is_valid_json(self, result_of) -> None:
        flags = ("--num-prompts", 4, "--random-output-len", 2, "--request-rate", 2, "--burstiness", "inf")
        result = result_of("random", *flags)
        assert self.said(result)["burstiness"] == "inf"
        assert result["start_times"] == [0.5, 1.0, 1.5, 2.0]

    def test_a_ramp(self, result_of) -> None:
        ramp = ("--ramp-up-strategy", "linear", "--ramp-up-start-rps", 1, "--ramp-up-end-rps", 3)
        result = result_of("random", "--num-prompts", 3, "--random-output-len", 2, *ramp, "--burstiness", "inf")
        assert self.said(result) == {
            "request_rate": "inf",
            "burstiness": "inf",
            "ramp_up_strategy": "linear",
            "ramp_up_start_rps": 1.0,
            "ramp_up_end_rps": 3.0,
        }
        # Gaps of 1 / 1, 1 / 2 and 1 / 3 s.
        assert result["start_times"] == pytest.approx([1.0, 1.5, 1.5 + 1 / 3], abs=1e-6)
