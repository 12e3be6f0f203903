"""Host and client from one-at-a-time runs: known overheads are found again."""

from __future__ import annotations

from pathlib import Path

import pytest

from calibrate.synchronous import Alone, overheads, read_alone
from sim.errors import InputError
from sim.latency import Profile
from sim.latency.shape import StepShape

LAW = Profile.load("h100-qwen3-14b").law

HEAD = "arrival_s,send_s,prompt_tokens,output_tokens,ttft_s,e2e_s"


def alone(prompt: int, output: int, *, step_s: float, request_s: float, token_s: float) -> Alone:
    """As a server with such overheads would be measured."""
    decode = LAW.price(StepShape(1, 1, prompt + output // 2, 0, 0.0, 1)).device_s
    first = LAW.price(StepShape(prompt, 1, 0, prompt, prompt**2 / 2, 1)).device_s
    return Alone(prompt, output, first + step_s + request_s + token_s * prompt, decode + step_s)


def test_known_overheads_are_found() -> None:
    runs = [alone(p, o, step_s=0.7e-3, request_s=6e-3, token_s=4e-6) for p in (64, 1024) for o in (64, 1024)]
    found = overheads(LAW, runs)
    assert found.step_s == pytest.approx(0.7e-3)
    assert found.client.request_s == pytest.approx(6e-3)
    assert found.client.request_token_s == pytest.approx(4e-6)
    assert found.spread_s == pytest.approx(0.0, abs=1e-9)


def test_one_kind_of_prompt_cannot_tell_the_tokenizer() -> None:
    found = overheads(LAW, [alone(512, 64, step_s=1e-3, request_s=5e-3, token_s=2e-6)])
    assert found.client.request_s == pytest.approx(5e-3 + 512 * 2e-6)
    assert found.client.request_token_s == 0.0


def test_a_client_takes_no_less_than_no_time() -> None:
    """A server faster than its composed kernels shows it in every step, and not in the client."""
    found = overheads(LAW, [alone(p, 64, step_s=-1e-3, request_s=-2e-3, token_s=0) for p in (64, 1024)])
    assert found.step_s == pytest.approx(-1e-3)
    assert found.client.request_s == 0.0
    assert found.client.request_token_s == 0.0


def test_a_csv_of_requests(tmp_path: Path) -> None:
    """Two requests: 10 gaps in 0.1 s, 20 gaps in 0.3 s; every gap weighs the same."""
    path = tmp_path / "one.csv"
    path.write_text(f"{HEAD}\n0,0,100,11,0.05,0.15\n1,1,300,21,0.07,0.37\n", encoding="utf-8")
    assert read_alone(path) == [Alone(200.0, 16.0, pytest.approx(0.06), pytest.approx(0.4 / 30))]


def test_overlapping_requests_are_no_synchronous_run(tmp_path: Path) -> None:
    path = tmp_path / "two.csv"
    path.write_text(f"{HEAD}\n0,0,100,11,0.05,0.15\n0.1,0.1,300,21,0.07,0.37\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"two.csv:3: send_s: requests overlap"):
        read_alone(path)


def test_one_token_is_not_enough(tmp_path: Path) -> None:
    path = tmp_path / "one.csv"
    path.write_text(f"{HEAD}\n0,0,100,1,0.05,0.05\n", encoding="utf-8")
    with pytest.raises(InputError, match="no request has a second token"):
        read_alone(path)
