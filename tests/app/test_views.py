"""Every page with every kind of run: what is shown is what the report says, and nothing ever ends in a traceback."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from html import escape
from pathlib import Path

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from echotrap import config, pipeline
from echotrap.app import page

ROOT = Path(__file__).parents[2]
VIEWS = ("overview", "timeline", "rollouts", "compare", "catalogue", "runs")
SHARED = Path(__file__).parents[2] / "../shared"
HOSTILE = "<script>window.pwned = 1</script><img src=x onerror='window.pwned = 1'>"

Open = Callable[..., AppTest]


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """A run that falls into the Echo Trap at step 120, with rollouts that become one hostile phrase."""
    return write_trap(tmp_path / "trap")


def write_trap(folder: Path, steps: int = 200, fall: int = 120) -> Path:
    rng = np.random.default_rng(0)
    (folder / "rollouts").mkdir(parents=True)
    lines = []
    for step in range(1, steps + 1):
        gone = 1 / (1 + np.exp(-(step - fall) / 6))
        data = {
            "critic/score/mean": 0.4 - 0.3 * gone + rng.normal(0, 0.02),
            "actor/entropy": 1.9 - 1.8 * gone + rng.normal(0, 0.03),
            "actor/grad_norm": float(np.exp(rng.normal(-1, 0.15)) * (60 if fall + 20 <= step <= fall + 26 else 1)),
            "response_length/mean": 200 - 60 * gone + rng.normal(0, 5),
        }
        lines.append(json.dumps({"step": step, "data": data}))
        if step % 10 == 0:
            (folder / "rollouts" / f"{step}.jsonl").write_text("\n".join(_rollouts(step, step > fall, rng)), encoding="utf-8")
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def _rollouts(step: int, fallen: bool, rng: np.random.Generator) -> list[str]:
    out = []
    for prompt in range(6):
        for _ in range(4):
            words = " ".join(f"w{n}" for n in rng.integers(0, 5000, 40))
            text = f"<think>{'I should move right now because ' * 8}{HOSTILE}</think>" if fallen else f"<think>{words}</think>"
            score = 0.1 if fallen else float(rng.random() < 0.5)
            out.append(json.dumps({"input": f"board {prompt}", "output": text, "score": score, "step": step}))
    return out


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Open:
    """Open the dashboard on paths, at a page."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)

    def open_(*paths: Path | str, view: str = "overview", step: int | None = None) -> AppTest:
        monkeypatch.setattr(sys, "argv", ["main.py", *map(str, paths)])
        app = AppTest.from_file(str(ROOT / "app/main.py"), default_timeout=60)
        if step is not None:
            app.query_params["step"] = str(step)
        app.run()
        if view != "overview":
            app.switch_page(f"views/{view}.py").run()
        assert not app.exception, app.exception[0].message
        return app

    return open_


def html(app: AppTest) -> str:
    """All HTML that the page builds."""
    return "\n".join(item.proto.body for item in app.get("html"))


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_shows_a_trap(opened: Open, trap: Path, view: str) -> None:
    app = opened(trap / "metrics.jsonl", view=view)
    assert not app.error
    report = pipeline.check(str(trap / "metrics.jsonl"), config.Settings())
    assert escape(page.label(report.verdict.label, report.verdict.stage)) in html(app)


def test_the_banner_says_what_the_report_says(opened: Open, trap: Path) -> None:
    verdict = pipeline.check(str(trap / "metrics.jsonl"), config.Settings()).verdict
    shown = html(opened(trap / "metrics.jsonl"))
    assert escape(verdict.headline) in shown
    assert f"<b>{verdict.onset_step:,}</b>" in shown
    assert f"<b>{verdict.alarm_step:,}</b>" in shown
    assert all(escape(line) in shown for line in verdict.why)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("empty.jsonl", b""),
        ("binary.bin", bytes(range(256)) * 40),
        ("cut.jsonl", b'{"step": 1, "reward": 0.'),
        ("nan.jsonl", b'{"step": 1, "reward": NaN, "grad_norm": NaN}\n'),
        ("prose.txt", b"Dear diary, today nothing was logged.\n"),
    ],
)
@pytest.mark.parametrize("view", VIEWS)
def test_a_broken_log_gives_words(opened: Open, tmp_path: Path, name: str, content: bytes, view: str) -> None:
    (tmp_path / name).write_bytes(content)
    app = opened(tmp_path / name, view=view)
    assert app.error or app.info or "insufficient data" in html(app) or view in ("runs", "catalogue")


def test_a_path_that_does_not_exist_is_named(opened: Open, tmp_path: Path) -> None:
    app = opened(tmp_path / "nowhere")
    assert "nowhere" in app.error[0].value


def test_an_unexpected_error_becomes_a_line(opened: Open, trap: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(pipeline, "judge", broken)
    app = opened(trap / "metrics.jsonl")
    assert "ZeroDivisionError" in app.error[0].value
