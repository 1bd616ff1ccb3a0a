"""The reward rises while what it stands for falls.

What it looks at
----------------
Training reward and held-out score at the evaluations.

Why it matters
--------------
The policy has found what the grader pays for instead of what was meant: edited tests, leaked answers, form without content. More
training makes it worse.

How it decides
--------------
At least 5 evaluations.

* watch: the held-out score is below its best by 20 % of it and by twice its own noise, while the training reward (20-step mean)
  is higher than at that best, beyond its noise.
* warning: on 2 evaluations in a row.
* critical: on 4 evaluations in a row, with the held-out score below half of its best.

Example
-------
>>> import numpy as np, pandas as pd
>>> from echotrap.detector import episodes
>>> from echotrap.record import Run
>>> step = np.arange(1, 201)
>>> score = np.full(200, np.nan)
>>> score[19::20] = [0.2, 0.3, 0.4, 0.45, 0.5, 0.45, 0.35, 0.25, 0.2, 0.15]
>>> frame = pd.DataFrame({"reward_mean": 0.2 + 0.003 * step, "eval_score": score}, index=pd.Index(step, name="step"))
>>> [episode] = episodes(DETECTOR(Run("example", "-", "frame", frame)))
>>> episode.onset_step, dict(episode.alarm_steps)
(160, {<Level.WATCH: 1>: 160})

False positives
---------------
Training and held-out prompts of different kinds; a small evaluation set.

What to do
----------
Stop; read the rollouts with the highest reward; patch the grader; keep a second grader that the policy never sees.

References
----------
Evaluator stress tests, arXiv 2507.05619 (78 % precision, 82 % recall at best); process rewards for agents, arXiv 2502.10325
(detection without an outcome is open).
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

    fall_ratio: float = knob(0.2, least=0.02, most=0.9, low=0.3, source="twice the limit of train-eval-divergence, and longer")
    noise_sigma: float = knob(2.0, least=0.5, most=10.0, low=3.0, source="failure catalogue A8")
    evaluations: int = knob(2, least=1, most=20, low=3, source="failure catalogue A8")


def detect(run: Run, params: Params) -> Track | NotEvaluated:
    """Judge whether the proxy and the aim go apart."""
    steps, held_out = run.series("eval_score")
    if len(steps) < 5:
        return NotEvaluated("fewer than 5 evaluations")
    at, reward = run.series("reward_mean")
    seen = stats.apart(held_out, steps, reward, at, fall_ratio=params.fall_ratio, sigmas=params.noise_sigma)
    apart = seen.flag & (np.arange(len(steps)) >= 4)
    level, onset = stats.ladder(
        stats.held_points(apart, steps, 1),
        stats.held_points(apart, steps, params.evaluations),
        stats.held_points(apart & (seen.best - held_out > 0.5 * np.abs(seen.best)), steps, 2 * params.evaluations),
    )
    return Track(steps, level, onset, held_out, seen.limit, {"value": held_out, "best": seen.best, "rise": seen.rise})


DETECTOR = Detector(
    card=Card(
        id="reward-hacking",
        code="A8",
        title="the reward rises while what it stands for falls",
        family="reward",
        tier="extension",
        highest=Level.WATCH,
        needs=(("reward_mean",), ("eval_score",)),
        gates=("min-data", "declared-event"),
        message="held-out score {value:.3g} (best {best:.3g}) while the reward rose by {rise:.3g}",
        remedies=(
            Remedy("Stop, read the rollouts with the highest reward, patch the grader"),
            Remedy(
                "Hold the policy near its reference until it is patched",
                {
                    "verl": "actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.actor.kl_loss_coef=0.01",
                    "TRL": "beta=0.04",
                },
                cost="slower learning",
            ),
        ),
        references=("arXiv 2507.05619", "arXiv 2502.10325"),
    ),
    params=Params(),
    detect=detect,
)
