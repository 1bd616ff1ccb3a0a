"""Conditions of the run under which an alarm means something else, or nothing.

Order: finite (a point that is not finite never reaches a series) → enough data → declared event → convergence → rule. A failing
environment is a verdict of its own (:mod:`echotrap.verdicts`). A gate never raises a level. Everything is causal: the gate at a
step uses that step and earlier ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from echotrap import stats
from echotrap.detector import Card, Level, Track
from echotrap.record import Run
from echotrap.windows import latest

__all__ = ["Gates", "apply", "compute"]

Flags = NDArray[np.bool_]

ALARM_POINTS = 5  # alarms may start after five points (failure_modes.md 3.2)
EVENT_QUIET_STEPS = 10  # failure_modes.md 3.3: 10-20 steps after a declared event
RECENT_STEPS = 5
NEW_BEST_STEPS = 20  # failure_modes.md 3.3, gate not-improving
SOLVED_LEVEL = 0.95  # failure_modes.md, solved
SOLVED_POINTS, SOLVED_STEPS = 3, 10
START_LEVEL = 0.9
CONVERGED_POSITION = 0.5  # below the middle of a known scale a plateau is no convergence


@dataclass(frozen=True, eq=False)
class Gates:
    """The gates of a run, one flag per logged step.

    Attributes
    ----------
    enough : (n,) bool
        At least five points were logged.
    warmup : (n,) bool
        The learning rate is still in its first rise.
    event : (n,) bool
        A restart or a declared change is fresh.
    resumed : (n,) bool
        A resume is fresh: optimiser moments may be lost, so gradient norms jump.
    solved : (n,) bool
        The reward is at its ceiling and stays there.
    improving : (n,) bool
        A held-out score or the reward set a new best lately.
    risen : (n,) bool
        The training outcome stands at a best that is well above its start, and not in the lower half of its scale where that is
        known: what falls meanwhile may be convergence.
    """

    enough: Flags
    warmup: Flags
    event: Flags
    resumed: Flags
    solved: Flags
    improving: Flags
    risen: Flags


def compute(run: Run) -> Gates:
    """Work out the gates of a run."""
    steps = run.steps
    return Gates(
        enough=np.arange(len(steps)) >= ALARM_POINTS - 1,
        warmup=_warmup(run),
        event=_fresh(steps, run.arm_steps),
        resumed=_fresh(steps, [item.step for item in run.events if item.kind == "resume"]),
        solved=_solved(run),
        improving=_improving(run),
        risen=_risen(run),
    )


def apply(track: Track, card: Card, gates: Gates, run: Run) -> Track:
    """Mute or cap a track where its gates say so.

    *enough data*, *declared event* mute; *warm-up*, *solved*, *improving* and *risen* cap at watch; smoothed input caps at
    warning.
    """
    at = latest(run.steps, track.steps)
    level = np.minimum(track.level, card.highest).astype(np.int8)
    if "min-data" in card.gates:
        level[~gates.enough[at]] = 0
    if "declared-event" in card.gates:
        level[gates.event[at]] = 0
        if card.family == "gradient":
            level[gates.resumed[at]] = 0
    for gate, flag in (
        ("warmup", gates.warmup),
        ("solved", gates.solved),
        ("not-improving", gates.improving),
        ("not-risen", gates.risen),
    ):
        if gate in card.gates:
            capped = flag[at] & (level > Level.WATCH)
            level[capped] = Level.WATCH
    if "raw-input" in card.gates and run.smoothed & {name for need in card.needs for name in need}:
        level = np.minimum(level, Level.WARNING).astype(np.int8)
    onset = np.where(level > 0, track.onset, -1)
    return Track(track.steps, level, onset, track.score, track.limit, track.evidence)


def _fresh(steps: NDArray[np.int64], events: Iterable[int]) -> Flags:
    flag = np.zeros(len(steps), bool)
    for at in events:
        flag |= (steps >= at) & (steps < at + EVENT_QUIET_STEPS)
    return flag


def _warmup(run: Run) -> Flags:
    steps, rate = run.series("learning_rate")
    flag = np.zeros(len(run.steps), bool)
    if len(rate) < 3 or rate[1] <= rate[0]:
        return flag
    falls = np.flatnonzero(np.diff(rate) <= 0)
    last = int(falls[0]) if len(falls) else len(rate) - 1
    flag[:] = run.steps < steps[last] if len(falls) else run.steps <= steps[last]
    return flag


def _hold(run: Run, steps: NDArray[np.int64], flag: Flags) -> Flags:
    """Spread a flag on some steps over all logged steps; the last word holds."""
    where = latest(steps, run.steps)
    held = np.zeros(len(run.steps), bool)
    held[where >= 0] = flag[where[where >= 0]]
    return held


def _improving(run: Run) -> Flags:
    """Whether the held-out score, or the 20-step median of the training outcome, set a new best in the last 20 steps.

    A new best counts when it beats the last one by 5 % of the range seen so far and by half of the step-to-step noise.
    """
    found = np.zeros(len(run.steps), bool)
    outcomes = [name for name in ("eval_score", "success_rate", "reward_mean") if run.has(name)]
    for name in outcomes[:2] if "eval_score" in outcomes else outcomes[:1]:
        steps, values = run.series(name)
        if len(steps) < 3:
            continue
        smooth = values if name == "eval_score" else stats.rolling_median_steps(values, steps, NEW_BEST_STEPS)
        noise = np.concatenate(([0.0], stats.rolling_median(np.abs(np.diff(values)), 20)))
        current = stats.trailing(values, steps, RECENT_STEPS, "mean")
        window = max(NEW_BEST_STEPS, 2 * int(np.median(np.diff(steps[:6]))))
        found |= _hold(run, steps, _fresh_best(steps, smooth, noise, window) & ~_lost(smooth, current, noise))
    return found


def _risen(run: Run) -> Flags:
    steps, values = run.series("success_rate" if run.has("success_rate") else "reward_mean")
    if len(steps) < 3:
        return np.zeros(len(run.steps), bool)
    low = run.outcome_position(steps) < CONVERGED_POSITION  # where the scale is known; NaN says nothing
    return _hold(run, steps, stats.risen(values, steps) & ~low)


def _lost(smooth: NDArray[np.float64], current: NDArray[np.float64], noise: NDArray[np.float64]) -> Flags:
    """Whether the last steps have given back a third of what the outcome has shown: a best that is gone is no improvement."""
    low, high = stats.running_min(current), stats.running_max(smooth)
    return np.asarray(current < high - np.maximum((high - low) / 3, 2 * noise))


def _fresh_best(steps: NDArray[np.int64], values: NDArray[np.float64], noise: NDArray[np.float64], window_steps: int) -> Flags:
    margin = np.maximum(0.05 * (stats.running_max(values) - stats.running_min(values)), 0.5 * noise)
    at, bests = 0, [-1]
    while (ahead := values[at + 1 :] > values[at] + margin[at + 1 :]).any():
        at += 1 + int(np.argmax(ahead))
        bests.append(at)
    last = np.array(bests)[np.searchsorted(bests, np.arange(len(steps)), side="right") - 1]
    return np.asarray((last >= 0) & (steps - steps[last] <= window_steps))


def _solved(run: Run) -> Flags:
    """Whether the outcome is at its ceiling: success (or a 0..1 reward) above 0.95, or nearly every group all-right.

    A reward whose ceiling nobody named is not called solved: a plateau may be a trap.
    """
    flag = np.zeros(len(run.steps), bool)
    for name, limit in (("success_rate", SOLVED_LEVEL), ("zero_std_all_pass_frac", 0.9)):
        steps, values = run.series(name)
        if len(steps):
            smooth = stats.trailing(values, steps, SOLVED_STEPS, "mean")
            flag |= _hold(run, steps, stats.held(smooth >= limit, np.arange(len(steps)), SOLVED_POINTS).on)
    steps, reward = run.series("reward_mean")
    if len(steps):
        smooth = stats.trailing(reward, steps, SOLVED_STEPS, "mean")
        flag |= _hold(run, steps, stats.held(_at_ceiling(run, steps, smooth), np.arange(len(steps)), SOLVED_POINTS).on)
    return flag


def _at_ceiling(run: Run, steps: NDArray[np.int64], reward: NDArray[np.float64]) -> Flags:
    low, high = run.reward_range(steps, reward)
    width = high - low
    with np.errstate(invalid="ignore"):
        high_enough = np.asarray((width > 0) & (reward >= low + SOLVED_LEVEL * width), bool)
        if run.config.reward_max is None and run.has("reward_max"):
            # the best reward seen may be a failure's: it must have been reached by learning
            high_enough &= stats.baseline(reward, steps, off_factor=None) < low + START_LEVEL * width
    return high_enough
