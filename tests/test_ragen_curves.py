"""RAGEN's published collapses, judged by the detectors alone (before gates and policy).

The curves are shared data: the test is skipped where they are not. One point per 10 steps, single seeds: five collapses and one
healthy run show how the rules behave, and prove little.
"""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from echotrap.detector import Episode, Level, Track, episodes
from echotrap.record import Run, RunConfig
from echotrap.registry import catalogue

SHARED = Path(os.environ.get("ECHOTRAP_SHARED", Path(__file__).parents[1] / ".." / "shared"))
CURVES = SHARED / "ragen_curves"
pytestmark = pytest.mark.skipif(not CURVES.is_dir(), reason="the shared RAGEN curves are not here")

COLLAPSED = ("FrozenLake-PPO", "Sokoban-PPO", "Bandit-PPO", "Bandit-GRPO", "Sokoban-GRPO")
HEALTHY = "FrozenLake-GRPO"
FIELDS = {
    "reward_mean": "reward_mean",
    "in_group_reward_std": "group_reward_std",
    "grad_norm": "grad_norm",
    "entropy": "entropy",
    "val_success": "eval_score",
}


def curve(name: str, *, smoothed: bool = False) -> Run:
    table = pd.read_csv(CURVES / f"ragen_v1_{name}.csv").set_index("step")
    suffix = "_s5" if smoothed else ""
    frame = pd.DataFrame({canonical: table[column + suffix] for column, canonical in FIELDS.items()}, dtype=np.float64)
    turns = 1 if name.startswith("Bandit") else 5
    config = RunConfig(max_turns=turns, format_penalty=-0.1, group_size=16, prompts_per_step=8)
    return Run(name, str(CURVES), "csv", frame, config=config, smoothed=frozenset(frame.columns) if smoothed else frozenset())


def found(run: Run, detector: str, **params: object) -> tuple[Episode, ...]:
    from dataclasses import replace

    rule = catalogue()[detector]
    track = rule(run, replace(rule.params, **params) if params else None)
    assert isinstance(track, Track)
    return episodes(track)


def alarm(run: Run, detector: str, level: Level, **params: object) -> int | None:
    """First step at which the detector reaches the level."""
    return min((e.alarm_steps[level] for e in found(run, detector, **params) if level in e.alarm_steps), default=None)


# failure catalogue 9.6, and why a step differs from it where it does:
# Sokoban-PPO erupts from .63 to 1.26 nats, below where it began; a warning asks for more, because sound runs wander there.
# Sokoban-GRPO's 7.5 and 11 are less than its second norm (32), long after the outcome was gone: a watch.
TABLE = {
    #                   drop warning, std watch, eruption watch, warning, spike warning, critical, floor critical
    "Bandit-PPO": (120, 200, None, None, 170, 170, 200),
    "Bandit-GRPO": (40, 50, 70, 80, 150, None, None),
    "Sokoban-PPO": (90, 100, 130, None, 90, 90, 100),
    "Sokoban-GRPO": (20, 60, 80, 90, None, None, 50),
    "FrozenLake-PPO": (80, 90, None, None, 80, 80, 100),
    "FrozenLake-GRPO": (None, None, None, None, None, None, None),
}
RULES = (
    ("performance-drop", Level.WARNING),
    ("reward-variance-collapse", Level.WATCH),
    ("entropy-eruption", Level.WATCH),
    ("entropy-eruption", Level.WARNING),
    ("gradient-spike", Level.WARNING),
    ("gradient-spike", Level.CRITICAL),
    ("format-floor", Level.CRITICAL),
)


@pytest.mark.parametrize("name", TABLE)
def test_alarm_steps_of_the_failure_catalogue(name: str) -> None:
    run = curve(name)
    assert tuple(alarm(run, detector, level) for detector, level in RULES) == TABLE[name]


def test_t1_the_healthy_run_is_quiet() -> None:
    run = curve(HEALTHY)
    for name, detector in catalogue().items():
        track = detector(run)
        assert not isinstance(track, Track) or track.level.max() <= Level.WATCH, name


def test_t2_frozenlake_ppo_in_order() -> None:
    run = curve("FrozenLake-PPO")
    onsets = [found(run, name)[0].onset_step for name in ("performance-drop", "gradient-spike", "format-floor")]
    assert onsets == [70, 80, 100]
    assert found(run, "reward-variance-collapse")[0].onset_step == 80


