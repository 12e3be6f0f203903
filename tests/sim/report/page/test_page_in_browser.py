"""The page in a real browser: no complaint, no request, figures that are there and can be used, at every width."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim import EngineConfig
from sim.experiment import simulate
from sim.report.explain import explain
from sim.report.finished import FinishedRun
from sim.report.page.page import run_page
from sim.report.page.why import why_section
from workloads import Request

PANELS = ("running", "waiting", "kv", "step_tokens", "tokens_per_s")


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    """Of a run that queues and preempts: every figure has something to show."""
    load = [Request(f"request-with-a-long-name-{i}", i / 40, 600 + 7 * i, 60 + i) for i in range(90)]
    result = simulate(load, EngineConfig(num_gpu_blocks_override=900, max_model_len=8192), meta={"trace": "a" * 60})
    assert result.requests["preemptions"].sum() > 0
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(
        run_page(FinishedRun(path.parent, result.frames, result.summary()), why_section(explain(result.frames))),
        encoding="utf-8",
    )
    return path


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_opens_without_complaint_at_every_width(browser, page: Path, width: int, dark: bool) -> None:
    browser.open(page, width, dark=dark)
    assert browser.complaints() == []
    assert browser.requests() == []
    assert browser.value("document.documentElement.scrollWidth") <= width
    paper = browser.value("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(18, 24, 30)") == dark
    for figure in [*(f"panel-{name}" for name in PANELS), *(f"spread-{m}" for m in ("ttft", "tpot", "itl", "e2el"))]:
        drawn = browser.value(
            f"(() => {{ const paths = [...document.querySelectorAll('#{figure} svg path')];"
            " const box = paths[0].getBoundingClientRect();"
            " return [paths.length, paths.every(p => !p.getAttribute('d').includes('NaN')), box.width, box.height,"
            f" box.right, document.querySelectorAll('#{figure} svg text').length] }})()"
        )
        count, finite, wide, high, right, words = drawn
        assert count >= 2, figure
        assert finite, figure
        assert wide > 0.4 * min(width, 500), figure
        assert high > 5, figure
        assert right <= width, figure
        assert words >= 2, figure


def box(browser, figure: str) -> dict[str, float]:
    browser.value(f"document.querySelector('#{figure} .plot').scrollIntoView({{block: 'center'}})")
    return browser.value(
        f"(() => {{ const b = document.querySelector('#{figure} .plot').getBoundingClientRect();"
        " return {x: b.x, y: b.y, w: b.width, h: b.height} })()"
    )


def reading(browser, figure: str) -> str:
    return browser.value(f"document.querySelector('#{figure} .reading').textContent")


def test_the_pointer_reads_all_panels_at_one_moment(browser, page: Path) -> None:
    browser.open(page, 1280)
    at = box(browser, "panel-running")
    browser.mouse("Moved", at["x"] + at["w"] / 2, at["y"] + at["h"] / 2)
    told = {name: reading(browser, f"panel-{name}") for name in PANELS}
    assert all(" at " in text for text in told.values()), told
    assert len({text.split(" at ")[1].split(",")[0] for text in told.values()}) == 1
    at = box(browser, "spread-ttft")
    browser.mouse("Moved", at["x"] + at["w"] / 2, at["y"] + at["h"] / 2)
    assert "% within" in reading(browser, "spread-ttft")
    assert reading(browser, "panel-running") == ""


def test_zooming_by_mouse_keys_and_buttons(browser, page: Path) -> None:
    def shown() -> str:
        return browser.value("document.getElementById('range').textContent")

    browser.open(page, 1280)
    assert shown() == ""
    whole = browser.value("document.querySelector('#panel-running path').getAttribute('d')")
    at = box(browser, "panel-running")
    middle = at["y"] + at["h"] / 2
    browser.mouse("Moved", at["x"] + 300, middle)
    browser.mouse("Pressed", at["x"] + 300, middle)
    browser.mouse("Moved", at["x"] + 500, middle)
    browser.mouse("Released", at["x"] + 500, middle)
    assert " to " in shown()
    assert browser.value("document.querySelector('#panel-running path').getAttribute('d')") != whole
    browser.value("document.querySelector('[data-zoom=all]').click()")
    assert shown() == ""
    browser.value("document.querySelector('#panel-kv .plot').focus()")
    browser.key("+")
    assert " to " in shown()
    browser.key("ArrowRight")
    assert " % at " in reading(browser, "panel-kv")
    browser.key("Escape")
    assert shown() == ""
    for button in ("in", "in", "on", "back", "out"):
        browser.value(f"document.querySelector('[data-zoom={button}]').click()")
    assert " to " in shown()
    assert browser.complaints() == []


def test_zooming_in_ends_at_steps(browser, page: Path) -> None:
    browser.open(page, 1280)
    for _ in range(40):
        browser.value("document.querySelector('[data-zoom=in]').click()")
    begin, end = browser.value("document.getElementById('range').textContent").split(" to ")
    assert 0 < float(end.removesuffix(" s")) - float(begin.removesuffix(" s")) <= 0.01
    assert browser.complaints() == []
