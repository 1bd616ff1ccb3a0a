"""Tool and environment text fill the context.

What it looks at
----------------
The share of the context that is observation rather than the policy's own text.

Why it matters
--------------
What the policy wrote itself is a shrinking part of what it learns from; answers are cut, and errors compound from turn to turn.

How it decides
--------------
* watch: observations make up more than 0.8 of the context and at least 0.1 more than at first, for 10 steps.

Example
-------
>>> import numpy as np, pandas as pd
>>> from echotrap.detector import episodes
>>> from echotrap.record import Run
>>> share = np.concatenate((np.full(40, 0.5), np.linspace(0.5, 0.9, 20), np.full(20, 0.9)))
>>> frame = pd.DataFrame({"observation_share": share}, index=pd.Index(range(1, 81), name="step"))
>>> [episode] = episodes(DETECTOR(Run("example", "-", "frame", frame)))
>>> episode.onset_step, dict(episode.alarm_steps)
(56, {<Level.WATCH: 1>: 65})

False positives
---------------
Tasks that are retrieval-heavy by design.

What to do
----------
Load tools lazily, summarise or cut observations, limit the turns.

References
----------
Failure catalogue E12 (SKILL0, ATLAS).
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

    full_share: float = knob(0.8, least=0.3, most=0.99, low=0.9, source="failure catalogue E12")
    rise: float = knob(0.1, least=0.0, most=0.9, source="gate was-normal")
    hold_steps: int = knob(10, least=1, most=200, low=20, source="failure catalogue E12")


def detect(run: Run, params: Params) -> Track | NotEvaluated:
    """Judge how much of the context is observation."""
    steps, share = run.series("observation_share")
    normal = stats.baseline(share, steps, off_factor=None, off_by=params.rise, arm_steps=run.arm_steps)
    full = (share > params.full_share) & (share >= normal + params.rise)
    level, onset = stats.ladder(stats.held(full, steps, params.hold_steps, release=share < params.full_share - 0.05))
    return Track(steps, level, onset, share, np.full(len(steps), params.full_share), {"value": share, "baseline": normal})


DETECTOR = Detector(
    card=Card(
        id="context-saturation",
        code="E12",
        title="observations fill the context",
        family="length",
        tier="extension",
        highest=Level.WATCH,
        needs=(("observation_share",),),
        message="{value:.0%} of the context is tool or environment text, at first {baseline:.0%}",
        remedies=(
            Remedy(
                "Cut or summarise observations, limit the turns",
                {
                    "verl": "actor_rollout_ref.rollout.multi_turn.max_tool_response_length=256",
                    "TRL": "shorten what the tool returns",
                },
                cost="information",
            ),
        ),
        references=("failure catalogue E12",),
        units={"value": "0..1", "baseline": "0..1"},
    ),
    params=Params(),
    detect=detect,
)
