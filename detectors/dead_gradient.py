"""No learning signal reaches the optimiser: the gradient is zero or next to it.

What it looks at
----------------
The gradient norm against the run's own first steps, and how often it is exactly zero.

Why it matters
--------------
Steps are paid for and nothing is learned. The cause is elsewhere: dead prompt groups, a policy that has become deterministic,
importance ratios masked to zero, a learning rate of zero, a solved task.

How it decides
--------------
* watch: more than 70 % of the last 20 steps (at least 5 points) have a gradient of exactly zero.
* warning: norm below 1 % of the baseline (median of the first 20 steps, zeros left out), or below a millionth, for 5 steps; or
  exactly zero on all of the last 20 steps.

A ``loss`` near zero is normal in on-policy GRPO and is not looked at.

Example
-------
>>> import numpy as np, pandas as pd
>>> from echotrap.detector import STANDARD_GATES, Level, episodes
>>> from echotrap.record import Run
>>> norm = np.concatenate((np.full(40, 0.5), np.full(20, 0.0005)))
>>> frame = pd.DataFrame({"grad_norm": norm}, index=pd.Index(range(1, 61), name="step"))
>>> [episode] = episodes(DETECTOR(Run("example", "-", "frame", frame)))
>>> episode.onset_step, episode.alarm_steps[Level.WARNING]
(41, 45)

False positives
---------------
Frozen phases, skipped steps, gradient accumulation that logs partial norms; small batches, where single steps without any
spread are ordinary (they stay a watch).

What to do
----------
Look at the groups without reward spread, at the entropy, at the importance ratio. If all are sound: the learning rate, which
parameters are trainable, whether the sampler gets the new weights.

References
----------
Failure catalogue C3; the model card of olanigan/nexus-coder-alpha (all groups dead, gradient 0 from the first log).
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

    floor_ratio: float = knob(0.01, least=1e-6, most=0.2, low=0.003, high=0.03, source="failure catalogue C3")
    floor_norm: float = knob(1e-6, least=0.0, most=1e-3, source="a run dead from its first step has no better baseline")
    zero_share: float = knob(0.7, least=0.1, most=1.0, low=0.8, high=0.5, source="sound runs with two groups a step reach 0.55")
    hold_steps: int = knob(5, least=1, most=100, low=10, high=3, source="failure catalogue C3")
    window_steps: int = knob(20, least=5, most=500, source="failure catalogue C3")
    baseline_steps: int = knob(20, least=3, most=500, source="failure catalogue 3.2")


def detect(run: Run, params: Params) -> Track | NotEvaluated:
    """Judge whether there is a gradient."""
    steps, values = run.series("grad_norm")
    alive = values > 0
    normal = stats.baseline(values[alive], steps[alive], window_steps=params.baseline_steps, arm_steps=run.arm_steps)
    normal = stats.as_of(normal, steps[alive], steps, np.nan)
    ratio = stats.ratio(values, normal)
    window = np.minimum(
        np.searchsorted(steps, steps - params.window_steps, side="right"), np.maximum(np.arange(len(steps)) - 4, 0)
    )
    seen = np.concatenate(([0], np.cumsum(~alive)))
    points = np.arange(1, len(steps) + 1) - window
    zero_share = (seen[1:] - seen[window]) / points
    weak = alive & ((ratio < params.floor_ratio) | (values < params.floor_norm))
    level, onset = stats.ladder(
        stats.held((zero_share > params.zero_share) & (points >= 5), steps, 1),
        stats.either(
            stats.held(
                weak, steps, params.hold_steps, release=(ratio > 2 * params.floor_ratio) & (values > 2 * params.floor_norm)
            ),
            stats.held((zero_share >= 1) & (points >= 5), steps, 1),
        ),
    )
    evidence = {"value": values, "baseline": normal, "ratio": ratio, "zero_share": zero_share}
    return Track(steps, level, onset, ratio, np.full(len(steps), params.floor_ratio), evidence)


DETECTOR = Detector(
    card=Card(
        id="dead-gradient",
        code="C3",
        title="no learning signal reaches the optimiser",
        family="gradient",
        highest=Level.WARNING,
        needs=(("grad_norm",),),
        uses=("zero_std_frac", "entropy", "is_ratio_mean", "learning_rate"),
        gates=(*STANDARD_GATES, "not-risen"),
        message="gradient norm {value:.3g}; exactly zero on {zero_share:.0%} of the last 20 steps",
        remedies=(
            Remedy(
                "If the groups are dead: sample until the batch has spread",
                {
                    "verl": "algorithm.filter_groups.enable=True",
                    "TRL": "filter the dataset to a pass rate of 0.1-0.9",
                    "OpenRLHF": "--dynamic_filtering",
                },
            ),
            Remedy(
                "If they are not: check learning rate, trainable parameters and masking of importance ratios",
                {"verl": "actor_rollout_ref.actor.optim.lr", "TRL": "learning_rate, vllm_importance_sampling_mode"},
            ),
        ),
        references=("failure catalogue C3",),
        units={"value": "L2", "baseline": "L2", "ratio": "of baseline", "zero_share": "0..1"},
    ),
    params=Params(),
    detect=detect,
)
