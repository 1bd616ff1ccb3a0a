"""Correct rollouts become less likely while the reward rises.

What it looks at
----------------
The mean log-probability of correct rollouts.

Why it matters
--------------
Group-relative updates can lower the likelihood of *correct* trajectories through tokens they share with wrong ones. Confidence
falls, negative gradients grow, and in the end the run explodes: stagnation, steady decay, acceleration.

How it decides
--------------
Log-probability as 20-step median.

* watch: 0.1 nats per token lower than 50 steps before, for 10 steps.
* warning: 0.3 nats lower than 100 steps before, for 10 steps.
* critical: warning, and the last 50 steps fell at least twice as much as the 50 before.

Example
-------
>>> import numpy as np, pandas as pd
>>> from echotrap.detector import episodes
>>> from echotrap.record import Run
>>> logp = -0.4 - 0.003 * np.maximum(np.arange(200) - 60, 0)
>>> frame = pd.DataFrame({"logp_correct": logp}, index=pd.Index(range(1, 201), name="step"))
>>> [episode] = episodes(DETECTOR(Run("example", "-", "frame", frame)))
>>> episode.onset_step, dict(episode.alarm_steps)
(104, {<Level.WATCH: 1>: 113})

False positives
---------------
Longer or harder answers, another temperature, another data mix.

What to do
----------
A likelihood-preserving term on correct rollouts, masking of answer tokens, PPO instead of GRPO.

References
----------
LLDS, arXiv 2512.04220; likelihood displacement in GRPO, arXiv 2505.18830.
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

    watch_fall_nats: float = knob(0.1, least=0.01, most=2.0, low=0.2, source="failure catalogue C7")
    warning_fall_nats: float = knob(0.3, least=0.02, most=5.0, low=0.5, source="failure catalogue C7")
    window_steps: int = knob(50, least=10, most=500, source="failure catalogue C7")
    hold_steps: int = knob(10, least=1, most=200, source="failure catalogue 3.2")


def detect(run: Run, params: Params) -> Track | NotEvaluated:
    """Judge the likelihood of correct rollouts."""
    steps, values = run.series("logp_correct")
    if len(steps) < 5:
        return NotEvaluated("fewer than 5 log-probabilities of correct rollouts")
    level_now = stats.trailing(values, steps, 20)
    window = params.window_steps
    then, long_ago = (_ago(level_now, steps, window * times) for times in (1, 2))
    fall, long_fall = then - level_now, long_ago - level_now
    hold = params.hold_steps
    warning = stats.held(long_fall >= params.warning_fall_nats, steps, hold, release=~(long_fall >= params.warning_fall_nats / 2))
    level, onset = stats.ladder(
        stats.held(fall >= params.watch_fall_nats, steps, hold, release=~(fall >= params.watch_fall_nats / 2)),
        warning,
        stats.Held(warning.on & (fall >= 2 * (long_ago - then)), warning.since),
    )
    evidence = {"value": level_now, "before": then, "fall": fall}
    return Track(steps, level, onset, level_now, then - params.watch_fall_nats, evidence)


def _ago(level: stats.Floats, steps: stats.Steps, window_steps: int) -> stats.Floats:
    """The level a window ago; NaN where the run is younger."""
    where = np.searchsorted(steps, steps - window_steps, side="right") - 1
    return np.where(where >= 2, level[np.maximum(where, 0)], np.nan)


DETECTOR = Detector(
    card=Card(
        id="likelihood-displacement",
        code="C7",
        title="correct rollouts become less likely",
        family="off-policy",
        tier="extension",
        highest=Level.WATCH,
        needs=(("logp_correct",),),
        message="log-probability of correct rollouts {value:.2f}, {before:.2f} 50 steps ago",
        remedies=(
            Remedy("A likelihood-preserving term on correct rollouts (LLDS)"),
            Remedy(
                "PPO instead of GRPO; fewer inner updates",
                {"verl": "algorithm.adv_estimator=gae", "TRL": "num_iterations=1"},
            ),
        ),
        references=("arXiv 2512.04220", "arXiv 2505.18830"),
        units={"value": "nats/token", "before": "nats/token", "fall": "nats/token"},
    ),
    params=Params(),
    detect=detect,
)
