"""Every page with every kind of run: what is shown is what the report says, and nothing ever ends in a traceback."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from echotrap import config, live, pipeline
from echotrap.app import page, runs
from echotrap.report import Verdict

ROOT = Path(__file__).parents[2]
VIEWS = ("overview", "timeline", "rollouts", "tools", "compare", "catalogue", "runs")
SHARED = Path(__file__).parents[2] / "../shared"

Open = Callable[..., AppTest]


@pytest.fixture
def trap(tmp_path: Path, write_trap: Callable[..., Path]) -> Path:
    """A run that falls into the Echo Trap, with rollouts that become one hostile phrase."""
    return write_trap(tmp_path / "trap")


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What was derived from the samples' rollouts, once for all pages."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path) -> Open:
    """Open the dashboard on paths, at a page."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
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


def component(app: AppTest, kind: str) -> list[dict[str, Any]]:
    """What the components of one kind were given."""
    protos = [item.proto for item in app.get("bidi_component")]
    return [json.loads(proto.json) for proto in protos if proto.component_name == f"echotrap.{kind}"]


@functools.cache
def verdict_of(sample: str) -> Verdict:
    return pipeline.check(sample, config.Settings()).verdict


def samples() -> list[str]:
    return sorted(str(path.parent) for path in (ROOT / "sample_runs").glob("*/truth.toml"))


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("sample", samples(), ids=lambda path: Path(path).name)
def test_every_view_shows_every_sample(opened: Open, sample: str, view: str) -> None:
    app = opened(sample, view=view)
    assert not app.error
    verdict = verdict_of(sample)
    assert escape(page.label(verdict.label, verdict.stage)) in html(app)


def test_without_arguments_the_samples_open(opened: Open) -> None:
    if not samples():
        pytest.skip("no samples are bundled yet")
    options = opened().selectbox[0].options
    assert {Path(path).name for path in samples()} <= set(options)


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_shows_a_trap(opened: Open, trap: Path, view: str) -> None:
    app = opened(trap, view=view)
    assert not app.error
    verdict = pipeline.check(str(trap), config.Settings()).verdict
    assert escape(page.label(verdict.label, verdict.stage)) in html(app)


def test_the_banner_says_what_the_report_says(opened: Open, trap: Path) -> None:
    verdict = pipeline.check(str(trap), config.Settings()).verdict
    assert verdict.severity == "critical"
    shown = html(opened(trap))
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

    monkeypatch.setattr(live, "examine", broken)
    app = opened(trap)
    assert "ZeroDivisionError" in app.error[0].value


def test_rollouts_are_text_and_what_repeats_is_marked(opened: Open, trap: Path) -> None:
    app = opened(trap, view="rollouts", step=150)
    [left, right, *_] = component(app, "rollout")
    said = left["blocks"][-1]
    assert "".join(text for text, _ in said["pieces"]).count("<script>window.pwned = 1</script>") == 1
    assert "I should move right now because" in next(text for text, kind in said["pieces"] if kind == "repeat")
    assert right["blocks"][0]["pieces"] == left["blocks"][0]["pieces"], "the same prompt is read beside it"
    assert "pwned" not in html(app)
    assert not any("pwned" in item.value for item in app.markdown)


def test_ties_are_shown_as_pairs_that_a_finer_reward_ranks(opened: Open, tmp_path: Path) -> None:
    gold = json.dumps([{"name": "add", "arguments": {"a": 1, "b": 2}}])
    said = [("add", {"a": 1, "b": 2}, 1.0), ("add", {"a": 1, "b": 3}, 0.0), ("<b>drop</b>", {"c": 1}, 0.0)]
    with (tmp_path / "rollouts.jsonl").open("w") as file:
        for step in range(1, 9):
            for name, arguments, score in said:
                output = f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"
                row = {"step": step, "input": "one", "output": output, "score": score, "gts": gold, "format_reward": score}
                file.write(json.dumps(row) + "\n")
    app = opened(tmp_path / "rollouts.jsonl", view="tools")
    assert not app.error
    pairs = app.dataframe[1].value
    assert pairs["differ in"].tolist() == ["tool name"]
    assert pairs["fine-grained, better"].tolist() == [0.8333]
    assert pairs["fine-grained, worse"].tolist() == [0.0]
    assert app.dataframe[0].value["rollouts"].sum() == 3
    assert any("would rank 1 of 1" in item.value for item in app.caption)
    assert "<b>drop" not in html(app)


