"""`elpase sweep` from end to end: the table, the files, going on after a kill, and what is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

import sim.sweeps.files
import sim.sweeps.store

ELPASE = str(Path(sys.executable).with_name("elpase"))
SMALL = ("random", "--num-prompts", 20, "--request-rate", 10, "--input-len", 100, "--output-len", 5)
ONE_JOB = ("--jobs", 1)


@pytest.fixture
def sweep(elpase, monkeypatch):
    """The verb on a small workload, in this process, without the picture."""
    monkeypatch.setattr(sim.sweeps.files, "plot_sweep", lambda _sweep, path: path.write_text("a picture"))
    return lambda *args: elpase("sweep", *SMALL, *ONE_JOB, *args)


def rows(folder: Path) -> pd.DataFrame:
    return pd.read_csv(folder / "sweep.csv")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


class TestFiles:
    def test_a_row_per_combination_with_what_made_it(self, sweep, tmp_path) -> None:
        done = sweep("--vary", "max_num_seqs=1,4", "--vary", "rate-scale=1,2", "--seed", 7, "--out", tmp_path / "out")
        assert (done.code, done.err) == (0, f"elpase: wrote {tmp_path / 'out'}/\n")
        table = rows(tmp_path / "out")
        assert list(zip(table["max_num_seqs"], table["rate_scale"], strict=True)) == [(1, 1), (1, 2), (4, 1), (4, 2)]
        assert table["completed"].to_list() == [20] * 4
        about = (
            table[["elpase_version", "vllm_semantics", "trace", "profile", "seed"]].drop_duplicates().values.tolist()
        )
        assert about == [[sim.__version__, 0.32, "random", "h100-qwen3-14b", 7]]
        assert pd.read_parquet(tmp_path / "out/sweep.parquet").shape == table.shape
        document = json.loads((tmp_path / "out/sweep.json").read_text())
        assert [row["max_num_seqs"] for row in document["rows"]] == [1, 1, 4, 4]
        assert document["fixed"]["workload"]["num_prompts"] == 20
        assert document["provenance"]["seed"] == 7

    def test_same_seed_same_bytes_in_one_process_and_in_two(self, sweep, elpase, tmp_path) -> None:
        vary = ("--vary", "max_num_seqs=1,2,4", "--slo", "ttft_p99=300")
        assert sweep(*vary, "--out", tmp_path / "one").code == 0
        assert elpase("sweep", *SMALL, "--jobs", 2, *vary, "--out", tmp_path / "two").code == 0
        assert contents(tmp_path / "one") == contents(tmp_path / "two")

    def test_replications_have_seeds_of_their_own_and_intervals(self, sweep, tmp_path) -> None:
        done = sweep("--vary", "max_num_seqs=1,4", "--replications", 3, "--out", tmp_path / "out")
        table = rows(tmp_path / "out")
        assert table["replications"].to_list() == [3, 3]
        assert (table["p99_ttft_ms_ci95"] > 0).all()
        assert "Means of 3 seeds" in done.out
        results = [json.loads(path.read_text()) for path in (tmp_path / "out/tasks").iterdir()]
        seeds = [result["summary"]["sim"]["seed"] for result in results if "summary" in result]
        assert sorted(seeds) == [0, 0, 1, 1, 2, 2]

    def test_a_row_is_what_a_replay_says(self, sweep, elpase, tmp_path, no_pictures) -> None:
        sweep("--vary", "max_num_seqs=2", "--out", tmp_path / "sweep")
        elpase("replay", *SMALL, "--max-num-seqs", 2, "--out", tmp_path / "replay")
        row = rows(tmp_path / "sweep").iloc[0]
        result = json.loads((tmp_path / "replay/result.json").read_text())
        for name in ("output_throughput", "p99_ttft_ms", "p99_itl_ms", "mean_tpot_ms", "duration"):
            assert row[name] == pytest.approx(result[name], rel=1e-12)

    def test_records_of_a_parameter_file_need_not_say_the_same(self, sweep, tmp_path) -> None:
        params = tmp_path / "serve.json"
        params.write_text(
            '[{}, {"spec_method": "ngram", "spec_tokens": 3, "draft_acceptance": 0.5}, {"max_num_seqs": 1}]'
        )
        done = sweep("--serve-params", params, "--vary", "max_concurrency=1,2", "--out", tmp_path / "out")
        assert done.code == 0, done.err
        shown = [line.split()[:5] for line in done.out.splitlines()[1:7]]
        assert [row[0] for row in shown] == ["1", "2"] * 3
        assert [row[1] for row in shown] == ["-", "-", "ngram", "ngram", "-", "-"]
        assert [row[2:5] for row in shown[2:]] == [["3", "0.5", "-"]] * 2 + [["-", "-", "1"]] * 2
        table = pd.read_csv(tmp_path / "out/sweep.csv", dtype=str)
        assert table["spec_tokens"].fillna("").to_list() == ["", "", "3", "3", "", ""]
        assert table["max_num_seqs"].fillna("").to_list() == ["", "", "", "", "1", "1"]
        assert set(table["status"]) == {"ok"}


class TestGoingOn:
    def test_only_what_is_missing_is_run(self, sweep, tmp_path) -> None:
        out = tmp_path / "out"
        sweep("--vary", "max_num_seqs=1,4", "--out", out)
        before = {p.name: p.stat().st_mtime_ns for p in (out / "tasks").iterdir()}
        sweep("--vary", "max_num_seqs=1,2,4", "--out", out)
        after = {p.name: p.stat().st_mtime_ns for p in (out / "tasks").iterdir()}
        assert before.items() <= after.items()
        assert len(after) == len(before) + 1
        assert rows(out)["max_num_seqs"].to_list() == [1, 2, 4]

    def test_a_changed_trace_runs_again_and_nothing_else_does(self, elpase, tmp_path) -> None:
        out, one, two = (tmp_path / name for name in ("out", "one.csv", "two.csv"))
        for path in (one, two):
            path.write_text("arrival_s,prompt_tokens,output_tokens\n0.5,100,5\n1.0,200,6\n")
        command = ("sweep", "--vary", f"trace={one},{two}", *ONE_JOB, "--out", out)
        assert elpase(*command).code == 0
        before = {p.name for p in (out / "tasks").iterdir()}
        two.write_text(two.read_text() + "2.0,10,10\n")
        assert elpase(*command).code == 0
        after = {p.name for p in (out / "tasks").iterdir()}
        assert len(after - before) == 1
        table = rows(out)
        assert table["trace"].to_list() == ["one.csv", "two.csv"]
        assert table["completed"].to_list() == [2, 3]

    def test_after_a_kill_it_goes_on_and_ends_as_if_nothing_had_been(self, tmp_path) -> None:
        """kill -9 of the sweep, at some moment, which its workers notice; then of a worker, in the middle of a task."""
        args = ["sweep", "azure-conv", "--limit", "2000", "--jobs", "2", "--vary", "max_num_seqs=8,16,32,64,128,256"]
        command = [ELPASE, *args, "--out", "out"]
        for name in ("whole", "killed"):
            (tmp_path / name).mkdir()
        subprocess.run(command, cwd=tmp_path / "whole", check=True, capture_output=True)
        tasks = tmp_path / "killed/out/tasks"
        running = start(command, tmp_path / "killed")
        wait_for(lambda: len(list(tasks.glob("*.json"))) >= 3)  # two results and what tells the folder
        wait_for(lambda: workers(running.pid))
        pool = workers(running.pid)
        os.kill(running.pid, signal.SIGKILL)
        running.communicate(timeout=60)  # they hold its pipes, and would do so for minutes
        wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pool))
        kept = {p.name: p.stat().st_mtime_ns for p in tasks.glob("*.json")}
        running = start(command, tmp_path / "killed")
        wait_for(lambda: workers(running.pid))
        os.kill(workers(running.pid)[0], signal.SIGKILL)
        _, err = running.communicate(timeout=300)
        assert running.returncode == 0, err
        assert kept.items() <= {p.name: p.stat().st_mtime_ns for p in tasks.glob("*.json")}.items()
        assert contents(tmp_path / "killed") == contents(tmp_path / "whole")


def start(command: list[str], folder: Path) -> subprocess.Popen[str]:
    """In a process group of its own, and with Ctrl-C as a terminal leaves it."""
    return subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509  # one thread
    )


def wait_for(condition) -> None:
    end = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def workers(pid: int) -> list[int]:
    """Processes of a sweep's pool that compute: loky's workers, and not the one that keeps account of files."""
    found = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        if b"popen_loky" in Path(f"/proc/{child}/cmdline").read_bytes():
            used = Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()
            if int(used[11]) > 100:  # hundredths of a second of its own: it is past its imports
                found.append(int(child))
    return found


class TestEndedEarly:
    def test_ctrl_c_keeps_what_is_done_and_says_how_to_go_on(self, tmp_path) -> None:
        command = [ELPASE, "sweep", "azure-conv", "--limit", "1500", "--jobs", "2", "--out", "out"]
        command += ["--vary", "max_num_seqs=8,16,32,64,128,256"]
        running = start(command, tmp_path)
        wait_for(lambda: len(list((tmp_path / "out/tasks").glob("*.json"))) >= 2)
        os.killpg(running.pid, signal.SIGINT)  # as a terminal does: to the workers, too
        out, err = running.communicate(timeout=240)
        assert running.returncode == 130, err
        assert err.endswith("elpase: interrupted: what is done is in out/, the same command goes on there\n"), err
        assert "not run" in out
        statuses = rows(tmp_path / "out")["status"].to_list()
        assert set(statuses) == {"ok", "not run"}
        assert len(list((tmp_path / "out/tasks").glob("*.json"))) == statuses.count("ok") + 1

    def test_a_full_disk_is_told_and_what_is_there_stays(self, sweep, tmp_path, monkeypatch) -> None:
        out, write = tmp_path / "out", sim.sweeps.store.write_text_atomic

        def full_after_two(path: Path, text: str) -> None:
            if len(list((out / "tasks").glob("*.json"))) == 3:
                raise OSError(28, "No space left on device", os.fspath(path))
            write(path, text)

        monkeypatch.setattr(sim.sweeps.store, "write_text_atomic", full_after_two)
        done = sweep("--vary", "max_num_seqs=1,2,4", "--out", out)
        assert done.code == 2
        assert done.err.splitlines()[0] == (
            f"elpase: stopped; the results so far are in {out}/, and the same command goes on there"
        )
        assert done.err.endswith(": No space left on device\n")
        monkeypatch.undo()
        assert len(list((out / "tasks").glob("*.json"))) == 3

    def test_a_folder_of_another_version(self, sweep, tmp_path) -> None:
        sweep("--vary", "max_num_seqs=1,4", "--out", tmp_path / "out")
        about = tmp_path / "out/tasks/about.json"
        about.write_text(about.read_text().replace(sim.__version__, "0.0.1"))
        before = contents(tmp_path / "out")
        done = sweep("--vary", "max_num_seqs=1,4", "--out", tmp_path / "out")
        assert "holds results of elpase 0.0.1" in done.error
        assert contents(tmp_path / "out") == before


class TestRefused:
    @pytest.mark.parametrize(
        ("args", "told"),
        [
            ((), "nothing varies: say --vary NAME=A,B,C"),
            (("--vary", "max_num_seqs="), "--vary: got 'max_num_seqs=', expected NAME=VALUE,VALUE,..."),
            (("--vary", "max_num_seqs"), "--vary: got 'max_num_seqs', expected NAME=VALUE,VALUE,..."),
            (("--vary", "max_num_seqs=[]"), "max_num_seqs: expected at least one value to try"),
            (("--vary", "max_num_seqs=[1"), "expected a JSON list after the ="),
            (("--vary", "max_num_seqs=" + "[" * 100_000), "expected a JSON list after the ="),
            (("--vary", "max_num_seqs=[true]"), "Invalid value for '--max-num-seqs': 'true' is not a valid integer."),
            (("--vary", "max_num_seqs=1", "--jobs", 10**9), "jobs: got 1000000000, expected from 1 to 1024 processes"),
            (("--vary", "max_num_seqs=1", "--replications", 10**9), "replications: got 1000000000, expected from 1 to"),
            (("--vary", "max_num_seqs=1,1"), "max_num_seqs: got 1, expected each value once"),
            (("--vary", "max_num_seq=1,2"), "; did you mean 'max_num_seqs'?"),
            (("--vary", "max_num_seqs=1,x"), "Invalid value for '--max-num-seqs': 'x' is not a valid integer."),
            (("--vary", "qqq=1"), "knob: got 'qqq', expected a flag of vllm serve or of the workload"),
            (("--vary", "preemption_mode=swap"), "gone since vLLM 0.11"),
            (("--vary", "seed=1,2"), "seed does not vary: --replications"),
            (("--vary", "max_num_seqs=1,2", "--max-num-seqs", 3), "max_num_seqs: expected to be varied or held"),
            (("--vary", "max_num_seqs=1", "--slo", "itl=5"), "--slo: got 'itl=5', expected METRIC_STATISTIC=MS"),
            (("--vary", "max_num_seqs=1", "--best", "speed"), "--best: got 'speed', expected one of"),
            (("--vary", "max_num_seqs=1", "--ray-address", "auto"), "--ray-address needs --backend ray"),
            (("--vary", "max_num_seqs=1", "--profile", "none.json"), "profile: got 'none.json'"),
            (("--vary", "max_num_seqs=1,0"), "max_num_seqs: got 0, expected 1 or more"),
        ],
        ids=str,
    )  # fmt: skip
    def test_one_line(self, sweep, args, told) -> None:
        done = sweep(*args)
        if "max_num_seqs=1,0" in args:  # an impossible combination is a row
            assert f"skipped: {told}" in done.out
        else:
            assert told in done.error

    def test_an_impossible_combination_is_a_row_and_the_others_run(self, sweep, tmp_path) -> None:
        vary = ("--vary", "max_num_batched_tokens=16,64", "--vary", "max_num_seqs=8,32")
        done = sweep(*vary, "--out", tmp_path / "out")
        assert done.code == 0
        table = rows(tmp_path / "out")
        assert table["status"].to_list() == ["ok", "skipped", "ok", "ok"]
        told = "max_num_batched_tokens: got 16, expected at least max_num_seqs (32)"
        assert table["reason"][1] == told
        assert f"skipped: {told}" in done.out

    def test_if_none_can_run_the_command_is_wrong(self, elpase) -> None:
        done = elpase("sweep", "none.csv", "--vary", "max_num_seqs=1,2", *ONE_JOB)
        assert done.error.startswith("none.csv: file: got 'No such file")  # the one reason of all
        done = elpase("sweep", "random", "--vary", "max_num_seqs=0,-1", *ONE_JOB)
        assert done.error.startswith("no combination can run; the first: max_num_seqs: got 0, expected 1 or more")
        done = elpase("sweep", "random", "--vary", "format=csv", *ONE_JOB)
        assert done.error.startswith("--format goes with a file, not with random")


class TestExperimentFile:
    def write(self, path: Path, text: str) -> Path:
        path.write_text(text)
        return path

    @pytest.mark.parametrize("name", ["trace", "profile", "serve_params", "bench_params", "out"])
    def test_an_empty_path_is_not_the_file_s_folder(self, elpase, tmp_path, name) -> None:
        said = {"trace": "random", name: ""}
        lines = [f'{key} = "{value}"\n' for key, value in said.items()]
        file = self.write(tmp_path / "study.toml", "".join(lines) + "num_prompts = 5\n[vary]\nmax_num_seqs = [1, 2]\n")
        assert "''" in elpase("sweep", "--experiment", file, *ONE_JOB).error

    def test_the_same_as_flags(self, elpase, tmp_path, monkeypatch) -> None:
        file = self.write(
            tmp_path / "study.toml",
            "trace = 'random'\nnum_prompts = 20\nrequest_rate = 10.0\ninput-len = 100\noutput_len = 5\n"
            "enable_prefix_caching = false\nreplications = 2\nslo = ['ttft_p99=300']\n"
            "[vary]\nmax_num_seqs = [1, 4]\nmax-num-batched-tokens = ['8k']\n",
        )
        flags = ("--no-enable-prefix-caching", "--replications", 2, "--slo", "ttft_p99=300")
        vary = ("--vary", "max_num_seqs=1,4", "--vary", "max_num_batched_tokens=8k")
        by_flags = elpase("sweep", *SMALL, *flags, *vary, *ONE_JOB)
        by_file = elpase("sweep", "--experiment", file, *ONE_JOB)
        assert by_file == by_flags
        assert by_file.code == 0

    def test_rates_and_sizes_are_lists_and_come_out_as_their_flags_take_them(self, elpase, tmp_path) -> None:
        file = self.write(
            tmp_path / "s.toml",
            "trace='random'\nnum_prompts=3\noutput_len=5\nspec_method='eagle'\nspec_model='qwen3-4b'\n"
            "spec_tokens=2\ncudagraph_capture_sizes=[1, 2]\n[vary]\ndraft_acceptance=[[0.5, 0.25], [1, 0.5]]\n",
        )
        done = elpase("sweep", "--experiment", file, "--out", tmp_path / "out", *ONE_JOB)
        assert done.code == 0, done.err
        assert rows(tmp_path / "out")["draft_acceptance"].to_list() == ["0.5,0.25", "1.0,0.5"]
        flags = ("--output-len", 5, "--spec-method", "eagle", "--spec-model", "qwen3-4b", "--spec-tokens", 2)
        vary = ("--vary", 'draft_acceptance=["0.5,0.25", "1.0,0.5"]', "--cudagraph-capture-sizes", 1, 2)
        again = elpase("sweep", "random", "--num-prompts", 3, *flags, *vary, *ONE_JOB)
        assert again.out == done.out

    def test_the_command_line_stands_above_it(self, elpase, tmp_path) -> None:
        file = self.write(
            tmp_path / "s.toml", "trace='random'\nnum_prompts=20\noutput_len=5\n[vary]\nmax_num_seqs=[1]\n"
        )
        out = tmp_path / "out"
        done = elpase(
            "sweep", "--experiment", file, "--num-prompts", 3, "--vary", "max_num_seqs=2", "--out", out, *ONE_JOB
        )
        assert done.code == 0
        assert rows(out)[["max_num_seqs", "completed"]].values.tolist() == [[2, 3]]

    def test_paths_are_counted_from_its_folder(self, elpase, tmp_path, monkeypatch) -> None:
        (tmp_path / "study").mkdir()
        for seed in (3, 4):
            trace = tmp_path / f"study/day-{seed}.csv"
            trace.write_text("arrival_s,prompt_tokens,output_tokens\n" + "0.5,100,5\n" * seed)
        file = self.write(
            tmp_path / "study/s.toml", "seed=3\nreplications=2\n[vary]\ntrace=['day-{seed}.csv']\nmax_num_seqs=[1, 2]\n"
        )
        monkeypatch.chdir(tmp_path)
        done = elpase("sweep", "--experiment", file, "--out", "out", *ONE_JOB)
        assert done.code == 0, done.err
        assert rows(Path("out"))["trace"].to_list() == ["day-{seed}.csv"] * 2
        assert rows(Path("out"))["completed"].to_list() == [3.5, 3.5]

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("max_num_seqs = [", "not TOML: "),
            (f"seed = {'9' * 5000}", "not TOML: Exceeds the limit"),
            (f"seed = {'[' * 2000}{']' * 2000}", "not TOML: maximum recursion depth"),
            (
                "max_num_seq = 3",
                "got 'max_num_seq', expected a flag of elpase sweep, or the table vary; did you mean 'max_num_seqs'?",
            ),
            ("vary = 3", "vary: got 3, expected a table of lists"),
            ("[vary]\nmax_num_seqs = 3", "expected a table of lists"),
            ("[vary]\nmax_num_seqs = []", "max_num_seqs: expected at least one value"),
            ("[vary]\nmax_num_seqs = [[1, 2]]", "vary.max_num_seqs: '1,2' is not a"),
            ("max_num_seqs = [1, 2]\n[vary]\nwatermark=[0.1]", "max_num_seqs: '1,2' is not a"),
            ("max_num_seqs = 'many'\n[vary]\nwatermark=[0.1]", "max_num_seqs: 'many' is not a"),
            ("rate_scale = 2026-11-30\n[vary]\nwatermark=[0.1]", "rate_scale: '2026-11-30' is not a"),
            ("[vary]\nmax_seqs = [1]", "vary.max_seqs: knob: got 'max_seqs'"),
            ("[vary]\nswap_space = [1]", "vary.swap_space: swap_space: gone since vLLM 0.18"),
            ("max_num_seqs = 4\nmax-num-seqs = 5", "max-num-seqs: got 5, expected each flag once, in one spelling"),
            ("[vary]\nwatermark = [0.1]\nmax_num_seqs=[4]\nmax-num-seqs = [5]", "vary.max-num-seqs: got [5], expected"),
        ],
    )
    def test_what_it_cannot_say(self, elpase, tmp_path, text, told) -> None:
        file = self.write(tmp_path / "s.toml", text)
        error = elpase("sweep", "random", "--experiment", file).error
        assert error.startswith(f"{file}: ") or "at least one value" in error
        assert told in error

    def test_a_list_of_one_needs_no_brackets(self, elpase, tmp_path) -> None:
        file = self.write(tmp_path / "s.toml", "slo = 'ttft_p99=300'\n[vary]\nmax_num_seqs = [1]\n")
        by_flag = elpase("sweep", *SMALL, "--slo", "ttft_p99=300", "--vary", "max_num_seqs=1", *ONE_JOB)
        assert elpase("sweep", *SMALL, "--experiment", file, *ONE_JOB) == by_flag

    def test_a_trace_has_to_be_said_somewhere(self, elpase) -> None:
        assert elpase("sweep", "--vary", "max_num_seqs=1,2").error == "Missing argument 'TRACE'."


class TestAnswers:
    def test_they_are_told_and_kept(self, sweep, tmp_path) -> None:
        """20 requests of 5 tokens at 10/s: with one place they queue, and more than two are never used."""
        vary = ("--vary", "max_num_seqs=1,2,64,128", "--vary", "rate_scale=1,2")
        done = sweep(*vary, "--slo", "ttft_p99=1000", "--goodput", "ttft:500", "--out", tmp_path / "out")
        document = json.loads((tmp_path / "out/sweep.json").read_text())
        effect = next(effect for effect in document["effects"] if effect["knob"] == "max_num_seqs")
        assert effect["binding"] is True
        assert effect["idle_from"] == 64
        assert "max_num_seqs: binding, " in done.out
        assert "; not binding from 64 on" in done.out
        best = document["best"]
        assert f"{best['rate_rps']:.3g} requests/s" in done.out
        assert "<- best" in done.out
        assert [one["knobs"] for one in document["capacities"]] == [{"max_num_seqs": n} for n in (1, 2, 64, 128)]
        assert {row["slo"] for row in document["rows"]} <= {True, False}
        assert all(row["request_goodput"] > 0 for row in document["rows"])
        assert [one["load"] for one in document["best_by_load"]] == [1.0, 2.0]

    def test_a_highest_rate_needs_no_grid(self, sweep) -> None:
        done = sweep("--slo", "ttft_p99=1000", "--max-num-seqs", 1)
        assert done.code == 0
        assert "  as it is: " in done.out

    def test_warm_up_and_cool_down_are_cut(self, sweep, tmp_path) -> None:
        sweep("--vary", "max_num_seqs=64", "--warmup-s", 0.5, "--cooldown-s", 0.5, "--out", tmp_path / "out")
        sweep("--vary", "max_num_seqs=64", "--out", tmp_path / "whole")
        cut, whole = rows(tmp_path / "out").iloc[0], rows(tmp_path / "whole").iloc[0]
        assert cut["duration"] == pytest.approx(whole["duration"] - 1.0)
        assert 0 < cut["completed"] < whole["completed"] == 20
        assert "no request arrives between" in sweep("--vary", "max_num_seqs=64", "--warmup-s", 100).error


class TestStudies:
    """Those under results/sweeps."""

    FOLDER = Path(__file__).parents[3] / "results/sweeps"

    def test_the_measured_best_token_budgets_are_found(self, elpase, tmp_path) -> None:
        """A public measurement (RTX 5090, a 3B model): 16384 at low load, 2048 at high load; its law is all we take."""
        done = elpase("sweep", "--experiment", self.FOLDER / "token-budget/even.toml", "--out", tmp_path, *ONE_JOB)
        assert done.code == 0, done.err
        best = json.loads((tmp_path / "sweep.json").read_text())["best_by_load"]
        assert [(one["load"], one["knobs"]["max_num_batched_tokens"]) for one in best] == [
            ("even-0.4.csv", 16384),
            ("even-1.0.csv", 2048),
        ]

    def test_its_inputs_are_what_the_script_writes(self, tmp_path) -> None:
        script = self.FOLDER / "token-budget/make.py"
        copy = tmp_path / "make.py"
        copy.write_text(script.read_text())
        subprocess.run([sys.executable, copy], check=True)
        copy.unlink()
        for path in sorted(p for p in tmp_path.rglob("*") if p.is_file()):
            assert path.read_bytes() == (script.parent / path.relative_to(tmp_path)).read_bytes(), path.name
