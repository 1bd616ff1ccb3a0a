"""The data or the prompt changed in one step.

What it looks at
----------------
The mean prompt length.

Why it matters
--------------
A curriculum stage, a withdrawn example or another tool list moves every other signal at once. What follows is a new regime, not a
failure of the old one.

How it decides
--------------
* watch: the prompt length jumps by more than a fifth and 8 robust standard deviations away from its last 50 steps and stays there
  for 3 points; the report then carries the change for 20 steps.

Example
-------
>>> import numpy as np, pandas as pd
>>> from echotrap.detector import episodes
>>> from echotrap.record import Run
>>> length = np.concatenate((np.full(40, 300.0), np.full(40, 900.0)))
>>> frame = pd.DataFrame({"prompt_length": length}, index=pd.Index(range(1, 81), name="step"))
>>> [episode] = episodes(DETECTOR(Run("example", "-", "frame", frame)))
>>> episode.onset_step, dict(episode.alarm_steps)
(41, {<Level.WATCH: 1>: 43})

False positives
---------------
Data sorted by length; dialogues whose prompt holds all earlier turns.

What to do
----------
Declare it, so that baselines begin anew: ``--event STEP:LABEL``.

References
----------
Failure catalogue F1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from echotrap import stats
from echotrap.detector import Card, Detector, Level, NotEvaluated, Remedy, Track, knob
from echotrap.record import Run


@dataclass(frozen=True)
class Params:
    """Working point; each knob says where it comes from."""

    jump_ratio: float = knob(1.2, least=1.05, most=10.0, low=1.5, source="failure catalogue F1")
    jump_sigma: float = knob(8.0, least=3.0, most=50.0, source="prompt lengths of small batches")
    points: int = knob(3, least=1, most=20, source="failure catalogue F1")
    window_steps: int = knob(50, least=10, most=500, source="failure catalogue F1")


def detect(run: Run, params: Params) -> Track | NotEvaluated:
    """Judge whether the prompts changed."""
    steps, values = run.series("prompt_length")
    if len(steps) < 10:
        return NotEvaluated("fewer than 10 prompt lengths")
    log = np.log(np.maximum(values, 1.0))
    usual = stats.local(log, steps, params.window_steps)
    apart = np.abs(log - usual.centre)
    settled = np.arange(len(steps)) >= 6
    jump = settled & (apart > np.log(params.jump_ratio)) & (apart > params.jump_sigma * np.maximum(usual.spread, 0.005))
    moved = stats.held_points(jump, steps, params.points)
    level, onset = stats.ladder(stats.lingering(moved.on, steps, 20))
    begun = np.maximum.accumulate(np.where(moved.on, moved.since, -1))
    onset = np.where(level > 0, np.minimum(begun, onset), -1)
    evidence = {"value": values, "before": np.exp(usual.centre)}
    return Track(steps, level, onset, values, np.exp(usual.centre) * params.jump_ratio, evidence)


DETECTOR = Detector(
    card=Card(
        id="regime-change",
        code="F1",
        title="the prompts changed",
        family="event",
        tier="run-level",
        highest=Level.WATCH,
        needs=(("prompt_length",),),
        gates=("min-data",),
        message="prompt length went from {before:.0f} to {value:.0f} tokens",
        remedies=(Remedy("Declare curriculum changes, so that baselines begin anew", {"echotrap": "--event STEP:LABEL"}),),
        references=("failure catalogue F1",),
        units={"value": "tokens", "before": "tokens"},
    ),
    params=Params(),
    detect=detect,
)
