"""The reasoning does not mention what it is about.

What it looks at
----------------
The share of reasonings that hold no word or number that is particular to their own prompt, state or observation. Particular is
what at most half of the step's prompts have; symbolic states (grids) have none and are left out.

Why it matters
--------------
Under outcome-only reward the thoughts may stop justifying the action while answers stay right: a study that retrained Search-R1
saw the thinking degenerate long before the score followed.

How it decides
--------------
Watch, for 5 steps: the share is above .5 and 20 points above its baseline, or above twice its baseline and 15 points above it.
Needs 16 rollouts with text. Never more than a watch.

Example
-------
>>> import numpy as np, pandas as pd
>>> from echotrap.detector import Level, episodes
>>> from echotrap.record import Run
>>> share = np.concatenate((np.full(30, 0.1), np.full(10, 0.7)))
>>> run = Run("example", "-", "frame", pd.DataFrame({"unjustified_frac": share}, index=pd.Index(range(1, 41), name="step")))
>>> [episode] = episodes(DETECTOR(run))
>>> episode.onset_step, episode.alarm_steps[Level.WATCH]
(31, 35)

False positives
---------------
A terse style; states that are given in symbols; answers without reasoning.

What to do
----------
Reward the reasoning (format, length, faithfulness), read some rollouts, and check that the action follows from the thought.

References
----------
RAGEN, arXiv 2504.20073, finding 6 (reasoning decays under outcome-only reward).
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

    share: float = knob(0.5, least=0.1, most=1.0, low=0.6, high=0.4, source="failure catalogue E10")
    rise: float = knob(0.2, least=0.0, most=0.9, source="sampling noise of 16 rollouts is .12")
    baseline_factor: float = knob(2.0, least=1.1, most=10.0, source="failure catalogue E10")
    least_rise: float = knob(0.15, least=0.0, most=0.9, source="twice nothing is nothing")
    window_steps: int = knob(5, least=1, most=100, low=10, high=3, source="failure catalogue 3.2")
    baseline_steps: int = knob(20, least=3, most=500, source="failure catalogue 3.2")
    least_rollouts: int = knob(16, least=1, most=1000, source="validation tables hold 20; below 16 one rollout is 6 %")


def detect(run: Run, params: Params) -> Track | NotEvaluated:
    """Judge how many reasonings name nothing of their own prompt."""
    steps, share = run.series("unjustified_frac")
    judged = ~(run.at("rollout_count", steps) < params.least_rollouts)
    if not judged.any():
        return NotEvaluated(f"fewer than {params.least_rollouts} rollouts with text at every step")
    normal = stats.baseline(share, steps, window_steps=params.baseline_steps, off_factor=None, arm_steps=run.arm_steps)
    limit = np.minimum(
        np.maximum(params.share, normal + params.rise),
        np.maximum(params.baseline_factor * normal, normal + params.least_rise),
    )
    level, onset = stats.ladder(stats.held(judged & (share > limit), steps, params.window_steps))
    return Track(steps, level, onset, share, limit, {"value": share, "baseline": normal})


DETECTOR = Detector(
    card=Card(
        id="unjustified-thoughts",
        code="E10",
        title="the reasoning does not mention what it is about",
        family="text",
        highest=Level.WATCH,
        tier="extension",
        needs=(("unjustified_frac",),),
        uses=("rollout_count",),
        message="{value:.0%} of the reasonings name nothing particular to their prompt (baseline {baseline:.0%})",
        remedies=(
            Remedy(
                "Reward the reasoning, not only the outcome: format, faithfulness, least length", cost="one more reward to game"
            ),
            Remedy("Read rollouts of the last steps beside early ones of the same prompt"),
        ),
        references=("arXiv 2504.20073 finding 6",),
        units={"value": "0..1", "baseline": "0..1"},
    ),
    params=Params(),
    detect=detect,
)
