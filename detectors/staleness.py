"""Rollouts are too old: few of them still count for the policy that learns from them.

What it looks at
----------------
The effective sample size of the importance weights, and the age of the sampling policy in updates.

Why it matters
--------------
Asynchronous training learns from what an older policy sampled. When the effective sample size collapses a handful of rollouts
carries the whole update; gradient norms become unstable and a collapse follows. A good reward is no counter-evidence: stale
training without a trust region looks excellent at first.

How it decides
--------------
* watch: effective sample size below 0.5 for 5 steps; or a policy lag above 8 updates for 5 steps.
* warning: effective sample size below 0.3 for 5 steps.

Example
-------
>>> import numpy as np, pandas as pd
>>> from echotrap.detector import episodes
>>> from echotrap.record import Run
>>> share = np.concatenate((np.full(40, 0.95), np.full(20, 0.4)))
>>> frame = pd.DataFrame({"ess_frac": share}, index=pd.Index(range(1, 61), name="step"))
>>> [episode] = episodes(DETECTOR(Run("example", "-", "frame", frame)))
>>> episode.onset_step, dict(episode.alarm_steps)
(41, {<Level.WATCH: 1>: 45})

False positives
---------------
A lag that is bounded on purpose and corrected for.

What to do
----------
Scale the learning rate with the effective sample size, lower the lag, constrain the second moment of the ratio.

References
----------
VCPO, arXiv 2602.17616; M2PO, arXiv 2510.01161; verl ``docs/algo/rollout_corr.md``; prime-rl (maximum lag 8).
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

    watch_share: float = knob(0.5, least=0.05, most=0.95, low=0.4, source="verl docs/algo/rollout_corr.md")
    warning_share: float = knob(0.3, least=0.01, most=0.9, low=0.2, source="verl docs/algo/rollout_corr.md")
    most_lag: float = knob(8.0, least=1.0, most=1000.0, source="prime-rl default")
    hold_steps: int = knob(5, least=1, most=100, low=10, high=3, source="failure catalogue C10")


def detect(run: Run, params: Params) -> Track | NotEvaluated:
    """Judge how old the rollouts are."""
    steps = stats.union(*(run.series(name).steps for name in ("ess_frac", "policy_lag")))
    at, share = run.series("ess_frac")
    lag_at, lag = run.series("policy_lag")
    level, onset = stats.ladder(
        stats.either(
            stats.spread(stats.held(share < params.watch_share, at, params.hold_steps), at, steps),
            stats.spread(stats.held(lag > params.most_lag, lag_at, params.hold_steps), lag_at, steps),
        ),
        stats.spread(stats.held(share < params.warning_share, at, params.hold_steps), at, steps),
    )
    few = run.at("ess_frac", steps)
    is_lag = ~(few < params.watch_share) & run.has("policy_lag")
    evidence = {
        "what": np.where(is_lag, "policy lag in updates", "effective sample size"),
        "value": np.where(is_lag, run.at("policy_lag", steps), few),
    }
    return Track(steps, level, onset, few, np.full(len(steps), params.watch_share), evidence)


DETECTOR = Detector(
    card=Card(
        id="staleness",
        code="C10",
        title="rollouts are too old",
        family="off-policy",
        tier="extension",
        highest=Level.WATCH,
        needs=(("ess_frac", "policy_lag"),),
        message="{what}: {value:.3g}",
        remedies=(
            Remedy(
                "Fresher rollouts",
                {
                    "verl": "async_training.staleness_threshold=0.1",
                    "TRL": "steps_per_generation=1 num_iterations=1",
                    "prime-rl": "max_async_level=1",
                },
                cost="throughput",
            ),
        ),
        references=("arXiv 2602.17616", "arXiv 2510.01161", "verl docs/algo/rollout_corr.md"),
    ),
    params=Params(),
    detect=detect,
)
