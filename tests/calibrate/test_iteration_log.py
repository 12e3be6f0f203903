"""Logs of real servers are read whatever stands around their lines, and useless ones are refused with the reason."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from calibrate.iteration_log import WINDOW, Iteration, host_seconds, parse_iteration_log, read_iteration_log
from sim.errors import InputError

DATA = Path(__file__).parent / "data"

OLD = (
    "(EngineCore_DP{rank} pid={pid}) INFO 01-20 10:00:{s:02d} [core.py:359] Iteration({i}): 1 context requests, 400 "
    "context tokens, {g} generation requests, {g} generation tokens, iteration elapsed time: {ms:.2f} ms"
)
NEW = (
    "(APIServer pid=7) INFO 01-20 10:00:{s:02d} [loggers.py:199] Engine {rank:03d}: Iteration({i}): 0 context requests,"
    " 0 context tokens, {g} generation requests, {g} generation tokens, iteration elapsed time: {ms:.2f} ms, GPU KV "
    "cache usage: 12.5%"
)


def old(i: int, *, rank: int = 0, pid: int = 70, s: int = 0, g: int = 3, ms: float = 12.34) -> str:
    return OLD.format(i=i, rank=rank, pid=pid, s=s, g=g, ms=ms)


def new(i: int, *, rank: int = 0, s: int = 0, g: int = 3, ms: float = 12.34) -> str:
    return NEW.format(i=i, rank=rank, s=s, g=g, ms=ms)


def test_a_real_log_of_vllm_0_32() -> None:
    log = read_iteration_log(DATA / "vllm_0_32.log")
    assert len(log.iterations) == 14
    first, second = log.iterations[:2]
    assert (first.index, first.prompts, first.prompt_tokens, first.decodes) == (0, 1, 389, 0)
    assert (second.prompts, second.prompt_tokens, second.decodes, second.decode_tokens) == (2, 511, 1, 1)
    assert first.elapsed_s == pytest.approx(0.52107)
    assert first.kv_usage == pytest.approx(0.001)
    assert (log.cache_tokens, log.block_size, log.version) == (524_288, 32, "0.32.0")
    assert log.synchronous  # of the CPU build, which cannot do otherwise
    assert (log.broken, log.dummies, log.repeated, log.resolution_s) == (0, 0, 0, 1.0)


def test_a_whole_gzipped_log_of_vllm_0_32() -> None:
    """Steps that the server itself numbered, up to 2,407."""
    log = read_iteration_log(DATA / "vllm_cpu/server.log.gz")
    assert [step.index for step in log.iterations] == list(range(2408))
    assert (log.version, log.synchronous, log.cache_tokens, log.block_size) == ("0.32.0", True, 262_144, 32)


def test_a_damaged_gzip_log_is_one_line(tmp_path: Path) -> None:
    whole = (DATA / "vllm_cpu/server.log.gz").read_bytes()
    for damaged in (whole[:9000], b"not gzip", whole[:100] + b"x" * 50 + whole[150:]):
        path = tmp_path / "server.log.gz"
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=r"server.log.gz: damaged: .*, expected a whole gzip file"):
            read_iteration_log(path)


def test_the_old_dialect() -> None:
    log = parse_iteration_log([old(5), old(6)])
    assert [step.index for step in log.iterations] == [5, 6]
    step = log.iterations[0]
    assert (step.prompts, step.prompt_tokens, step.decodes, step.elapsed_s) == (1, 400, 3, pytest.approx(0.01234))
    assert math.isnan(step.kv_usage)


@pytest.mark.parametrize("line", [old, new])
def test_several_engines_in_one_file_are_told_apart(line) -> None:
    lines = [line(i, rank=rank, **({"pid": 70 + rank} if line is old else {})) for i in range(3) for rank in range(2)]
    engines = parse_iteration_log(lines).engines()
    assert [[step.index for step in steps] for steps in engines.values()] == [[0, 1, 2], [0, 1, 2]]


def test_a_server_that_started_again_is_another_engine() -> None:
    engines = parse_iteration_log([new(0), new(1), new(0), new(1)]).engines()
    assert [len(steps) for steps in engines.values()] == [2, 2]


def test_other_lines_and_two_steps_in_one_line() -> None:
    access = 'INFO:     127.0.0.1:40998 - "POST /v1/completions HTTP/1.1" 200 OK'
    log = parse_iteration_log([access, new(0) + new(1), "", "\x00garbage", new(2)])
    assert [step.index for step in log.iterations] == [0, 1, 2]
    assert log.broken == 0


def test_broken_and_cut_lines_are_counted() -> None:
    half = len(new(1)) // 2
    log = parse_iteration_log([new(0), new(1)[:half] + new(2), new(3)[: new(3).index(" ms")]])
    assert [step.index for step in log.iterations] == [0, 2]
    assert log.broken == 2


def test_a_line_cut_behind_its_time_still_counts() -> None:
    log = parse_iteration_log([new(0)[: new(0).index("GPU KV") + 3]])
    assert len(log.iterations) == 1
    assert math.isnan(log.iterations[0].kv_usage)


def test_a_line_that_two_log_handlers_wrote_counts_once() -> None:
    log = parse_iteration_log([new(0), new(0), new(1)])
    assert (len(log.iterations), log.repeated) == (2, 1)


def test_dummy_steps_are_left_out() -> None:
    log = parse_iteration_log([old(0), old(1) + " (dummy)"])
    assert (len(log.iterations), log.dummies) == (1, 1)


@pytest.mark.parametrize(
    "head",
    [
        "INFO 05-22 08:41:44 [vllm.py:886] Asynchronous scheduling is enabled.",
        "INFO [api_utils.py:286] non-default args: {'model': 'm', 'async_scheduling': True}",
    ],
)
def test_a_log_under_async_scheduling_is_refused_with_the_reason(head: str) -> None:
    log = parse_iteration_log([head, new(0)])
    with pytest.raises(InputError, match=r"taken under async scheduling.*--no-async-scheduling"):
        log.require_synchronous("server.log", assume=True)


@pytest.mark.parametrize(
    "head",
    [
        "INFO 05-22 08:41:44 [vllm.py:886] Asynchronous scheduling is disabled.",
        "INFO [api_utils.py:286] non-default args: {'model': 'm', 'async_scheduling': False}",
    ],
)
def test_a_synchronous_log_is_taken(head: str) -> None:
    parse_iteration_log([head, new(0)]).require_synchronous()


def test_a_log_that_does_not_say_is_taken_on_somebodys_word_only() -> None:
    log = parse_iteration_log([new(0)])
    with pytest.raises(InputError, match="--synchronous"):
        log.require_synchronous()
    log.require_synchronous(assume=True)


@pytest.mark.parametrize(("text", "told"), [("", "no iteration lines"), (new(0)[:90], "1 broken iteration line only")])
def test_a_log_without_steps_is_refused(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "server.log"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=f"server.log: {told}"):
        read_iteration_log(file)


# -- the host's time ---------------------------------------------------------------------------------------------------


def stepped(hosts_s: list[float], elapsed_s: float = 0.010) -> list[Iteration]:
    """Steps of one running request, each logged when it was over."""
    now, steps = 100.0, []
    for i, host_s in enumerate(hosts_s):
        now += elapsed_s + host_s
        steps.append(Iteration("engine 0", i, 0, 0, 1, 1, elapsed_s, logged_s=now))
    return steps


def test_the_host_has_what_lies_between_two_waits() -> None:
    found = host_seconds(stepped([0.002] * 40), 1e-3)
    assert math.isnan(found[0])  # nobody knows when it began
    assert found[1:] == pytest.approx([0.002] * 39)


def test_the_hosts_time_is_a_windows_mean() -> None:
    hosts = [0.001, 0.003] * WINDOW
    found = host_seconds(stepped(hosts), 1e-3)
    assert found[1:] == pytest.approx([0.002] * (len(hosts) - 1), rel=0.05)


def test_an_idle_servers_pauses_are_not_the_hosts() -> None:
    busy = stepped([0.002] * (WINDOW + 1))
    pause = 50.0
    later = [
        Iteration("engine 0", s.index + len(busy), 1 if i == 0 else 0, 9 if i == 0 else 0, int(i > 0), int(i > 0),
                  s.elapsed_s, logged_s=s.logged_s + pause)
        for i, s in enumerate(busy)
    ]  # fmt: skip
    found = host_seconds([*busy, *later], 1e-3)
    assert [h for h in found if not math.isnan(h)] == pytest.approx([0.002] * (2 * WINDOW))


def test_stamps_of_whole_seconds_need_long_spans() -> None:
    def whole(step: Iteration) -> Iteration:
        return Iteration("engine 0", step.index, 0, 0, 1, 1, step.elapsed_s, logged_s=math.floor(step.logged_s))

    short = [whole(step) for step in stepped([0.002] * 1000)]  # 12 s
    assert all(math.isnan(h) for h in host_seconds(short, 1.0))
    long = [whole(step) for step in stepped([0.002] * 6000)]  # 72 s
    known = [h for h in host_seconds(long, 1.0) if not math.isnan(h)]
    assert known == pytest.approx([0.002] * len(known), rel=0.2)
    assert known


def test_a_real_stamped_log_tells_the_hosts_time() -> None:
    log = read_iteration_log(DATA / "vllm_0_32_stamped.log")
    assert log.resolution_s == 1e-3
    hosts = host_seconds(log.iterations, log.resolution_s)
    whole_s = log.iterations[-1].logged_s - log.iterations[0].logged_s
    waits_s = sum(step.elapsed_s for step in log.iterations[1:])
    known = [h for h in hosts if not math.isnan(h)]
    assert sum(known) == pytest.approx(whole_s - waits_s, rel=0.35)
    assert all(0 < h < 0.02 for h in known)
