"""The HTML report as a person opens it: from disk, in a real Chromium, with the network off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from echotrap.render import render
from echotrap.report import Report

pytestmark = pytest.mark.browser


@pytest.fixture
def page_of(browser: Any, tmp_path: Path, trap_report: Report, healthy_report: Report, scant_report: Report) -> Any:
    """Open one report, or all three on one page."""
    contexts = []

    def open_(many: bool = False, **options: Any) -> tuple[Any, list[str]]:
        file = tmp_path / "report.html"
        file.write_text(render([trap_report, healthy_report, scant_report] if many else [trap_report], "html"))
        context = browser.new_context(offline=True, **options)
        contexts.append(context)
        page, trouble = context.new_page(), []
        page.on("console", lambda message: trouble.append(message.text))
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("dialog", lambda dialog: trouble.append(dialog.message))
        page.on("request", lambda request: trouble.append(request.url) if request.url != file.as_uri() else None)
        page.goto(file.as_uri())
        return page, trouble

    yield open_
    for context in contexts:
        context.close()


@pytest.mark.parametrize("width", [400, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_asks_for_nothing_and_fits(page_of, width: int, scheme: str) -> None:
    page, trouble = page_of(viewport={"width": width, "height": 900}, color_scheme=scheme)
    assert page.title() == "grpo-qwen7b: ECHO TRAP, confirmed (stage 3)"
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
    assert dark is (scheme == "dark")
    assert trouble == []


def test_hostile_text_stays_text(page_of) -> None:
    page, trouble = page_of()
    assert '<script>alert("x")</script>' in page.locator(".rollout pre").last.inner_text()
    assert page.locator(".rollout img, .rollout script").count() == 0
    assert page.locator("mark").all_inner_texts() == ["My first action is to go."] * 2
    assert trouble == []


def test_it_reads_without_scripts_and_prints(page_of) -> None:
    page, _ = page_of(java_script_enabled=False)
    assert page.locator("h1").inner_text() == "ECHO TRAP, confirmed (stage 3)"
    assert page.locator(".panel").count() == 4
    assert len(page.pdf()) > 10_000


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(page_of, scheme: str, many: bool) -> None:
    from axe_playwright_python.sync_playwright import Axe

    page, _ = page_of(many, color_scheme=scheme, bypass_csp=True)
    found = Axe().run(page).response["violations"]
    assert [(item["id"], item["impact"], item["nodes"][0]["html"]) for item in found] == []
