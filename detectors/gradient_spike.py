"""The gradient norm jumps far above its usual level.

What it looks at
----------------
The gradient norm before clipping, on a logarithmic scale, against its own last 50 steps; the outcome as second witness.

Why it matters
--------------
A few tokens or one bad batch dominate the update. In an Echo Trap it is the last sign: on RAGEN's curves it comes with or after
the fall of success, and jumps of a hundredfold are never survived. In sampler mismatch it leads.

How it decides
--------------
``factor = norm / median of the last 50 steps`` (5 points on sparse logs), the newest left out, zeros dropped. An event needs 6
robust deviations of the logarithm, 1.5 times the 90 % quantile of the last 200 steps and ``factor >= 3`` (10 on sparse logs): ten
separates collapsed from healthy runs, three does not.

* watch: one event.
* warning: events at 2 of 3 points; or 3 within 20 steps; or one with ``factor >= 10`` and above the run's baseline with the
  outcome down; or one with ``factor >= 100``.
* critical: a warning, or one event with ``factor >= 10``, with the outcome down: the 10-step mean of the reward a fifth of its
  range, and three deviations of its noise, below its best; or the held-out score halved within 20 steps.

An incident ends after 20 quiet steps.

Example
-------
>>> import numpy as np, pandas as pd
>>> from echotrap.detector import Level, episodes
>>> from echotrap.record import Run
>>> norm = 0.5 + 0.1 * np.sin(np.arange(80.0))
>>> norm[60:62] = 12.0
>>> frame = pd.DataFrame({"grad_norm": norm}, index=pd.Index(range(1, 81), name="step"))
>>> [episode] = episodes(DETECTOR(Run("example", "-", "frame", frame)))
>>> episode.onset_step, episode.level.name, episode.cleared_step
(61, 'WARNING', None)

False positives
---------------
Warm-up; a batch that a filter left almost empty; the first step after a resume without optimiser state; another loss
aggregation. A norm logged *after* clipping saturates and hides spikes.

What to do
----------
Skip the step or roll back about 100 steps and skip those batches; clip the gradient at 0.05-0.1; lower the learning rate; reset
the optimiser's moments.

References
----------
RAGEN, arXiv 2504.20073, figure 6; PaLM, arXiv 2204.02311 (roll back, skip batches); INTELLECT-2, arXiv 2505.07291 (clip);
ZClip, arXiv 2504.02507 (a clipping rule, unusable as an alarm: it flags 17-21 of 500 healthy steps).
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

    event_factor: float = knob(3.0, least=1.5, most=20.0, low=5.0, source="failure catalogue C1")
    event_sigma: float = knob(
        6.0, least=2.0, most=20.0, low=8.0, high=5.0, source="failure catalogue C1; 1.9 per 500 healthy steps"
    )
    warning_factor: float = knob(10.0, least=3.0, most=100.0, low=20.0, high=7.0, source="RAGEN curves: healthy maximum 4.5")
    critical_factor: float = knob(100.0, least=10.0, most=1e6, source="RAGEN curves: never survived")
    tail_factor: float = knob(1.5, least=1.0, most=10.0, source="runs in which every fourth step has a gradient at all")
    reward_drop: float = knob(0.2, least=0.05, most=0.9, source="failure catalogue C1")
    least_log_spread: float = knob(0.1, least=0.0, most=1.0, source="failure catalogue 3.2")
    window_steps: int = knob(50, least=10, most=1000, source="failure catalogue C1")
    quiet_steps: int = knob(20, least=1, most=500, source="failure catalogue 9.5")
    sparse_steps: int = knob(5, least=2, most=100, source="failure catalogue 3.2")


def detect(run: Run, params: Params) -> Track | NotEvaluated:
    """Judge jumps of the gradient norm."""
    steps, values = run.series("grad_norm")
    steps, values = steps[values > 0], values[values > 0]
    if len(steps) < 4:
        return NotEvaluated("fewer than 4 gradient norms above zero")
    log = np.log(values)
    usual = stats.local(log, steps, params.window_steps)
    factor = np.exp(log - usual.centre)
    sigma = (log - usual.centre) / np.maximum(usual.spread, params.least_log_spread)
    settled = np.arange(len(steps)) >= 3
    sparse = stats.spacing(steps) >= params.sparse_steps
    normal = stats.baseline(values, steps, arm_steps=run.arm_steps)

    tail = stats.local_quantile(values, steps, 4 * params.window_steps, 0.9)
    settled &= values > params.tail_factor * tail
    event = settled & (sigma >= params.event_sigma) & (factor >= np.where(sparse, params.warning_factor, params.event_factor))
    large = settled & (factor >= params.warning_factor) & ((sigma >= params.event_sigma) | sparse)
    count = event.astype(np.float64)
    points = np.arange(len(steps), dtype=np.int64)
    often = (stats.trailing(count, points, 3, "sum") >= 2) | (stats.trailing(count, steps, 20, "sum") >= 3)
    huge = settled & (factor >= params.critical_factor) & (values > normal)
    worse = _worse(run, steps, params)
    seen = stats.lingering(event | large, steps, params.quiet_steps)
    alone = stats.lingering((event & often) | huge, steps, params.quiet_steps)
    fallen = stats.lingering((event & often) | (large & (values > normal)), steps, params.quiet_steps)
    backed = stats.Held(fallen.on & worse, np.where(fallen.on & worse, fallen.since, -1))
    level, onset = stats.ladder(seen, stats.either(alone, backed), backed)
    evidence = {"value": values, "typical": np.exp(usual.centre), "factor": factor, "sigma": sigma}
    return Track(steps, level, onset, factor, np.full(len(steps), params.warning_factor), evidence)


def _worse(run: Run, steps: stats.Steps, params: Params) -> stats.Flags:
    """Whether the outcome is down: the reward beyond its noise, or the held-out score halved within 20 steps.

    The noise bound is that of one look, not of many: that it falls just when the gradient jumps is unlikely enough.
    """
    at, reward = run.series("reward_mean")
    fall = stats.best_so_far(reward, at) - stats.trailing(reward, at, 10, "mean")
    wide = stats.running_max(reward) - stats.running_min(reward)
    fallen = (fall >= params.reward_drop * wide) & (fall > 3 * np.nan_to_num(stats.noise(reward, how="mean"))) & (wide > 0)
    held_out_at, held_out = run.series("eval_score")
    lately = stats.trailing(held_out, held_out_at, 21, "max")
    halved = (held_out < 0.5 * lately) & (lately >= 0.5 * stats.running_max(held_out))
    return np.asarray(stats.as_of(fallen, at, steps, False) | stats.as_of(halved, held_out_at, steps, False))


DETECTOR = Detector(
    card=Card(
        id="gradient-spike",
        code="C1",
        title="the gradient norm jumps",
        family="gradient",
        highest=Level.CRITICAL,
        needs=(("grad_norm",),),
        uses=("reward_mean", "eval_score"),
        tell="worst",
        message="gradient norm {value:.3g} is {factor:.0f} times its usual {typical:.3g}",
        remedies=(
            Remedy(
                "Go back about 100 steps, skip those batches, clip the gradient tighter",
                {
                    "verl": "actor_rollout_ref.actor.grad_clip=0.1",
                    "TRL": "max_grad_norm=0.1",
                    "OpenRLHF": "--max_norm 0.1",
                    "prime-rl": "optim.max_norm=0.1",
                },
                cost="too tight a clip slows learning",
            ),
            Remedy(
                "Lower the learning rate",
                {
                    "verl": "actor_rollout_ref.actor.optim.lr=5e-7",
                    "TRL": "learning_rate=5e-7",
                    "OpenRLHF": "--actor_learning_rate 5e-7",
                },
            ),
        ),
        references=("arXiv 2504.20073 fig. 6", "arXiv 2204.02311", "arXiv 2505.07291"),
        units={"value": "L2", "typical": "L2", "factor": "of typical", "sigma": "robust sigma"},
    ),
    params=Params(),
    detect=detect,
)