def test_held_out_rollouts_show_what_more_tries_and_turns_bring(opened: Open, tmp_path: Path) -> None:
    rows = [
        {
            "step": step,
            "split": split,
            "input": "one",
            "output": f"<answer>{k}</answer>",
            "score": float(k == 0),
            "acc": float(k == 0),
        }
        for step in range(1, 7)
        for split in ("train", "eval")
        for k in range(4)
    ]
    (tmp_path / "rollouts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    app = opened(tmp_path / "rollouts.jsonl", view="tools")
    assert not app.error
    table = app.dataframe[-1].value
    assert table["T = 1"].to_dict() == {"pass@1": 0.25, "pass@2": 0.5, "pass@4": 1.0}


def test_rollouts_are_sorted_and_filtered(opened: Open, trap: Path) -> None:
    app = opened(trap, view="rollouts", step=50)
    by_repetition = app.dataframe[0].value["repetition"].tolist()
    assert by_repetition == sorted(by_repetition, reverse=True)
    app.selectbox(key="rollout-sort").select("reward").run()
    rewards = app.dataframe[0].value["reward"].tolist()
    assert rewards == sorted(rewards, reverse=True)
    app.segmented_control(key="rollout-outcome").select("failed").run()
    assert set(app.dataframe[0].value["reward"]) == {0.0}


def test_the_step_of_a_link_is_kept(opened: Open, trap: Path) -> None:
    app = opened(trap, step=77)
    assert app.query_params["step"] == "77"
    assert app.query_params["run"] == "trap"
    assert any("**step 77**" in item.value for item in app.markdown)


def test_a_link_opens_no_other_file(opened: Open, trap: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret.jsonl").write_text('{"step": 1, "reward": 1.0}\n')
    monkeypatch.setattr(sys, "argv", ["main.py", str(trap)])
    app = AppTest.from_file(str(ROOT / "app/main.py"), default_timeout=60)
    app.query_params["run"] = str(tmp_path / "secret.jsonl")
    app.run()
    assert app.selectbox[0].value == "trap"


def test_a_knob_changes_what_the_detector_says(opened: Open, trap: Path) -> None:
    app = opened(trap, view="catalogue")
    app.radio(key="detector").set_value("entropy-collapse").run()
    slider = app.slider(key="knob-entropy-collapse-watch_ratio")
    before = [item.value for item in app.markdown if "began" in item.value]
    assert before
    slider.set_value(slider.min).run()
    assert not app.exception
    assert any("watch_ratio" in item.value for item in app.code)


def test_two_runs_part_where_one_falls(opened: Open, tmp_path: Path, write_trap: Callable[..., Path]) -> None:
    calm = write_trap(tmp_path / "calm", fall=10_000)
    fell = write_trap(tmp_path / "fell", fall=120)
    app = opened(calm, fell, view="compare")
    table = next(frame.value for frame in app.dataframe if "noise widths apart" in frame.value)
    assert 95 <= table["step"].min() <= 125
    assert "parts at step" in html(app)


def test_all_runs_are_listed_worst_first(opened: Open, tmp_path: Path, write_trap: Callable[..., Path]) -> None:
    write_trap(tmp_path / "all" / "calm", fall=10_000)
    write_trap(tmp_path / "all" / "fell")
    (tmp_path / "all" / "empty.jsonl").write_text("")
    (tmp_path / "all" / "broken.jsonl").write_bytes(bytes(range(256)))
    app = opened(tmp_path / "all", view="runs")
    assert app.dataframe[0].value["run"].tolist() == ["broken", "fell", "calm"]


def test_viewers_share_one_reader(trap: Path) -> None:
    assert runs.watched(str(trap)) is runs.watched(str(trap))


def test_a_look_is_shared_until_the_log_grows(tmp_path: Path, metrics_line: Callable[[int, int], str]) -> None:
    log = tmp_path / "run.jsonl"
    log.write_text("".join(metrics_line(step, 10_000) for step in range(1, 101)))
    watcher = runs.Watched(str(log), config.Settings())
    first = watcher.look()
    assert watcher.look(max_age_s=1e6) is first
    watcher._cost_s = 0.0  # no rest between looks here
    assert watcher.look(0.0).look is first.look, "an unchanged log is not judged again"
    with log.open("a") as more:
        more.write(metrics_line(101, 10_000) + '{"step": 102, "data": {"actor/ent')
    watcher._cost_s = 0.0
    second = watcher.look(0.0).look
    assert second is not None
    assert second.report.run.last_step == 101


def test_a_log_that_is_not_there_yet_is_waited_for(opened: Open, tmp_path: Path, metrics_line: Callable[[int, int], str]) -> None:
    app = opened(tmp_path / "later.jsonl")
    assert page.plain("later.jsonl") in app.error[0].value
    (tmp_path / "later.jsonl").write_text("".join(metrics_line(step, 10_000) for step in range(1, 51)))
    runs.watched(str(tmp_path / "later.jsonl"))._looked = 0.0
    app.run()
    assert not app.error
    assert "healthy" in html(app)


def test_another_run_is_chosen_in_the_header(opened: Open, tmp_path: Path, write_trap: Callable[..., Path]) -> None:
    app = opened(write_trap(tmp_path / "calm", fall=10_000), write_trap(tmp_path / "fell"), step=50)
    assert "<b>calm</b>" in html(app)
    app.selectbox[0].select("fell").run()
    assert not app.exception
    assert "<b>fell</b>" in html(app)
    assert app.query_params["run"] == "fell"
    assert "step" not in app.query_params
