"""The lab beside the sample runs: its rewards and measures, and that what it publishes is what was recorded."""

from __future__ import annotations

import csv
import importlib
import math
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from echotrap import open_run

ROOT = Path(__file__).parents[1]
SAMPLES = ROOT / "sample_runs"
NAMES = sorted(path.parent.name for path in SAMPLES.glob("*/truth.toml"))
QUESTIONS = sorted(path.stem for path in (SAMPLES / "lab" / "study").glob("*.md"))


@pytest.fixture(scope="module")
def lab() -> Any:
    """The lab's modules that need no PyTorch, by name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SAMPLES / "lab"))
        names = ("tasks", "measures", "recipes", "index", "study")
        modules: dict[str, ModuleType] = {name: importlib.import_module(name) for name in names}
        yield modules
    import sys

    for name in (*names, "workspace", "pictures"):
        sys.modules.pop(name, None)


def truth(name: str) -> dict[str, Any]:
    return tomllib.loads((SAMPLES / name / "truth.toml").read_text(encoding="utf-8"))


# ----------------------------------------------------------------------------------------------------- rewards and measures

GOLD = {"title": "lunch", "date": "Friday", "duration": 30}


@pytest.mark.parametrize(
    ("call", "parts"),
    [
        ('{"name": "create_event", "arguments": {"title": "lunch", "date": "Friday", "duration": 30}}', (1, 1, 1)),
        ('{"name": "add_event", "arguments": {"title": "lunch", "date": "Friday", "duration": 30}}', (0, 1, 1)),
        ('{"name": "create_event", "arguments": {"title": "lunch", "day": "Friday", "duration": 60}}', (1, 1 / 2, 1 / 3)),
        ('{"name": "create_event", "arguments": {"title": "lunch"', (0, 0, 0)),
    ],
)
def test_a_tool_call_is_scored_in_parts(lab: Any, call: str, parts: tuple[float, float, float]) -> None:
    score = lab["tasks"].tool_score(f"<think> so </think><tool_call>{call}</tool_call>", GOLD)
    assert (score.name, score.keys, score.values) == pytest.approx(parts)
    assert score.fine == pytest.approx(sum(parts) / 3)
    assert score.multiplicative == pytest.approx(math.prod(parts))
    assert score.binary == float(parts == (1, 1, 1))


@pytest.mark.parametrize(
    ("thought", "reward"),
    [
        ("The names say a lot here.", 1.0),
        ("Oak with rings hardly fails.", 4 / 6),
        ("Oak with rings against dice of Gambler. Oak it is, Oak and Oak.", 0.0),
        ("Oak.", 0.0),
    ],
)
def test_own_words_are_paid_and_repetitions_of_the_prompt_are_not(lab: Any, thought: str, reward: float) -> None:
    prompt = "Arms: Oak (rings) and Gambler (dice). Pick an arm."
    text = f"<think> {thought} </think><answer>Oak</answer>"
    assert lab["tasks"].own_words_reward(text, prompt) == pytest.approx(reward)


def rollouts(lab: Any, *texts: tuple[int, str, float]) -> list[Any]:
    return [lab["measures"].Rollout(group, f"prompt {group}", text, reward) for group, text, reward in texts]


def test_measures_of_a_step(lab: Any) -> None:
    measures = lab["measures"]
    step = rollouts(lab, (0, "one two three four five", 1.0), (0, "one two three four six", 1.0), (1, "one two three four", 0.0))
    assert measures.shared_gram_share(step) == pytest.approx((1 / 2 + 1 / 2 + 1) / 3)
    assert measures.tie_share(step) == 1.0
    assert measures.constant_group_share(step) == 1.0
    assert measures.distinct_word_count(step) == 6


def test_thoughts_are_found_by_prompt_or_by_chance(lab: Any) -> None:
    fitting = [(group, f"<think>{group * 'x'}a {group * 'x'}b {one}</think>", 0.0) for group in range(1, 5) for one in range(8)]
    template = [(group, "<think>the same for all</think>", 0.0) for group in range(1, 5) for one in range(8)]
    assert lab["measures"].own_prompt_share(rollouts(lab, *fitting)) == 1.0
    assert lab["measures"].own_prompt_share(rollouts(lab, *template)) == pytest.approx(7 / 31)


# ------------------------------------------------------------------------------------------------- what is published is true


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_was_made_by_its_recipe(lab: Any, name: str) -> None:
    recipe, found = lab["recipes"].load()[name], truth(name)
    assert {key: found["settings"][key] for key in recipe["settings"]} == recipe["settings"]
    assert {key: found[key] for key in recipe["truth"]} == recipe["truth"]
    assert {"torch", "python"} <= found["versions"].keys()


@pytest.mark.parametrize("name", NAMES)
def test_the_figures_beside_a_sample_are_those_of_its_log(name: str) -> None:
    """No number was edited: the log still has the means that were measured on the raw run."""
    found = truth(name)
    run = open_run(SAMPLES / name / found["main"])
    rewarded = run.series("reward_mean").steps  # with several updates per batch TRL writes a reward in some rows only
    for window in found["measured"].values():
        first, last = window["steps"]
        for key, signal in (("reward", "reward_mean"), ("entropy", "entropy"), ("grad_norm", "grad_norm")):
            steps, values = run.series(signal)
            inside = values[(steps >= first) & (steps <= last) & np.isin(steps, rewarded)]
            if key not in window or name == "bandit-killed":  # the last steps of that one never reached the disk
                continue
            assert np.mean(inside) == pytest.approx(window[key], rel=1e-3), (key, window["steps"])


def test_every_sample_was_made_anew_with_the_same_verdict() -> None:
    with (SAMPLES / "lab" / "remade.csv").open(newline="", encoding="utf-8") as file:
        rows = {row["run"]: row for row in csv.DictReader(file)}
    assert sorted(rows) == NAMES
    assert [name for name, row in rows.items() if row["recorded"] != row["remade"]] == []


def test_the_page_of_the_samples_is_current(lab: Any) -> None:
    assert (SAMPLES / "README.md").read_text(encoding="utf-8") == lab["index"].page()


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_study_has_three_seeds_an_arm_and_its_table_in_the_text(lab: Any, question: str) -> None:
    folder = SAMPLES / "lab" / "study"
    with (folder / f"{question}-summary.csv").open(newline="", encoding="utf-8") as file:
        seeds: dict[str, set[str]] = {}
        for row in csv.DictReader(file):
            seeds.setdefault(row["arm"], set()).add(row["seed"])
    assert seeds == {arm: {"1", "2", "3"} for arm in lab["study"].QUESTIONS[question]}
    text = (ROOT / "docs" / "lab.md").read_text(encoding="utf-8")
    assert (folder / f"{question}.md").read_text(encoding="utf-8") in text
    assert f"lab/study/{question}.svg" in text


def test_every_question_was_answered(lab: Any) -> None:
    assert sorted(lab["study"].QUESTIONS) == QUESTIONS
