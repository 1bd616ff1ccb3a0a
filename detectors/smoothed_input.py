"""A series is an average of several logged points.

What it looks at
----------------
What the source declares, and the gradient norm: averaging draws a single spike as a flat plateau.

Why it matters
--------------
Averages delay every alarm, hide single events and break every sequential test. RAGEN's published curves are trailing means of 5
points, and step numbers read off them are late by 10 to 80 steps.

How it decides
--------------
* watch: the source says so; or the gradient norm jumps at least threefold, stays within 1 % for at least 3 more points and falls
  back at least threefold.

Example
-------
>>> import numpy as np, pandas as pd
>>> from echotrap.detector import episodes
>>> from echotrap.record import Run
>>> norm = np.array([1.1, 0.9, 1.0, 0.8, 190.1, 190.0, 190.2, 190.0, 190.1, 1.0, 0.9])
>>> frame = pd.DataFrame({"grad_norm": norm}, index=pd.Index(range(10, 120, 10), name="step"))
>>> [episode] = episodes(DETECTOR(Run("example", "-", "frame", frame)))
>>> episode.onset_step, dict(episode.alarm_steps)
(50, {<Level.WATCH: 1>: 100})

False positives
---------------
A norm that was logged after clipping can stand at the limit.

What to do
----------
Export the raw history.

References
----------
Failure catalogue F11; RAGEN, arXiv 2504.20073, figure 6.
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

    jump_factor: float = knob(3.0, least=1.5, most=100.0, source="RAGEN figure 6: 1,898 drawn five times")
    flat_ratio: float = knob(0.01, least=0.0001, most=0.1, source="RAGEN figure 6")
    flat_points: int = knob(4, least=3, most=50, source="RAGEN figure 6")


def detect(run: Run, params: Params) -> Track | NotEvaluated:
    """Judge whether the input is smoothed."""
    if run.smoothed:
        names = ", ".join(sorted(run.smoothed))
        steps = run.steps
        level, onset = stats.ladder(stats.held(np.ones(len(steps), bool), steps, 1))
        return Track(steps, level, onset, np.ones(len(steps)), np.ones(len(steps)), {"what": f"the source says so: {names}"})
    steps, values = run.series("grad_norm")
    if len(steps) < params.flat_points + 2:
        return NotEvaluated("the source does not say, and the gradient norm is too short to tell", missing=("grad_norm",))
    log = np.log(np.maximum(values, np.finfo(float).tiny))
    change = np.diff(log, prepend=log[0])
    flat = np.abs(change) <= np.log1p(params.flat_ratio)
    flat[0] = False
    index = np.arange(len(steps))
    first = np.maximum.accumulate(np.where(flat, 0, index))
    before = np.concatenate(([0], first[:-1]))
    drop = (change <= -np.log(params.jump_factor)) & (change[before] >= np.log(params.jump_factor))
    end = drop & (index - before >= params.flat_points) & (before > 0)
    since = np.maximum.accumulate(np.where(end, before, -1))
    seen = np.logical_or.accumulate(end)
    level = seen.astype(np.int8)
    onset = np.where(seen, steps[np.maximum(since, 0)], -1)
    evidence = {"what": "a spike of the gradient norm is drawn as a plateau"}
    return Track(steps, level, onset, np.abs(change), np.full(len(steps), np.log(params.jump_factor)), evidence)


DETECTOR = Detector(
    card=Card(
        id="smoothed-input",
        code="F11",
        title="the series are averages of several points",
        family="input",
        tier="run-level",
        highest=Level.WATCH,
        needs=(),
        uses=("grad_norm",),
        gates=(),
        message="smoothed input ({what})",
        remedies=(
            Remedy(
                "Export the raw history",
                {
                    "W&B": "api.run(...).scan_history()",
                    "TensorBoard": "read the event files",
                    "verl": "trainer.logger=['file']",
                    "TRL": "trainer_state.json",
                },
            ),
        ),
        references=("failure catalogue F11",),
    ),
    params=Params(),
    detect=detect,
)
