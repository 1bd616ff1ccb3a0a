"""The policy has stopped exploring: its entropy fell to next to nothing.

What it looks at
----------------
Policy entropy against the run's own first steps, so that neither tokeniser nor unit matters, and how fast it falls.

Why it matters
--------------
Without entropy all rollouts of a prompt become one, advantages vanish and no later signal can bring the alternatives back. A
large fall alone is normal: RAGEN's only healthy run loses 71 % of its entropy, and about 73 % is gone after a twelfth of an
ordinary training run that still makes most of its gain. What is not normal is a fall to a few per cent, or a sudden one.

How it decides
--------------
``ratio = entropy / baseline``, baseline = median of the first 20 steps.

* watch: ``ratio < 0.2`` for 10 steps; or an abnormal fall: below half of the baseline, halved within 20 steps and at least
  three times as steep as the steps before, for 5 steps.
* warning: ``ratio < 0.05`` for 5 steps; or ``ratio < 0.2`` while the outcome of training has fallen by two fifths of its range,
  beyond its noise. The gate *not-improving* holds it back while the outcome sets new bests.
* critical: ``ratio < 0.05`` for 10 steps; by policy it needs a second family.

An entropy of exactly 0.0 on every row was not measured and is not judged.

Example
-------
>>> import numpy as np, pandas as pd
>>> from echotrap.detector import Level, episodes
>>> from echotrap.record import Run
>>> entropy = np.concatenate((np.full(30, 0.8), 0.8 * 0.8 ** np.arange(30)))
>>> frame = pd.DataFrame({"entropy": entropy}, index=pd.Index(range(1, 61), name="step"))
>>> [episode] = episodes(DETECTOR(Run("example", "-", "frame", frame)))
>>> episode.onset_step, episode.alarm_steps[Level.WATCH], episode.alarm_steps[Level.WARNING]
(37, 41, 49)

False positives
---------------
Convergence (the gate *solved*); a lower sampling temperature or another mask; a start right after supervised fine-tuning, where
entropy is low from the first step and is therefore its own baseline; a controller that pins entropy at a target.

What to do
----------
Clip higher, keep updates on-policy, use an adaptive entropy bonus or a covariance-based clip; go back to a checkpoint from
before the fall, because entropy does not come back by itself.

References
----------
The entropy mechanism of RL for reasoning, arXiv 2505.22617; DAPO, arXiv 2503.14476; Skywork-OR1, arXiv 2505.22312.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from echotrap import stats
from echotrap.detector import STANDARD_GATES, Card, Detector, Level, NotEvaluated, Remedy, Track, knob
from echotrap.record import Run


@dataclass(frozen=True)
class Params:
    """Working point; each knob says where it comes from."""

    watch_ratio: float = knob(0.2, least=0.05, most=0.5, low=0.1, high=0.28, source="healthy runs fall to 0.29")
    gone_ratio: float = knob(0.05, least=0.001, most=0.2, low=0.02, high=0.1, source="failure catalogue 3.4")
    abnormal_ratio: float = knob(0.5, least=0.1, most=0.9, source="failure catalogue B1, rule b")
    steeper_factor: float = knob(3.0, least=1.0, most=20.0, low=5.0, source="failure catalogue B1, rule b")
    outcome_fall: float = knob(0.4, least=0.1, most=0.9, source="search run whose score fell at a fifth of its entropy")
    fall_steps: int = knob(20, least=5, most=200, source="failure catalogue B1, rule b")
    watch_steps: int = knob(10, least=1, most=100, high=5, source="failure catalogue B1")
    gone_steps: int = knob(5, least=1, most=100, low=10, high=3, source="runs that die within a dozen steps")
    baseline_steps: int = knob(20, least=3, most=500, source="failure catalogue 3.2")


def detect(run: Run, params: Params) -> Track | NotEvaluated:
    """Judge how much of its entropy the policy has left."""
    steps, values = run.series("entropy")
    if not values.any():
        return NotEvaluated("entropy is exactly 0 on every row: it was not measured")
    normal = stats.baseline(values, steps, window_steps=params.baseline_steps, arm_steps=run.arm_steps)
    ratio = stats.ratio(values, normal)
    abnormal = _abnormal_fall(values, steps, params) & (ratio < params.abnormal_ratio)
    low = ratio < params.gone_ratio
    back = ~(ratio < 2 * params.gone_ratio)
    little = stats.held(ratio < params.watch_ratio, steps, params.watch_steps, release=~(ratio < 1.5 * params.watch_ratio))
    level, onset = stats.ladder(
        stats.either(little, stats.held(abnormal, steps, params.gone_steps)),
        stats.either(
            stats.held(low, steps, params.gone_steps, release=back),
            stats.Held(little.on & _worse(run, steps, params), little.since),
        ),
        stats.held(low, steps, 2 * params.gone_steps, release=back),
    )
    evidence = {"value": values, "baseline": normal, "ratio": ratio}
    return Track(steps, level, onset, ratio, np.full(len(steps), params.watch_ratio), evidence)


def _worse(run: Run, steps: stats.Steps, params: Params) -> stats.Flags:
    at, outcome = run.series("success_rate" if run.has("success_rate") else "reward_mean")
    return stats.as_of(stats.fallen(outcome, at, params.outcome_fall), at, steps, False)


def _abnormal_fall(values: stats.Floats, steps: stats.Steps, params: Params) -> stats.Flags:
    """Whether entropy halved within the window, and fell several times as steeply as in the time before it."""
    level = np.log(np.maximum(stats.trailing(values, steps, 5), np.finfo(float).tiny))
    window = params.fall_steps
    then = np.searchsorted(steps, steps - window, side="right") - 1
    before = np.maximum(np.searchsorted(steps, steps - 3 * window, side="left"), 0)
    known = (then > before) & (then >= 0)
    then = np.maximum(then, 0)
    fall = level[then] - level
    earlier = np.where(known, level[before] - level[then], np.nan)
    span, earlier_span = np.maximum(steps - steps[then], 1), np.maximum(steps[then] - steps[before], 1)
    steeper = fall / span > params.steeper_factor * np.maximum(earlier / earlier_span, 0)
    return np.asarray(known & (fall > np.log(2)) & steeper)


DETECTOR = Detector(
    card=Card(
        id="entropy-collapse",
        code="B1",
        title="the policy has stopped exploring",
        family="entropy",
        highest=Level.CRITICAL,
        needs=(("entropy",),),
        uses=("reward_mean", "eval_score"),
        gates=(*STANDARD_GATES, "not-improving", "not-risen"),
        message="entropy fell to {value:.3g}, {ratio:.1%} of its baseline {baseline:.3g}",
        remedies=(
            Remedy(
                "Clip higher, so that rare tokens can gain probability",
                {
                    "verl": "actor_rollout_ref.actor.clip_ratio_low=0.2 actor_rollout_ref.actor.clip_ratio_high=0.28",
                    "TRL": "epsilon=0.2 epsilon_high=0.28",
                    "OpenRLHF": "--eps_clip_low_high 0.2 0.28",
                },
                cost="too high a limit turns the fall into an eruption",
            ),
            Remedy(
                "A small, preferably adaptive entropy bonus; sample at temperature 1",
                {
                    "verl": "actor_rollout_ref.actor.entropy_coeff=0.001 actor_rollout_ref.rollout.temperature=1.0",
                    "TRL": "use_adaptive_entropy=True temperature=1.0",
                },
                cost="in multi-turn runs a fixed bonus fed template collapse",
            ),
            Remedy(
                "Fewer updates per batch",
                {"verl": "actor_rollout_ref.actor.ppo_epochs=1", "TRL": "num_iterations=1"},
            ),
        ),
        references=("arXiv 2505.22617", "arXiv 2503.14476", "arXiv 2505.22312"),
        units={"value": "nats/token", "baseline": "nats/token", "ratio": "of baseline"},
    ),
    params=Params(),
    detect=detect,
)
