"""What a person does with the dashboard, in a real browser."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from echotrap import pipeline
from echotrap.app.page import title

playwright = pytest.importorskip("playwright.sync_api")
Browser, Page, expect = playwright.Browser, playwright.Page, playwright.expect

pytestmark = pytest.mark.browser
REFRESH_S = 2.0  # of app/page.py
PATIENCE_MS = 120_000  # a busy machine is no fault of the page
CHART = ".echotrap-chart[data-ready]"
Dashboard = Callable[..., str]
expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page that may talk to nobody but the dashboard, and must not complain."""
    context = browser.new_context(viewport={"width": 1400, "height": 1000})
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    strangers: list[str] = []
    faults: list[str] = []
    page.on("request", lambda r: strangers.append(r.url) if r.url.startswith("http") and "127.0.0.1" not in r.url else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    yield page
    context.close()
    assert strangers == []
    assert faults == []


def click_chart(page: Page, share: float) -> None:
    """Click into the first panel at a share of its width."""
    box = page.locator(f"{CHART} .nsewdrag").first.bounding_box()
    assert box
    page.mouse.move(box["x"] + share * box["width"] - 3, box["y"] + box["height"] / 2)
    page.mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] / 2, steps=3)
    page.wait_for_timeout(250)
    page.mouse.click(box["x"] + share * box["width"], box["y"] + box["height"] / 2)


def drag_zoom(page: Page, first: float, last: float) -> list[float]:
    """Zoom by dragging over the first panel; returns the range of the x axis."""
    box = page.locator(f"{CHART} .nsewdrag").first.bounding_box()
    assert box
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + first * box["width"], y)
    page.mouse.down()
    page.mouse.move(box["x"] + last * box["width"], y, steps=8)
    page.mouse.up()
    page.wait_for_timeout(400)
    return x_range(page)


def x_range(page: Page) -> list[float]:
    """What the x axis shows."""
    shown: list[float] = page.evaluate(f"document.querySelector('{CHART}').layout.xaxis.range.map(Number)")
    return shown


def scrolled(page: Page) -> float:
    """How far down the page is."""
    return float(page.evaluate("document.querySelector('[data-testid=stMain]').scrollTop"))


def test_from_verdict_to_rollout(page: Page, dashboard: Dashboard, tmp_path: Path, write_trap: Callable[..., Path]) -> None:
    trap = write_trap(tmp_path / "trap")
    report = pipeline.check(str(trap))
    assert report.verdict.severity == "critical"
    page.goto(dashboard(trap))
    expect(page.get_by_test_id("verdict")).to_contain_text(report.verdict.headline)
    expect(page).to_have_title(title(report))
    page.wait_for_selector(CHART)

    click_chart(page, 0.755)
    expect(page.get_by_text(re.compile(r"step 1[45]\d")).first).to_be_visible()
    expect(page).to_have_url(re.compile(r"step=1[45]\d"))

    page.get_by_role("button", name="Rollouts of this step").click()
    said = page.locator(".echotrap-rollout .turn[data-role=assistant] .body").first
    expect(said).to_contain_text("I should move right now because")
    expect(said).to_contain_text("<script>window.pwned = 1</script><img src=x onerror='window.pwned = 1'>")
    assert page.locator(".echotrap-rollout script, .echotrap-rollout img").count() == 0
    assert page.evaluate("window.pwned") is None
    assert "I should move right" in (page.locator(".echotrap-rollout mark.repeat").first.text_content() or "")

    first = page.get_by_text("rollout 0", exact=False).first
    expect(first).to_be_visible()
    page.locator("body").press("ArrowRight")
    expect(page.get_by_text("rollout 1", exact=False).first).to_be_visible()


def test_live(page: Page, dashboard: Dashboard, tmp_path: Path, metrics_line: Callable[[int, int], str]) -> None:
    log = tmp_path / "growing.jsonl"
    log.write_text("".join(metrics_line(step, 10_000) for step in range(1, 81)))
    page.goto(dashboard(log))
    expect(page.get_by_test_id("verdict")).to_contain_text("ealthy")
    page.wait_for_selector(CHART)
    expect(page.get_by_text("live, last step", exact=False)).to_be_visible()

    zoomed = drag_zoom(page, 0.2, 0.6)
    page.set_viewport_size({"width": 1400, "height": 500})
    assert zoomed[1] - zoomed[0] < 50
    page.evaluate("document.querySelector('[data-testid=stMain]').scrollTop = 120")
    assert scrolled(page) == 120

    lines = tmp_path / "more.jsonl"  # written by another process, in one go, so that the moment is known
    lines.write_text("".join(metrics_line(step, 95) for step in range(81, 161)))
    writer = "import sys; open(sys.argv[1], 'a').write(open(sys.argv[2]).read())"
    subprocess.run([sys.executable, "-c", writer, str(log), str(lines)], check=True)
    written = time.monotonic()
    page.wait_for_function("document.title.startsWith('●')", timeout=PATIENCE_MS)
    expect(page.get_by_test_id("verdict").locator("xpath=self::*[contains(@class, 'et-critical')]")).to_be_visible()
    delay = time.monotonic() - written
    began = time.monotonic()
    pipeline.check(str(log))
    judging = time.monotonic() - began  # on a busy machine this is what takes long
    assert delay < 2 * REFRESH_S + max(1.0, 3 * judging), f"the alarm took {delay:.1f} s, judging {judging:.1f} s"

    page.wait_for_timeout(1000 * REFRESH_S)
    assert x_range(page) == pytest.approx(zoomed)
    assert scrolled(page) == 120
    assert page.evaluate(f"document.querySelector('{CHART}').calcdata[0].length") == 160


def test_a_broken_log_is_words(page: Page, dashboard: Dashboard, tmp_path: Path) -> None:
    (tmp_path / "noise.bin").write_bytes(bytes(range(256)) * 10)
    page.goto(dashboard(tmp_path / "noise.bin"))
    expect(page.get_by_text("binary", exact=False).first).to_be_visible()
    assert page.get_by_text("Traceback").count() == 0


def test_an_upload_is_judged(page: Page, dashboard: Dashboard, tmp_path: Path, metrics_line: Callable[[int, int], str]) -> None:
    calm, mine = tmp_path / "calm.jsonl", tmp_path / "mine.jsonl"
    calm.write_text("".join(metrics_line(step, 10_000) for step in range(1, 41)))
    mine.write_text("".join(metrics_line(step, 60) for step in range(1, 121)))
    page.goto(dashboard(calm) + "/runs")
    page.get_by_text("Look at a log of your own").click()
    page.locator("input[type=file]").set_input_files(mine)
    report = pipeline.check(str(mine))
    expect(page.get_by_test_id("verdict")).to_contain_text(report.verdict.headline)
    expect(page).to_have_title(title(report))
