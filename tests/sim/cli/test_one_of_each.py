"""A run of one request, wherever it is told: one is no plural."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

PLURAL_OF_ONE = re.compile(r".*(?<![\d,.])1 (?:(?:prompt|worst|useful|running) )?(?:requests|steps|tokens|blocks|gaps"
                           r"|runs|rows|settings|decodes|preemptions|times|sequences|samples|cases)\b.*")  # fmt: skip


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory, elpase) -> Path:
    """A prompt of 1 token, an answer of 2: one step with one token, and one gap; a second request is refused."""
    folder = tmp_path_factory.mktemp("one")
    trace = folder / "t.csv"
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n0,1,2\n1,5000,1\n")
    done = elpase("replay", trace, "--max-model-len", "2048", "--out", folder / "run")
    assert done.code == 0
    assert "skipped 1 row: " in done.err
    assert not PLURAL_OF_ONE.findall(done.err)
    return folder / "run"


def test_explained(one: Path, elpase) -> None:
    told = elpase("explain", one).out
    assert "The worst gap between tokens" in told
    assert "largest step: 1 token\n" in told
    assert " 1 gap in all: " in " ".join(told.split())
    assert not PLURAL_OF_ONE.findall(told)


def test_compared(one: Path, elpase) -> None:
    told = elpase("compare", one, one).out
    assert ", 1 request in " in told
    assert not PLURAL_OF_ONE.findall(told)


def test_reported(one: Path, elpase) -> None:
    elpase("report", one, "-o", one / "report.html")
    page = (one / "report.html").read_text()
    told = html.unescape(re.sub(r"<(script|style).*?</\1>", "", page, flags=re.DOTALL)).replace("\u00a0", " ")
    assert "1 of 1 request finished in " in told
    assert "Inter-token latency of 1 gap: half within " in told
    assert not PLURAL_OF_ONE.findall(told)


def test_swept(one: Path, elpase) -> None:
    """One of the two settings is impossible, so one is left to be at work in."""
    flags = ("--max-model-len", "2048", "--jobs", "1", "--vary", "max_num_batched_tokens=16,2048")
    told = elpase("sweep", one.parent / "t.csv", *flags, "--vary", "max_num_seqs=16,17")
    assert told.code == 0
    assert not PLURAL_OF_ONE.findall(told.out)
