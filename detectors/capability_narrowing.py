"""The first try gets better while the best of many gets worse.

What it looks at
----------------
The held-out score (pass@1) and held-out pass@k at the same evaluations.

Why it matters
--------------
Training then only sharpens what the policy could do already, and forgets the rarer ways to solve a task. Best-of-n and further
training have less to choose from.

How it decides
--------------
* watch: pass@k is below its best by more than .02 and by 2 standard deviations of its noise, and pass@1 is not below what it was
  at that best, at two evaluations in a row.

Example
-------
>>> import numpy as np, pandas as pd
>>> from echotrap.detector import episodes
>>> from echotrap.record import Run
>>> columns = {"eval_score": np.linspace(0.3, 0.5, 12), "pass_at_k": np.repeat([0.8, 0.79, 0.7], 4)}
>>> run = Run("example", "-", "frame", pd.DataFrame(columns, index=pd.Index(range(10, 130, 10), name="step")))
>>> [episode] = episodes(DETECTOR(run))
>>> episode.onset_step, dict(episode.alarm_steps)
(90, {<Level.WATCH: 1>: 100})

False positives
---------------
Small evaluation sets; fewer than 2k samples a task.

What to do
----------
Reward diversity, widen the data, keep entropy up.

References
----------
PASS@(k,T) (reinforcement learning can widen the boundary, supervised fine-tuning regresses it).
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

    fall: float = knob(0.02, least=0.0, most=0.5, low=0.05, source="one task of fifty")
    noise_sigma: float = knob(2.0, least=0.0, most=10.0, low=3.0, source="failure catalogue B7")
    hold_points: int = knob(2, least=1, most=20, source="failure catalogue B7")


def detect(run: Run, params: Params) -> Track | NotEvaluated:
    """Judge whether many tries still find more."""
    steps, many = run.series("pass_at_k")
    first = run.at("eval_score", steps)
    best = stats.running_max(many)
    where = np.maximum.accumulate(np.where(many >= best, np.arange(len(many)), 0)) if len(many) else np.empty(0, np.int64)
    margin = np.maximum(params.fall, params.noise_sigma * np.nan_to_num(stats.noise(many, how="median")))
    narrower = (best - many > margin) & (first >= first[where])
    level, onset = stats.ladder(stats.held_points(narrower, steps, params.hold_points))
    return Track(steps, level, onset, many, best - margin, {"value": many, "best": best, "first": first})


DETECTOR = Detector(
    card=Card(
        id="capability-narrowing",
        code="B7",
        title="pass@1 rises at the cost of pass@k",
        family="evaluation",
        tier="extension",
        highest=Level.WATCH,
        needs=(("pass_at_k",), ("eval_score",)),
        message="pass@k fell to {value:.3g} (best {best:.3g}) while pass@1 is {first:.3g}",
        remedies=(
            Remedy(
                "Keep entropy up: clip higher, a small KL, or an earlier checkpoint",
                {
                    "verl": "actor_rollout_ref.actor.clip_ratio_high=0.28",
                    "TRL": "epsilon_high=0.28",
                    "RAGEN": "actor_rollout_ref.actor.clip_ratio_high=0.28",
                    "OpenRLHF": "--eps_clip_low_high 0.2 0.28",
                },
            ),
        ),
        references=("PASS@(k,T)",),
        units={"value": "0..1", "best": "0..1", "first": "score"},
    ),
    params=Params(),
    detect=detect,
)
