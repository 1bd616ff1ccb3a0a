"""The outcome falls well below its best.

What it looks at
----------------
The held-out score, and the training success rate or else the mean reward, each against its own best so far.

Why it matters
--------------
It is what everything else is about, and the baseline that every internal signal must beat. It says that something has gone wrong,
never what.

How it decides
--------------
``kept = (score - floor) / (best - floor)``, where the floor is known: 0, or the lowest single reward. A signed reward without
one is judged by the fall on the scale of all it has shown. Training signals are 10-step means, their best is a 20-step mean, and
no fall counts below 3 standard deviations of their own step-to-step noise; a held-out score is taken as it is. A held-out score
that is near its best and newer than the fall of the training outcome acquits it.

* watch: ``kept < 0.5``; or a fall of a fifth of the range.
* warning: ``kept < 0.5`` on two points that span 5 steps; or a fall of two fifths; or, for 30 steps, four fifths of what it had
  clearly gained are gone.
* critical: ``kept < 0.3`` on two points that span 11 steps; by policy it needs a second family.

It clears above 70 % of the best.

Example
-------
>>> import numpy as np, pandas as pd
>>> from echotrap.detector import Level, episodes
>>> from echotrap.record import Run
>>> score = np.array([0.1, 0.2, 0.3, 0.4, 0.42, 0.15, 0.05, 0.04, 0.03])
>>> frame = pd.DataFrame({"eval_score": score}, index=pd.Index(range(10, 100, 10), name="step"))
>>> [episode] = episodes(DETECTOR(Run("example", "-", "frame", frame)))
>>> episode.onset_step, [step for _, step in sorted(episode.alarm_steps.items())]
(60, [60, 70, 80])

False positives
---------------
A best that was measured before training; small evaluation sets; a harder curriculum (declare it); a changed reward scale.

What to do
----------
What the other findings say. Meanwhile keep the best checkpoint, and roll back to it.

References
----------
RAGEN, arXiv 2504.20073, recovered success curves: it alarms at 120, 40, 90, 20, 80 on the five collapsed runs, never on the
healthy one.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from echotrap import stats
from echotrap.detector import Card, Detector, Level, NotEvaluated, Remedy, Track, knob
from echotrap.record import Run


@dataclass(frozen=True)
class Params:
    """Working point; each knob says where it comes from."""

    kept_ratio: float = knob(0.5, least=0.1, most=0.9, low=0.4, high=0.6, source="failure catalogue F10")
    gone_ratio: float = knob(
        0.3, least=0.01, most=0.6, low=0.2, source="failure catalogue 3.4 has 0.25; a dead search backend leaves 0.23"
    )
    clear_ratio: float = knob(0.7, least=0.3, most=1.0, source="failure catalogue F10")
    range_fall: float = knob(0.2, least=0.05, most=0.9, low=0.3, source="failure catalogue F10")
    noise_sigma: float = knob(3.0, least=1.0, most=10.0, low=4.0, source="the best of many noisy medians lies 1-2 sigma too high")
    gain_left: float = knob(0.2, least=0.0, most=0.9, low=0.0, source="reward .30 to .50 and back to .28 keeps more than half")
    lost_steps: int = knob(
        30, least=1, most=500, low=60, high=15, source="reward .30 to .50 and back to .28 keeps more than half"
    )
    hold_steps: int = knob(5, least=1, most=100, low=10, high=3, source="failure catalogue 3.2")


OUTCOMES = ("eval_score", "success_rate", "reward_mean")


def detect(run: Run, params: Params) -> Track | NotEvaluated:
    """Judge how much of its best the outcome has kept: held out, and in training."""
    training = "success_rate" if run.has("success_rate") else "reward_mean"
    names = [name for name in ("eval_score", training) if len(run.series(name).steps) >= 3]
    if not names:
        return NotEvaluated("fewer than 3 outcomes")
    views = [_judge(run, name, params) for name in names]
    steps = stats.union(*(view.steps for view in views))
    rows = [stats.as_of(np.arange(len(view.steps)), view.steps, steps, -1) for view in views]

    def spread(parts: list[NDArray[Any]], missing: float) -> NDArray[Any]:
        return np.array([np.where(row >= 0, part[np.maximum(row, 0)], missing) for row, part in zip(rows, parts, strict=True)])

    levels = spread([view.level for view in views], 0)
    if len(views) == 2:
        levels[1, _acquitted(views[0], views[1], rows[0], rows[1])] = 0
    worst = np.argmax(levels, axis=0), np.arange(len(steps))
    level = levels[worst].astype(np.int8)
    never = np.iinfo(np.int64).max
    onset = spread([np.where(view.level > 0, view.onset, never) for view in views], never).min(axis=0)
    evidence = {name: spread([view.evidence[name] for view in views], np.nan)[worst] for name in views[0].evidence}
    evidence["signal"] = np.array(names)[worst[0]]
    limit = spread([view.limit for view in views], np.nan)[worst]
    return Track(steps, level, np.where(level > 0, onset, -1).astype(np.int64), evidence["value"], limit, evidence)


def _acquitted(held_out: Track, training: Track, held_out_row: stats.Steps, training_row: stats.Steps) -> stats.Flags:
    """Where a held-out score that is near its best is newer than the fall of the training outcome."""
    fresh = held_out.steps[np.maximum(held_out_row, 0)] >= training.onset[np.maximum(training_row, 0)]
    good = (held_out.level == 0) & (np.asarray(held_out.evidence["kept"]) > 0)
    return np.asarray((held_out_row >= 0) & fresh & good[np.maximum(held_out_row, 0)])


def _judge(run: Run, name: str, params: Params) -> Track:
    """One outcome against its own best since the last declared change."""
    steps, values = run.series(name)
    floor = _floor(run, name, steps, values)
    cuts = [0, *sorted({int(at) for at in np.searchsorted(steps, run.arm_steps)} - {0, len(steps)}), len(steps)]
    parts = [_judge_part(name, steps[lo:hi], values[lo:hi], floor[lo:hi], params) for lo, hi in itertools.pairwise(cuts)]
    return parts[0] if len(parts) == 1 else _joined(parts)


def _joined(parts: list[Track]) -> Track:
    """Tracks of consecutive stretches as one."""
    evidence = {name: np.concatenate([np.asarray(part.evidence[name]) for part in parts]) for name in parts[0].evidence}
    steps, level, onset, score, limit = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("steps", "level", "onset", "score", "limit")
    )
    return Track(steps, level, onset, score, limit, evidence)


def _judge_part(name: str, steps: stats.Steps, values: stats.Floats, floor: stats.Floats, params: Params) -> Track:
    held_out = name == "eval_score"
    score = values if held_out else stats.trailing(values, steps, 10, "mean")
    best = stats.running_max(values) if held_out else stats.best_so_far(values, steps)
    wide = stats.running_max(values) - stats.running_min(values)
    fall = best - score
    scaled = np.isfinite(floor)
    loud = np.where(scaled & held_out, 0.0, stats.noise_of_means(values, steps, params.noise_sigma))
    kept = stats.ratio(score - floor, best - floor)
    below = np.where(scaled, kept < params.kept_ratio, fall >= params.range_fall * wide) & (fall > loud) & (wide > 0)
    start = stats.baseline(stats.trailing(values, steps, 10, "mean"), steps, off_factor=None)
    gain = best - start
    lost = (gain > np.maximum(2 * loud, 0.3 * wide)) & (score - start <= params.gain_left * gain) & (fall > loud) & (not held_out)
    deep = np.where(scaled, below, below & (fall >= 2 * params.range_fall * wide))
    gone = below & (kept < params.gone_ratio)
    clear = np.where(scaled, kept >= params.clear_ratio, fall < params.range_fall / 2 * wide) & ~below
    level, onset = stats.ladder(
        stats.either(stats.held(below, steps, 1, release=clear), stats.held(lost, steps, params.hold_steps)),
        stats.either(stats.held(deep, steps, params.hold_steps, release=clear), stats.held(lost, steps, params.lost_steps)),
        stats.held(gone, steps, 2 * params.hold_steps + 1, release=clear),
    )
    evidence = {"value": score, "best": best, "kept": kept, "fall": fall}
    return Track(steps, level, onset, score, params.kept_ratio * best, evidence)


def _floor(run: Run, name: str, steps: stats.Steps, values: stats.Floats) -> stats.Floats:
    """The least an outcome can be, where that is known: 0 for what was never (much) below it, else the lowest single reward."""
    lowest, highest = stats.running_min(values), stats.running_max(values)
    floor = np.where(lowest >= -0.25 * highest, 0.0, np.nan)
    if name == "reward_mean" and run.config.reward_min is not None:
        return np.full(len(steps), run.config.reward_min)
    if name == "reward_mean" and run.has("reward_min"):
        return np.where(np.isfinite(floor), floor, np.fmin(stats.running_min(run.at("reward_min", steps)), lowest))
    return floor


DETECTOR = Detector(
    card=Card(
        id="performance-drop",
        code="F10",
        title="the outcome falls well below its best",
        family="reward",
        highest=Level.CRITICAL,
        needs=(OUTCOMES,),
        gates=("declared-event",),
        message="{signal} is {value:.3g}, its best was {best:.3g}",
        remedies=(
            Remedy(
                "Go back to the best checkpoint; the cause is in the other findings",
                {
                    "verl": "trainer.resume_mode=resume_path trainer.resume_from_path=...",
                    "TRL": "resume_from_checkpoint=... load_best_model_at_end=True",
                },
            ),
            Remedy(
                "Evaluate more often, so that the best is known",
                {"verl": "trainer.test_freq=10", "TRL": "eval_strategy='steps' eval_steps=10"},
                cost="time",
            ),
        ),
        references=("arXiv 2504.20073", "RAGEN ragen/trainer/agent_trainer.py"),
    ),
    params=Params(),
    detect=detect,
)
