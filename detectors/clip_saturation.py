"""Too many tokens are clipped: the updates are larger than the trust region.

What it looks at
----------------
The share of tokens whose importance ratio was clipped, against the run's own first steps.

Why it matters
--------------
A clipped token has no gradient. When many are, the policy has moved too far within one batch, and only the tokens that moved
least still teach.

How it decides
--------------
* watch: share (5-step median) above 0.1 and five times its baseline, for 10 steps.
* warning: above 0.3 and five times its baseline, for 10 steps.

A share that is exactly 0 throughout belongs to one on-policy update per batch and is not judged.

Example
-------
>>> import numpy as np, pandas as pd
>>> from echotrap.detector import episodes
>>> from echotrap.record import Run
>>> share = np.concatenate((np.full(30, 0.01), np.linspace(0.01, 0.25, 30), np.full(20, 0.25)))
>>> frame = pd.DataFrame({"clip_frac": share}, index=pd.Index(range(1, 81), name="step"))
>>> [episode] = episodes(DETECTOR(Run("example", "-", "frame", frame)))
>>> episode.onset_step, dict(episode.alarm_steps)
(44, {<Level.WATCH: 1>: 53})

False positives
---------------
Sequence-level objectives clip orders of magnitude more by design and train well (GSPO).

What to do
----------
Fewer updates per batch, a lower learning rate, clip higher, fresher rollouts.

References
----------
GSPO, arXiv 2507.18071; M2PO, arXiv 2510.01161 (1.22 % of tokens clipped when stale, 0.06 % with its constraint).
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

    watch_share: float = knob(0.1, least=0.005, most=0.9, low=0.2, source="failure catalogue C6")
    warning_share: float = knob(0.3, least=0.01, most=0.95, low=0.5, source="failure catalogue C6")
    rise_factor: float = knob(5.0, least=1.5, most=100.0, low=10.0, high=3.0, source="failure catalogue C6")
    hold_steps: int = knob(10, least=1, most=200, low=20, high=5, source="failure catalogue C6")
    baseline_steps: int = knob(20, least=3, most=500, source="failure catalogue 3.2")


def detect(run: Run, params: Params) -> Track | NotEvaluated:
    """Judge how many tokens are clipped."""
    steps, values = run.series("clip_frac")
    if not values.any():
        return NotEvaluated("no token was ever clipped: one on-policy update per batch")
    share = stats.trailing(values, steps, 5)
    normal = stats.baseline(values, steps, window_steps=params.baseline_steps, arm_steps=run.arm_steps)
    risen = share > params.rise_factor * normal
    level, onset = stats.ladder(
        stats.held(risen & (share > params.watch_share), steps, params.hold_steps, release=share < params.watch_share / 2),
        stats.held(risen & (share > params.warning_share), steps, params.hold_steps, release=share < params.warning_share / 2),
    )
    return Track(steps, level, onset, share, np.full(len(steps), params.watch_share), {"value": share, "baseline": normal})


DETECTOR = Detector(
    card=Card(
        id="clip-saturation",
        code="C6",
        title="too many tokens are clipped",
        family="off-policy",
        tier="extension",
        highest=Level.WATCH,
        needs=(("clip_frac",),),
        message="{value:.1%} of the tokens are clipped, baseline {baseline:.2%}",
        remedies=(
            Remedy(
                "Fewer updates per batch, a lower learning rate",
                {
                    "verl": "actor_rollout_ref.actor.ppo_epochs=1 actor_rollout_ref.actor.optim.lr=5e-7",
                    "TRL": "num_iterations=1 learning_rate=5e-7",
                    "OpenRLHF": "--max_epochs 1",
                },
            ),
            Remedy(
                "Clip higher",
                {"verl": "actor_rollout_ref.actor.clip_ratio_high=0.28", "TRL": "epsilon_high=0.28"},
                cost="larger updates",
            ),
        ),
        references=("arXiv 2507.18071", "arXiv 2510.01161"),
        units={"value": "0..1", "baseline": "0..1"},
    ),
    params=Params(),
    detect=detect,
)
