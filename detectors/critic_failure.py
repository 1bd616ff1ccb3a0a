"""The critic no longer explains the returns.

What it looks at
----------------
Explained variance of the value function, where the returns vary at all.

Why it matters
--------------
With a failed critic advantages are noise, or biased: outputs shrink or drift although the reward function is sound.

How it decides
--------------
Steps on which the variance of the returns is at most 0.001 are left out: the ratio explodes there. So are the first 20 steps, in
which a critic warms up.

* watch: explained variance (5-step median) below 0 for 10 steps.
* warning: below -0.5 for 10 steps; or half a unit below its median of the last 50 steps and below 0.3, for 10 steps.

Example
-------
>>> import numpy as np, pandas as pd
>>> from echotrap.detector import episodes
>>> from echotrap.record import Run
>>> share = np.concatenate((np.full(50, 0.7), np.full(30, -0.2)))
>>> frame = pd.DataFrame({"explained_variance": share}, index=pd.Index(range(1, 81), name="step"))
>>> [episode] = episodes(DETECTOR(Run("example", "-", "frame", frame)))
>>> episode.onset_step, episode.alarm_steps[min(episode.alarm_steps)]
(53, 62)

False positives
---------------
Constant returns; the first steps; stochastic environments, in which nothing can be explained.

What to do
----------
Pretrain the value function, decoupled or length-adaptive GAE, a lower critic learning rate, a baseline without a critic.

References
----------
VC-PPO, arXiv 2503.01491; VAPO, arXiv 2504.05118; RAGEN, arXiv 2504.20073, appendix F.
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

    watch_limit: float = knob(0.0, least=-1.0, most=0.5, source="failure catalogue C11")
    warning_limit: float = knob(-0.5, least=-10.0, most=0.3, source="failure catalogue C11")
    fall: float = knob(0.5, least=0.1, most=5.0, source="failure catalogue C11")
    least_returns_var: float = knob(1e-3, least=0.0, most=1.0, source="failure catalogue C11")
    warmup_steps: int = knob(20, least=0, most=500, source="failure catalogue C11")
    hold_steps: int = knob(10, least=1, most=200, low=20, high=5, source="failure catalogue C11")


def detect(run: Run, params: Params) -> Track | NotEvaluated:
    """Judge what the critic explains."""
    steps, values = run.series("explained_variance")
    known = steps >= steps[0] + params.warmup_steps
    if run.has("returns_var"):
        known &= run.at("returns_var", steps) > params.least_returns_var
    steps, values = steps[known], values[known]
    if len(steps) < 3:
        return NotEvaluated("fewer than 3 points after the critic's warm-up with returns that vary")
    value = stats.trailing(values, steps, 5)
    before = stats.local(value, steps, 50).centre
    fallen = (before - value >= params.fall) & (value < 0.3)
    hold = params.hold_steps
    level, onset = stats.ladder(
        stats.held(value < params.watch_limit, steps, hold, release=value > params.watch_limit + 0.1),
        stats.either(stats.held(value < params.warning_limit, steps, hold), stats.held(fallen, steps, hold)),
    )
    return Track(steps, level, onset, value, np.full(len(steps), params.watch_limit), {"value": value, "before": before})


DETECTOR = Detector(
    card=Card(
        id="critic-failure",
        code="C11",
        title="the critic no longer explains the returns",
        family="critic",
        tier="extension",
        highest=Level.WATCH,
        needs=(("explained_variance",),),
        uses=("returns_var",),
        message="explained variance {value:.2f}, {before:.2f} over the last 50 steps",
        remedies=(
            Remedy(
                "Warm the critic up, lower its learning rate",
                {
                    "verl": "trainer.critic_warmup=20 critic.optim.lr=5e-6",
                    "TRL": "PPOConfig: vf_coef, or GRPO",
                    "OpenRLHF": "--freezing_actor_steps 20 --critic_learning_rate 5e-6",
                },
            ),
            Remedy("A baseline without a critic", {"verl": "algorithm.adv_estimator=grpo", "TRL": "GRPOTrainer"}),
        ),
        references=("arXiv 2503.01491", "arXiv 2504.05118"),
    ),
    params=Params(),
    detect=detect,
)
