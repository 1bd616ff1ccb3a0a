"""Importance ratios plunge and the gradient vanishes with them.

What it looks at
----------------
Mean and lowest importance ratio of current to sampling policy, with the gradient norm as second witness.

Why it matters
--------------
When the ratios of good tokens fall towards zero their surrogate gradient vanishes, and the policy cannot get back to them.

How it decides
--------------
* watch: mean ratio below 0.9 for 5 steps.
* warning: lowest ratio (5-step median) at most half of its baseline while the gradient norm is at most half of its own, for 10
  steps.
* critical: mean ratio below 0.5 for 5 steps while the gradient norm is at most half of its baseline.

Example
-------
>>> import numpy as np, pandas as pd
>>> from echotrap.detector import episodes
>>> from echotrap.record import Run
>>> ratio = np.concatenate((np.full(40, 1.0), np.linspace(1.0, 0.6, 20)))
>>> frame = pd.DataFrame({"is_ratio_mean": ratio}, index=pd.Index(range(1, 61), name="step"))
>>> [episode] = episodes(DETECTOR(Run("example", "-", "frame", frame)))
>>> episode.onset_step, dict(episode.alarm_steps)
(46, {<Level.WATCH: 1>: 50})

False positives
---------------
Masking modes that set ratios to zero (TRL's default for vLLM correction): read the log-probability gap instead.

What to do
----------
A KL term on positive low-probability tokens, fewer inner updates, fresh rollouts.

References
----------
SAPO, arXiv 2603.10069; verl ``docs/algo/rollout_corr.md``.
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

    watch_ratio: float = knob(0.9, least=0.3, most=1.0, low=0.8, source="failure catalogue C8")
    critical_ratio: float = knob(0.5, least=0.05, most=0.9, source="verl docs/algo/rollout_corr.md")
    halved: float = knob(0.5, least=0.05, most=0.95, source="failure catalogue C8")
    hold_steps: int = knob(5, least=1, most=100, low=10, high=3, source="failure catalogue C8")


def detect(run: Run, params: Params) -> Track | NotEvaluated:
    """Judge whether importance ratios plunge."""
    steps, mean = run.series("is_ratio_mean")
    weak = _halved(run, "grad_norm", steps, params)
    lowest = _halved(run, "is_ratio_min", steps, params)
    hold = params.hold_steps
    level, onset = stats.ladder(
        stats.held(mean < params.watch_ratio, steps, hold),
        stats.held(lowest & weak, steps, 2 * hold),
        stats.held((mean < params.critical_ratio) & weak, steps, hold),
    )
    return Track(steps, level, onset, mean, np.full(len(steps), params.watch_ratio), {"value": mean})


def _halved(run: Run, name: str, steps: stats.Steps, params: Params) -> stats.Flags:
    at, values = run.series(name)
    normal = stats.baseline(values, at, arm_steps=run.arm_steps)
    return stats.as_of(stats.trailing(values, at, 5) <= params.halved * normal, at, steps, False)


DETECTOR = Detector(
    card=Card(
        id="importance-ratio-drift",
        code="C8",
        title="importance ratios plunge",
        family="off-policy",
        tier="extension",
        highest=Level.WATCH,
        needs=(("is_ratio_mean",),),
        uses=("is_ratio_min", "grad_norm"),
        message="mean importance ratio {value:.3g}",
        remedies=(
            Remedy(
                "Fewer inner updates, fresh rollouts",
                {"verl": "actor_rollout_ref.actor.ppo_epochs=1", "TRL": "num_iterations=1 steps_per_generation=1"},
            ),
            Remedy("A KL term on positive low-probability tokens (SAPO)"),
        ),
        references=("arXiv 2603.10069", "verl docs/algo/rollout_corr.md"),
    ),
    params=Params(),
    detect=detect,
)
