"""Processes that we start end when we say, and a server's counters are read."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from calibrate.processes import Server, counter, free_port, labels, pin, stop, wait_ready
from sim.errors import InputError

METRICS = """# HELP vllm:num_preemptions_total Cumulative number of preemptions.
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{engine="0",model_name="m"} 53.0
vllm:num_preemptions_total{engine="1",model_name="m"} 2.0
vllm:num_preemptions_created{engine="0"} 1.79e+09
vllm:cache_config_info{block_size="32",engine="0",num_gpu_blocks="100"} 1.0
plain_total 7.0
"""


def test_counters_and_labels() -> None:
    assert counter(METRICS, "vllm:num_preemptions_total") == 55.0
    assert counter(METRICS, "plain_total") == 7.0
    assert counter(METRICS, "missing_total") == 0.0
    assert labels(METRICS, "vllm:cache_config_info")["num_gpu_blocks"] == "100"
    with pytest.raises(InputError, match="/metrics has no missing"):
        labels(METRICS, "missing")


def test_a_free_port_can_be_bound() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", free_port()))


def child(code: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, process_group=0)


def gone(pid: int) -> bool:
    """Ended, whether or not anybody has asked for its status."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_stopping_takes_along_what_the_process_started() -> None:
    code = "import subprocess, time; p = subprocess.Popen(['sleep', '60']); print(p.pid, flush=True); time.sleep(60)"
    with child(code) as process:
        assert process.stdout is not None
        grandchild = int(process.stdout.readline())
        stop(process)
    # SIGTERM where the tests themselves run with Ctrl-C ignored, as shells do in the background: children inherit that.
    assert process.returncode in (-signal.SIGINT, -signal.SIGTERM, 1)
    end_s = time.monotonic() + 5
    while not gone(grandchild) and time.monotonic() < end_s:
        time.sleep(0.01)
    assert gone(grandchild)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no cores to choose from")
def test_pinning_takes_along_what_the_process_started_but_for_the_model() -> None:
    everywhere = os.sched_getaffinity(0)
    if len(everywhere) < 2:
        pytest.skip("one core only")
    core, models = min(everywhere), max(everywhere)
    code = (
        "import os, subprocess, time; p, q = (subprocess.Popen(['sleep', '60']) for _ in range(2));"
        f"os.sched_setaffinity(q.pid, [{models}]); print(p.pid, q.pid, flush=True); time.sleep(60)"
    )
    with child(code) as process:
        assert process.stdout is not None
        other, model = map(int, process.stdout.readline().split())
        pin(process, [])
        assert os.sched_getaffinity(process.pid) == everywhere
        pin(process, [core])
        assert os.sched_getaffinity(process.pid) == os.sched_getaffinity(other) == {core}
        assert os.sched_getaffinity(model) == {models}
        stop(process)


def test_stopping_what_has_ended_already() -> None:
    with child("pass") as process:
        process.wait()
        stop(process)
    assert process.returncode == 0


def test_a_server_that_ends_while_starting_is_told_with_its_last_words(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("INFO\nValueError: max_num_batched_tokens (1) is too small\n", encoding="utf-8")
    with child("raise SystemExit(1)") as process:
        process.wait()
        with pytest.raises(InputError, match=r"server.log: vllm serve ended while starting: ValueError: max_num"):
            wait_ready(Server(process, free_port(), log))


def test_a_server_that_does_not_get_ready_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("", encoding="utf-8")
    with child("import time; time.sleep(60)") as process:
        with pytest.raises(InputError, match="not ready within 0 s"):
            wait_ready(Server(process, free_port(), log), limit_s=0.1)
        stop(process)
    assert process.returncode != 0


def test_a_part_of_a_servers_log(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(b"before\n")
    with child("pass") as process:
        server = Server(process, 1, log)
        size = server.log_size()
        with log.open("ab") as file:
            file.write("after ü\n".encode() + b"\xff")
        assert server.log_part(size) == "after ü\n�"
    assert server.url == "http://127.0.0.1:1"
