"""`elpase explain DIR`: findings first, 80 columns, JSON; and one line for a folder that cannot be explained."""

from __future__ import annotations

import json
import re
import shutil

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sim.report.tables
from sim.cli.explain import _ENDINGS
from sim.report.step_rows import LIMITS

FLAGS = ("--limit", 60, "--rate-scale", 2, "--num-gpu-blocks-override", 1500, "--max-model-len", 8192)


@pytest.fixture(scope="module")
def finished(elpase, tmp_path_factory):
    """A run with something to explain, made once."""
    folder = tmp_path_factory.mktemp("explain") / "run"
    assert elpase("replay", "azure-conv", *FLAGS, "--out", folder).code == 0
    return folder


@pytest.fixture
def folder(finished, tmp_path):
    """A copy to spoil."""
    return shutil.copytree(finished, tmp_path / "run")


def rewrite(path, change) -> None:
    """Change a table's columns, or what its schema says of the run."""
    table = pq.read_table(path)
    meta = json.loads(table.schema.metadata[b"elpase"])
    table, meta = change(table, meta)
    pq.write_table(table.replace_schema_metadata({b"elpase": json.dumps(meta)}), path)


def say_otherwise(folder, **meta) -> None:
    for name in ("requests.parquet", "steps.parquet"):
        rewrite(folder / name, lambda table, old: (table, {**old, **meta}))


class TestOutput:
    def test_findings_come_first_and_fit_80_columns(self, elpase, finished) -> None:
        done = elpase("explain", finished)
        assert (done.code, done.err) == (0, "")
        lines = done.out.splitlines()
        assert lines[0].startswith("1. KV blocks are too few")
        assert max(map(len, lines)) <= 80
        assert lines == [line.rstrip() for line in lines]
        parts = ["How steps ended", "Settings", "The 10 worst gaps", "Mean wait for the first token", "Work", "Load"]
        at = [done.out.index(f"\n{part}") for part in parts]
        assert at == sorted(at)

    def test_json_says_the_same(self, elpase, finished) -> None:
        told = json.loads(elpase("explain", finished, "--json").out)
        assert told["findings"][0]["cause"] == "kv_blocks"
        steps = pq.read_table(finished / "steps.parquet")
        assert sum(ending["steps"] for ending in told["endings"]) == steps.num_rows == told["run"]["num_steps"]
        result = json.loads((finished / "result.json").read_text())
        assert told["thrash"]["preemptions"] == result["sim"]["preemptions"]
        assert told["itl"]["p99_s"] * 1e3 == pytest.approx(result["p99_itl_ms"])
        gaps = [gap["gap_s"] for gap in told["gaps"]]
        assert gaps == sorted(gaps, reverse=True)
        assert gaps[0] == pytest.approx(max(map(max, result["itls"])))

    def test_a_healthy_run(self, elpase, tmp_path, no_pictures) -> None:
        flags = ("--num-prompts", 20, "--request-rate", 2, "--random-input-len", 50, "--random-output-len", 20)
        assert elpase("replay", "random", *flags, "--out", tmp_path / "run").code == 0
        out = elpase("explain", tmp_path / "run").out
        assert out.startswith("Nothing holds this run back: there is nothing to change.\n")
        assert re.search(r"^max_num_seqs +1,024 +no +at most \d+ ran at once$", out, re.MULTILINE)

    def test_texts_are_objects_before_pandas_3(self, elpase, finished, monkeypatch) -> None:
        def as_before(column: pa.ChunkedArray) -> object:
            values = column.to_numpy()
            return pd.Series(values, dtype=object) if pa.types.is_string(column.type) else values

        monkeypatch.setattr(sim.report.tables, "_pandas", as_before)
        assert elpase("explain", finished).code == 0

    def test_a_profile_that_did_not_price_it(self, elpase, finished) -> None:
        error = elpase("explain", finished, "--profile", "h100-llama-3.1-8b").error
        assert "expected h100-qwen3-14b, which priced the run" in error


def test_every_limit_has_words() -> None:
    assert set(_ENDINGS) == set(LIMITS)


