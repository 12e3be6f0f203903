"""The trace is one that Perfetto can draw: valid JSON, slices that nest, one thing at a time on each track."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections import defaultdict
from itertools import pairwise

import pytest

from sim.report.timeline import write_timeline

PRESSED = {"blocks": 1200, "rate": 20, "prompt": 300, "output": 200, "requests": 120, "max_model_len": 900}
ENGINE, REQUESTS = 1, 2


def events_of(frames, path) -> list[dict]:
    write_timeline(frames, path)
    trace = json.loads(path.read_text())
    assert set(trace) == {"displayTimeUnit", "traceEvents"}
    return trace["traceEvents"]


@pytest.fixture(scope="module")
def pressed(toy_run, tmp_path_factory):
    frames = toy_run(**PRESSED)
    return frames, events_of(frames, tmp_path_factory.mktemp("trace") / "t.json")


def slices(events: list[dict]) -> dict[tuple[int, int], list[dict]]:
    tracks = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append(event)
    return tracks


def test_slices_of_a_track_follow_or_contain_each_other(pressed):
    for track in slices(pressed[1]).values():
        open_ends = []
        for event in sorted(track, key=lambda e: (e["ts"], -e["dur"])):
            while open_ends and open_ends[-1] <= event["ts"]:
                open_ends.pop()
            end = event["ts"] + event["dur"]
            assert not open_ends or end <= open_ends[-1]
            assert len(open_ends) < 2
            open_ends.append(end)


def test_every_step_has_its_slice_with_what_it_did(pressed):
    frames, events = pressed
    steps = slices(events)[ENGINE, 0]
    assert [e["args"]["num_tokens"] for e in steps] == frames.steps["num_tokens"].tolist()
    assert [e["ts"] for e in steps] == (frames.steps["start_s"] * 1e6).round().astype(int).tolist()
    assert {e["name"] for e in steps} == {"prefill", "decode", "mixed"}
    preempted = [e["args"]["requests"] for e in events if e["ph"] == "i" and e["name"] == "preemption"]
    assert sum(preempted) == frames.steps["preempted"].sum() > 0


def test_every_request_has_one_slice_and_its_phases_fill_it(pressed):
    frames, events = pressed
    seen = set()
    for (pid, _), track in slices(events).items():
        if pid != REQUESTS:
            continue
        for event in track:
            if "args" in event:
                seen.add(event["name"])
                inside = [e for e in track if "args" not in e and event["ts"] <= e["ts"] < event["ts"] + event["dur"]]
                assert sum(e["dur"] for e in inside) == event["dur"]
    finished = frames.requests[frames.requests["status"] == "finished"]
    assert seen == set(finished["request_id"])
    rejected = [e["name"] for e in events if e["name"].startswith("rejected toy")]
    assert len(rejected) == len(frames.requests) - len(finished) > 0


def test_slots_are_as_few_as_requests_at_once(pressed):
    """Reused slots: the most that overlap, counted by hand, and no track more."""
    frames, events = pressed
    table = frames.requests[frames.requests["status"] == "finished"]
    moments = sorted([(round(t * 1e6), 1) for t in table["send_s"]] + [(round(t * 1e6), -1) for t in table["finish_s"]])
    at_once, most = 0, 0
    for _, change in moments:
        at_once += change
        most = max(most, at_once)
    used = {e["tid"] for e in events if e["ph"] == "X" and e["pid"] == REQUESTS}
    assert used == set(range(1, most + 1))
    named = {e["args"]["name"] for e in events if e["name"] == "thread_name" and e["pid"] == REQUESTS}
    assert named == {"rejected", *(f"slot {slot}" for slot in used)}


def test_counters_go_forward_and_end_at_zero(pressed):
    tracks = defaultdict(list)
    for event in pressed[1]:
        if event["ph"] == "C":
            tracks[event["name"]].append(event)
    assert set(tracks) == {"requests", "KV cache", "step tokens"}
    for track in tracks.values():
        times = [event["ts"] for event in track]
        assert times == sorted(times)
        assert not any(track[-1]["args"].values())
        assert all(a["args"] != b["args"] for a, b in pairwise(track))
    assert max(e["args"]["running"] for e in tracks["requests"]) == pressed[0].steps["running"].max()
    assert max(e["args"]["used %"] for e in tracks["KV cache"]) == 100.0


def test_an_idle_engine_counts_nobody(toy_run, tmp_path):
    """Two requests far apart: between them the counters are zero."""
    frames = toy_run(requests=2, rate=0.05)
    ends = frames.steps["end_s"][frames.steps["start_s"].diff().shift(-1) > 1.0]
    (idle_from,) = (ends * 1e6).round()
    zeros = [e for e in events_of(frames, tmp_path / "t.json") if e["ph"] == "C" and e["ts"] == idle_from]
    assert len(zeros) == 3
    assert not any(value for e in zeros for value in e["args"].values())


@pytest.mark.parametrize("run", [{"requests": 0}, {"requests": 1}, {"requests": 50, "rate": 40.0, "stop_s": 1.0}])
def test_empty_single_and_cut_runs_are_valid_traces(toy_run, tmp_path, run):
    frames = toy_run(**run)
    events = events_of(frames, tmp_path / "t.json")
    shown = [e for e in events if e["ph"] == "X" and e["pid"] == REQUESTS and "args" in e]
    assert len(shown) == frames.requests["send_s"].notna().sum()
    assert all(event["dur"] >= 0 for event in events if event["ph"] == "X")


def test_gz_packs_the_same_trace_in_the_same_bytes_each_time(toy_run, tmp_path):
    frames = toy_run(requests=20)
    write_timeline(frames, tmp_path / "plain.json")
    for name in ("a.json.gz", "b.json.gz"):
        write_timeline(frames, tmp_path / name)
    packed = (tmp_path / "a.json.gz").read_bytes()
    assert packed == (tmp_path / "b.json.gz").read_bytes()
    assert gzip.decompress(packed) == (tmp_path / "plain.json").read_bytes()


def test_writing_takes_a_fraction_of_the_memory_of_what_is_written(toy_run, tmp_path):
    frames = toy_run(requests=500, rate=12.0)
    write_timeline(frames, tmp_path / "warm.json")
    tracemalloc.start()
    write_timeline(frames, tmp_path / "t.json")
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 0.6 * (tmp_path / "t.json").stat().st_size
