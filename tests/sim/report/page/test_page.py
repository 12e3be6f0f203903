"""The page as text: self-contained, escaped, true to the run, and of a sensible size; its colours can be read."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import pytest

from sim import EngineConfig
from sim.experiment import simulate
from sim.report.explain import explain
from sim.report.finished import FinishedRun
from sim.report.page.page import run_page
from sim.report.page.why import not_explained, why_section
from workloads import Request

VOID = {"meta", "link", "br"}


def made(**settings: object) -> FinishedRun:
    load = [Request(f"r{i}", i / 20, 500 + i, 20 + i % 7) for i in range(60)]
    result = simulate(load, meta={"trace": "toy", "seed": 3}, **settings)
    return FinishedRun(Path("run"), result.frames, result.summary())


@pytest.fixture(scope="module")
def run() -> FinishedRun:
    return made()


class Outline(HTMLParser):
    """Checks that tags are closed in order, and collects what tests ask for."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open, self.tags, self.ids, self.headings = [], [], [], []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.ids += [value for name, value in attrs if name == "id"]
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_it_is_well_formed_and_can_be_navigated(run: FinishedRun) -> None:
    page = Outline(run_page(run))
    assert len(page.ids) == len(set(page.ids))
    assert page.headings[0] == 1
    assert page.headings.count(1) == 1
    links = [attrs["href"][1:] for tag, attrs in page.tags if tag == "a"]
    assert links == ["time", "latency", "waiting", "tables", "origin"]
    assert set(links) <= set(page.ids)
    assert ("html", {"lang": "en"}) in page.tags
    for tag, attrs in page.tags:
        if attrs.get("role") in ("img", "group", "region"):
            assert attrs["aria-label"], tag
        if tag == "th":
            assert attrs["scope"] in ("row", "col")


def test_it_asks_for_nothing(run: FinishedRun) -> None:
    text = run_page(run)
    assert re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?([^"'#)\s>]+)""", text) == ["data:,"]
    assert "default-src 'none'" in text
    assert "http://www.w3.org/2000/svg" in text  # a name, not an address
    assert len(re.findall("https?://", text)) == 1


def test_it_says_what_the_result_says(run: FinishedRun) -> None:
    text = run_page(run)
    result = run.result
    for key in ("mean_ttft_ms", "p99_tpot_ms", "median_itl_ms"):
        assert f"<td>{result[key]:,.2f}</td>" in text
    assert "60 of 60 requests finished" in text
    assert "elpase 0.1.0, scheduler of vLLM 0.32" in text
    assert "<dt>Seed</dt><dd>3</dd>" in text
    assert "<dt>max_num_seqs</dt><dd>1024</dd>" in text


def test_the_same_run_gives_the_same_page(run: FinishedRun) -> None:
    assert run_page(run) == run_page(made())


def test_names_cannot_become_markup(run: FinishedRun) -> None:
    evil = "</script><script>alert(1)</script>"
    frames = replace(run.frames, meta={**run.frames.meta, "trace": evil, "profile": "<b>&"})
    frames.requests["request_id"] = evil
    text = run_page(replace(run, frames=frames))
    assert "alert(1)</script>" not in text
    assert "&lt;script&gt;alert(1)" in text
    Outline(text)


def test_the_command_is_told(run: FinishedRun) -> None:
    flags = {"limit": 60, "async_scheduling": False, "goodput": ["ttft:200", "tpot:20"]}
    frames = replace(run.frames, meta={**run.frames.meta, "flags": flags})
    told = "elpase replay toy --limit 60 --no-async-scheduling --goodput ttft:200 --goodput tpot:20"
    assert f"<dt>Command</dt><dd>{told}</dd>" in run_page(replace(run, frames=frames))


def test_it_says_why(run: FinishedRun) -> None:
    """Every finding with its arithmetic and its advice, every setting, every gap, as text."""
    pressed = made(config=EngineConfig(num_gpu_blocks_override=200, max_model_len=2048))
    told = explain(pressed.frames)
    assert told.findings
    text = run_page(pressed, why_section(told))
    Outline(text)
    plain = unescape(re.sub(r"<[^>]+>", "\n", text)).replace("\u00a0", " ")
    for finding in told.findings:
        assert {finding.what, *finding.because, *finding.change} <= set(plain.split("\n"))
    assert {knob.name for knob in told.knobs} <= set(plain.split("\n"))
    assert f"The {len(told.gaps)} worst gaps between tokens" in plain
    assert '<a href="#explain">Why</a>' in text
    assert "Not explained: it was cut short." in run_page(run, not_explained("it was cut short"))


def test_cautions_stand_at_the_top(run: FinishedRun) -> None:
    sim = run.result["sim"] | {"partial": True, "unfinished": 7, "rejected": 2, "extrapolated_steps": 5}
    sim |= {"extrapolated_share": 0.125, "load": run.result["sim"]["load"] | {"ordering_only": True}}
    text = run_page(replace(run, result={**run.result, "sim": sim}))
    notes = re.findall(r'<p class="note" role="note">(.*?)</p>', text)
    assert [note.split()[0] for note in notes] == ["Cut", "Requests", "At", "5"]
    assert "(12 %)" in notes[3]
    assert 'class="note"' not in run_page(run)
    one = run.result["sim"] | {"partial": True, "unfinished": 1, "extrapolated_steps": 1, "extrapolated_share": 0.125}
    text = run_page(replace(run, result={**run.result, "sim": one}))
    assert "Cut short: 1 request did not finish, and is not in the latencies." in text
    assert "1 step (12 %) lies outside what the profile was fitted on; its time is extrapolated." in unescape(
        text
    ).replace("\u00a0", " ")


def test_a_run_in_which_nothing_ran(run: FinishedRun) -> None:
    """Every request was refused: no steps, no latencies, still a page."""
    nothing = simulate([Request("long", 0.0, 100_000, 5)], meta={"trace": "t"})
    text = run_page(FinishedRun(Path("run"), nothing.frames, nothing.summary()))
    Outline(text)
    assert "0 of 1 request finished" in text
    assert "No request was answered." in text
    assert "Requests that the server refused: 1." in text


def test_a_long_run_stays_small_and_says_so(run: FinishedRun, monkeypatch) -> None:
    monkeypatch.setattr("sim.report.page.numbers.EXACT", 100)
    text = run_page(run)
    assert "are too many for a page: it holds means and peaks of" in text
    data = json.loads(re.search(r'id="data">(.*?)</script>', text)[1])
    assert {len(curve["mean"]) for curve in data["time"]["series"].values()} == {12_000}


COLOR = re.compile(r"--([\w-]+): (#[0-9a-f]{6})")


def luminance(color: str) -> float:
    """WCAG 2's."""
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_colours_can_be_read(scheme: int) -> None:
    """WCAG AA: 4.5 for text, 3 for what is drawn."""
    style = files("sim.report.page").joinpath("page.css").read_text(encoding="utf-8")
    colors = dict(COLOR.findall(re.findall(r":root \{(.*?)\}", style, re.DOTALL)[scheme]))
    for paper in ("paper", "card"):
        for words in ("ink", "soft", "blue", "green"):
            assert contrast(colors[words], colors[paper]) >= 4.5, (words, paper)
        for drawn in ("orange", "purple", "red", "brown"):
            assert contrast(colors[drawn], colors[paper]) >= 3, (drawn, paper)
    assert contrast(colors["note-ink"], colors["note"]) >= 4.5