class TestBadInput:
    def test_no_folder(self, elpase, tmp_path) -> None:
        missing = tmp_path / "nowhere"
        assert elpase("explain", missing).error.startswith(f"{missing}: there is no such folder, expected the folder")
        file = tmp_path / "file"
        file.touch()
        assert elpase("explain", file).error.startswith(f"{file}: is a file, expected the folder of a run")

    @pytest.mark.parametrize("name", ["result.json", "requests.parquet", "steps.parquet"])
    def test_a_file_is_missing(self, name, elpase, folder) -> None:
        (folder / name).unlink()
        how = "--keep-steps --out" if name == "steps.parquet" else "--out"
        expected = f"{folder}: has no {name}: is it what elpase replay {how} wrote?"
        assert elpase("explain", folder).error == expected

    @pytest.mark.parametrize("text", ["", "{", "[1]", '{"sim": 3}', '{"num_prompts": 60}', "\ud800"])
    def test_a_result_of_something_else(self, text, elpase, folder) -> None:
        (folder / "result.json").write_bytes(text.encode("utf-8", "surrogatepass"))
        assert str(folder / "result.json") in elpase("explain", folder).error

    @pytest.mark.parametrize("name", ["requests.parquet", "steps.parquet"])
    def test_not_a_table(self, name, elpase, folder) -> None:
        (folder / name).write_text("arrival_s,prompt_tokens\n")
        assert str(folder / name) in elpase("explain", folder).error

    def test_another_version(self, elpase, folder) -> None:
        say_otherwise(folder, elpase_version="9.7.1")
        assert re.fullmatch(
            re.escape(f"{folder}: made by elpase 9.7.1, this is ") + r"[\d.]+: replay it again",
            elpase("explain", folder).error,
        )

    @pytest.mark.parametrize(("file", "column"), [("requests", "preemptions"), ("steps", "chunk_tokens")])
    def test_a_column_is_missing(self, file, column, elpase, folder) -> None:
        rewrite(folder / f"{file}.parquet", lambda table, meta: (table.drop_columns([column]), meta))
        expected = f"{folder}: {file} have no {column}: another version's run, replay it again"
        assert elpase("explain", folder).error == expected

    def test_an_unknown_limit(self, elpase, folder) -> None:
        def change(table, meta):
            at = table.column_names.index("limit")
            return table.set_column(at, "limit", pa.array(["moon"] * table.num_rows)), meta

        rewrite(folder / "steps.parquet", change)
        assert (
            f"{folder / 'steps.parquet'}: limit: got 'moon', expected one of nothing, tokens"
            in elpase("explain", folder).error
        )

    @pytest.mark.parametrize("verb", ["explain", "report"])
    @pytest.mark.parametrize(
        ("file", "column", "values", "told"),
        [
            ("requests", "prompt_tokens", ["many"], "a column of whole numbers >= 0"),
            ("requests", "prompt_tokens", [-1], "a column of whole numbers >= 0"),
            ("requests", "prompt_tokens", [1.5], "a column of whole numbers >= 0"),
            ("requests", "preemptions", [None], "a column of whole numbers >= 0"),
            ("requests", "preemptions", [1 << 62], "a column of whole numbers >= 0"),
            ("requests", "arrival_s", [float("nan")], "a column of finite numbers"),
            ("requests", "finish_s", [float("inf")], "a column of finite numbers"),
            ("requests", "first_token_s", [float("nan")], "a column of times wherever itls_s has gaps"),
            ("requests", "error", [3], "a column of texts"),
            ("requests", "status", ["lost"], "got 'lost', expected one of finished, rejected, unfinished"),
            ("requests", "itls_s", [0.1], "a column of token gaps"),
            ("requests", "itls_s", [[float("nan")]], "finite gaps >= 0"),
            ("steps", "end_s", [float("nan")], "a column of finite numbers"),
            ("steps", "num_tokens", [[1]], "a column of whole numbers >= 0"),
            ("steps", "chunk_row", [60], "a column of rows of requests.parquet"),
            ("steps", "extrapolated", [1], "a column of true or false"),
            ("steps", "runtime_mode", ["FAST"], "got 'FAST', expected one of"),
        ],
    )
    def test_a_column_is_spoilt(self, file, column, values, told, verb, elpase, folder) -> None:
        def change(table, meta):
            at = table.column_names.index(column)
            kind = table.schema.field(column).type if told == "finite gaps >= 0" or values == [None] else None
            return table.set_column(at, column, pa.array(values * table.num_rows, kind)), meta

        rewrite(folder / f"{file}.parquet", change)
        error = elpase(verb, folder).error
        assert error.startswith(f"{folder / file}.parquet: {column}: ")
        assert told in error

    def test_a_partial_run(self, elpase, folder) -> None:
        say_otherwise(folder, partial=True)
        assert elpase("explain", folder).error.startswith(f"{folder}: was cut short (partial)")

    def test_no_requests(self, elpase, folder) -> None:
        for name in ("requests.parquet", "steps.parquet"):
            rewrite(folder / name, lambda table, meta: (table.slice(0, 0), meta))
        said = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        (folder / "result.json").write_text(json.dumps(said | {"num_prompts": 0}), encoding="utf-8")
        assert elpase("explain", folder).error == f"{folder}: there are no requests to explain"

    def test_no_steps(self, elpase, folder) -> None:
        rewrite(folder / "steps.parquet", lambda table, meta: (table.slice(0, 0), meta))
        assert elpase("explain", folder).error.startswith(f"{folder}: no step was run: ")

    def test_files_of_two_runs(self, elpase, folder) -> None:
        rewrite(folder / "requests.parquet", lambda table, meta: (table.slice(0, 7), meta))
        expected = (
            f"{folder}: result.json says num_prompts 60, requests.parquet has 7 requests: they are of different runs"
        )
        assert elpase("explain", folder).error == expected

    def test_tables_of_two_runs(self, elpase, folder) -> None:
        rewrite(folder / "steps.parquet", lambda table, meta: (table, {**meta, "seed": 77}))
        expected = f"{folder}: steps.parquet and requests.parquet are of different runs"
        assert elpase("explain", folder).error == expected

    @pytest.mark.parametrize("verb", ["explain", "report"])
    @pytest.mark.parametrize(
        ("meta", "told"),
        [
            ({"elpase_version": None}, "elpase_version: missing"),
            ({"profile": 3}, "profile: got 3, expected a text"),
            ({"request_rate": "many"}, "request_rate: got 'many', expected a finite number"),
            ({"response_s": "soon"}, "response_s: got 'soon', expected a finite number"),
            ({"response_s": 1.5}, "response_s: got 1.5, expected the time from a step's end"),
            ({"num_gpu_blocks": 2.5}, "num_gpu_blocks: got 2.5, expected an integer"),
            ({"partial": 1}, "partial: got 1, expected true or false"),
            ({"config": {"max_num_seqs": 3}}, "config: of another version: replay it again"),
            ({"config": {"flux": 1}}, "config: of another version: replay it again"),
            ({"config": ("max_num_seqs", 0)}, "config.max_num_seqs: got 0, expected at least 1"),
            ({"config": ("max_num_seqs", 1.5)}, "config.max_num_seqs: got 1.5, expected a whole number"),
            ({"config": ("max_num_seqs", "x")}, "config: not the settings of a scheduler"),
            ({"config": ("watermark", [])}, "config.watermark: got [], expected a finite number"),
            ({"host": {}}, "host.mode: missing, expected a text"),
            ({"host": {"mode": "swap", "num_blocks": "x"}}, "host.num_blocks: got 'x', expected an integer"),
            ({"spec_decode": {}}, "spec_decode.num_draft_tokens: missing"),
            ({"spec_decode": {"num_draft_tokens": 3, "num_drafts": 0}}, "spec_decode.num_drafts: got 0"),
            (
                {"spec_decode": {"num_draft_tokens": 0, "num_drafts": 0, "num_accepted_tokens_per_pos": ["x"]}},
                "spec_decode.num_accepted_tokens_per_pos: got ['x'], expected a list of whole numbers",
            ),
            ({"server": {"cudagraph_capture_sizes": [0, 2]}}, "server.cudagraph_capture_sizes: got [0, 2], expected"),
            ({"server": {"cudagraph_mode": 3}}, "server.cudagraph_mode: got 3, expected a text"),
            ({"server": {"speculation": {}}}, "server.speculation.acceptance_rates: missing"),
            (
                {"server": {"speculation": {"acceptance_rates": [0.5]}}},
                "server.speculation.acceptance_rates: got [0.5]",
            ),
            ({"server": {"speculation": {"acceptance_rates": []}}}, "server.speculation.drafter: missing"),
            (
                {"server": {"speculation": {"acceptance_rates": [], "drafter": {"passes": 1}}}},
                "server.speculation.drafter: got {'passes': 1}, expected an object of passes, weights_read",
            ),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_what_the_tables_say_of_their_run_is_spoilt(self, meta, told, verb, elpase, folder) -> None:
        config = meta.get("config")
        if isinstance(config, tuple):
            of_run = json.loads(pq.read_schema(folder / "steps.parquet").metadata[b"elpase"])["config"]
            meta = {"config": {**of_run, config[0]: config[1]}}
        say_otherwise(folder, **meta)
        assert elpase(verb, folder).error.startswith(f"{folder / 'requests.parquet'}: {told}")

    def test_no_config_is_not_explained(self, elpase, folder) -> None:
        say_otherwise(folder, config=None)
        expected = f"{folder / 'requests.parquet'}: config: missing, expected an object"
        assert elpase("explain", folder).error == expected

    @pytest.mark.parametrize("text", [b"", b"{", b"[]", b"3", b"\xff", b"null", b"[" * 100_000])
    def test_what_the_tables_say_is_no_object(self, text, elpase, folder) -> None:
        for name in ("requests.parquet", "steps.parquet"):
            table = pq.read_table(folder / name)
            pq.write_table(table.replace_schema_metadata({b"elpase": text}), folder / name)
        assert elpase("explain", folder).error.startswith(f"{folder / 'requests.parquet'}")

    @pytest.mark.parametrize("name", ["requests.parquet", "steps.parquet"])
    def test_a_table_says_nothing_of_its_run(self, name, elpase, folder) -> None:
        pq.write_table(pq.read_table(folder / name).replace_schema_metadata({}), folder / name)
        assert elpase("explain", folder).error == f"{folder / name}: expected a table written by elpase"

    def test_an_unknown_profile_is_not_priced(self, elpase, folder) -> None:
        say_otherwise(folder, profile="mine")
        assert "Note: nothing is priced: mine is not a shipped profile" in elpase("explain", folder).out