def test_t3_dips_that_recover_are_no_alarm() -> None:
    run = curve("Sokoban-PPO")
    for name in ("reward-variance-collapse", "gradient-spike", "performance-drop", "format-floor"):
        assert all(episode.onset_step >= 80 for episode in found(run, name)), name


def test_t4_the_drop_clears_and_fires_again() -> None:
    episodes_ = found(curve("Bandit-PPO"), "performance-drop")
    assert [(e.onset_step, e.cleared_step) for e in episodes_] == [(110, 140), (170, None)]
    assert max(e.level for e in found(curve("Bandit-PPO"), "gradient-spike")) == Level.CRITICAL


def test_t5_the_spike_is_not_the_first_alarm() -> None:
    run = curve("Bandit-GRPO")
    first = [alarm(run, name, Level.WARNING) for name in ("performance-drop", "entropy-eruption", "gradient-spike")]
    assert first == [40, 80, 150]


@pytest.mark.parametrize("name", [*COLLAPSED, HEALTHY])
def test_t7_ragens_own_rule_comes_later_or_never(name: str) -> None:
    held = curve(name)
    steps = np.arange(10, 201)
    column = held.metrics["group_reward_std"].dropna()
    frame = pd.DataFrame({"group_reward_std": column.reindex(steps, method="ffill")}, index=pd.Index(steps, name="step"))
    run = Run(name, "-", "frame", frame)
    theirs = {preset: alarm(run, "reward-variance-collapse", Level.WARNING, preset=preset) for preset in ("ragen", "ragen-paper")}
    if name == HEALTHY:
        assert set(theirs.values()) == {None}
        return
    ours = alarm(held, "performance-drop", Level.WARNING)
    assert ours is not None
    for step in theirs.values():
        assert step is None or ours <= step
    if theirs["ragen"] is not None:
        assert theirs["ragen-paper"] == theirs["ragen"] - 5


def test_t7_the_preset_is_ragens_rule_to_the_letter() -> None:
    random = np.random.default_rng(7)
    values = np.concatenate((random.uniform(0.5, 1.5, 30), random.uniform(0, 0.11, 60)))
    normal = values[:10].mean()
    theirs = next(i + 1 for i in range(19, len(values)) if (values[i - 9 : i + 1] < 0.1 * normal).all())
    frame = pd.DataFrame({"group_reward_std": values}, index=pd.Index(range(1, len(values) + 1), name="step"))
    assert alarm(Run("rule", "-", "frame", frame), "reward-variance-collapse", Level.WARNING, preset="ragen") == theirs


def raster(figure: str, metric: str, series: str) -> pd.Series:
    table = pd.read_csv(CURVES / "ragen2_curves_raster.csv")
    chosen = table[table["figure"].str.contains(figure) & (table["metric"] == metric) & (table["series"] == series)]
    assert len(chosen)
    return chosen.set_index("step")["value"].groupby(level=0).last()


def test_t8_dead_groups_come_before_the_fall_of_success() -> None:
    def dead(series: str) -> Run:
        share = raster("10", "zero_var_count_of_8", series) / 8
        frame = pd.DataFrame({"zero_std_frac": share.to_numpy()}, index=pd.Index(share.index, name="step", dtype=np.int64))
        return Run(series, "-", "frame", frame)

    no_filter = dead("no_filter")
    watch, warning = (alarm(no_filter, "zero-variance-groups", level) for level in (Level.WATCH, Level.WARNING))
    assert watch is not None
    assert watch <= 35
    assert warning is not None
    assert warning < 75
    assert not found(dead("top_k_0.25"), "zero-variance-groups")


@pytest.mark.parametrize("name", [*COLLAPSED, HEALTHY])
def test_t14_smoothed_curves_may_be_late_and_never_false(name: str) -> None:
    raw, smooth = curve(name), curve(name, smoothed=True)
    for detector, level in RULES:
        late = alarm(smooth, detector, level)
        if name == HEALTHY:
            assert late is None, detector
        elif detector == "performance-drop":
            early = alarm(raw, detector, level)
            assert early is not None
            assert late is not None
            assert late >= early
    assert found(smooth, "smoothed-input")[0].level == Level.WATCH
