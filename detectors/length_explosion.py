"""Answers grow fast without growing better.

What it looks at
----------------
The mean response length against what it was 50 steps ago, with truncation and entropy as second witnesses.

Why it matters
--------------
Length that runs away is a length hack, a loop, or the outside of an entropy eruption; it ends at the limit, where the reward
starves.

How it decides
--------------
``growth = length / lowest length of the last 50 steps``, both as 5-step medians; within the first 50 steps that is the early
level.

* watch: ``growth > 2`` for 5 steps.
* warning: watch, and ``growth > 4``, or truncated responses above 0.1 and twice their lowest share of those steps, or entropy
  above 1.5 times its lowest level of them, for 5 steps. The gate *not-improving* holds it back.

Example
-------
>>> import numpy as np, pandas as pd
>>> from echotrap.detector import Level, episodes
>>> from echotrap.record import Run
>>> length = np.concatenate((np.full(40, 500.0), np.linspace(500, 2000, 30), np.full(10, 2000.0)))
>>> cut = np.concatenate((np.zeros(40), np.linspace(0, 0.5, 30), np.full(10, 0.5)))
>>> frame = pd.DataFrame({"response_length": length, "truncated_frac": cut}, index=pd.Index(range(1, 81), name="step"))
>>> [episode] = episodes(DETECTOR(Run("example", "-", "frame", frame)))
>>> episode.onset_step, episode.alarm_steps[Level.WATCH], episode.alarm_steps[Level.WARNING]
(53, 57, 57)

False positives
---------------
Intended growth of long reasoning (the reward rises with it); more turns; a new limit; the first steps after a curriculum change.

What to do
----------
Shape the reward before the limit, normalise the loss per token (Dr. GRPO), look at what the length reward pays for, read a few
rollouts for loops.

References
----------
Dr. GRPO, arXiv 2503.20783; DAPO, arXiv 2503.14476; verl#1066; StepSearch#1.
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

    growth_ratio: float = knob(2.0, least=1.2, most=20.0, low=3.0, high=1.7, source="failure catalogue D3")
    runaway_ratio: float = knob(4.0, least=2.0, most=100.0, low=6.0, source="distillation run: 858 to 4,096 tokens in 17 steps")
    truncated_share: float = knob(0.1, least=0.01, most=0.9, source="failure catalogue D3")
    entropy_ratio: float = knob(1.5, least=1.1, most=10.0, source="failure catalogue B2")
    window_steps: int = knob(50, least=10, most=1000, source="failure catalogue D3")
    hold_steps: int = knob(5, least=1, most=100, low=10, high=3, source="failure catalogue 3.2")
    smooth_steps: int = knob(5, least=1, most=50, source="small batches")


def detect(run: Run, params: Params) -> Track | NotEvaluated:
    """Judge how fast the answers grow."""
    steps, values = run.series("response_length")
    if len(steps) < 3:
        return NotEvaluated("fewer than 3 lengths")
    growth, length, lowest = _growth(values, steps, params)
    long = growth > params.growth_ratio
    shorter = ~(growth > 1 + (params.growth_ratio - 1) / 2)
    cut = run.at("truncated_frac", steps)
    cut_steps, cut_values = run.series("truncated_frac")
    cut_before = stats.as_of(stats.trailing(cut_values, cut_steps, params.window_steps, "min"), cut_steps, steps, np.nan)
    entropy_steps, entropy = run.series("entropy")
    rise = stats.as_of(_growth(entropy, entropy_steps, params)[0], entropy_steps, steps, np.nan)
    witness = (
        (growth > params.runaway_ratio)
        | ((cut > params.truncated_share) & (cut > 2 * cut_before))
        | (rise > params.entropy_ratio)
    )
    level, onset = stats.ladder(
        stats.held(long, steps, params.hold_steps, release=shorter),
        stats.held(long & witness, steps, params.hold_steps, release=shorter),
    )
    evidence = {"value": length, "before": lowest, "growth": growth, "truncated_frac": cut}
    return Track(steps, level, onset, growth, np.full(len(steps), params.growth_ratio), evidence)


def _growth(values: stats.Floats, steps: stats.Steps, params: Params) -> tuple[stats.Floats, stats.Floats, stats.Floats]:
    """Level over its lowest of the window; NaN until three points were seen."""
    if not len(values):
        return values, values, values
    level = stats.trailing(values, steps, params.smooth_steps)
    settled = np.where(np.arange(len(level)) >= 2, level, np.nan)
    lowest = stats.trailing(settled, steps, params.window_steps, "min")
    return stats.ratio(level, lowest), level, lowest


DETECTOR = Detector(
    card=Card(
        id="length-explosion",
        code="D3",
        title="answers grow fast without growing better",
        family="length",
        highest=Level.WARNING,
        needs=(("response_length",),),
        uses=("truncated_frac", "entropy", "reward_mean"),
        gates=(*STANDARD_GATES, "not-improving"),
        tell="alarm",
        message="responses grew to {value:.0f} tokens, {growth:.1f} times the {before:.0f} of up to 50 steps before",
        remedies=(
            Remedy(
                "Shape the reward before the limit",
                {
                    "verl": "reward_model.overlong_buffer.enable=True reward_model.overlong_buffer.len=4096",
                    "TRL": "reward_funcs=[..., get_soft_overlong_punishment(...)]",
                },
            ),
            Remedy(
                "Take the length out of the loss",
                {
                    "verl": "actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-sum-norm",
                    "TRL": "loss_type='dr_grpo'",
                },
            ),
        ),
        references=("arXiv 2503.20783", "arXiv 2503.14476", "verl#1066"),
        units={"value": "tokens", "before": "tokens", "growth": "times", "truncated_frac": "0..1"},
    ),
    params=Params(),
    detect=detect,
)
