"""Answers shrink to a fraction of what they were.

What it looks at
----------------
The mean length of the reasoning, else of the response, against the run's own first steps; the share of turns with a non-empty
reasoning block.

Why it matters
--------------
Reasoning decays under a reward that only sees the outcome; in the extreme the policy answers with one token. Shorter alone is no
failure: sound RAGEN runs lose 70 % of their tokens.

How it decides
--------------
``ratio = length / baseline``, both as 5-step medians.

* watch: ``ratio < 0.3`` for 10 steps; or non-empty reasoning below 0.9 for 10 steps after a baseline above it.
* warning: ``ratio < 0.1`` for 5 steps. The gate *not-improving* holds it back.
* critical: ``ratio < 0.1`` for 10 steps; by policy it needs a second family.

Example
-------
>>> import numpy as np, pandas as pd
>>> from echotrap.detector import Level, episodes
>>> from echotrap.record import Run
>>> length = np.concatenate((np.full(30, 800.0), 800 * 0.8 ** np.arange(40)))
>>> frame = pd.DataFrame({"response_length": length}, index=pd.Index(range(1, 71), name="step"))
>>> [episode] = episodes(DETECTOR(Run("example", "-", "frame", frame)))
>>> episode.onset_step, [step for _, step in sorted(episode.alarm_steps.items())]
(39, [48, 48, 53])

False positives
---------------
Genuine efficiency: success up, tokens down. A stop string that was just added; a reasoning budget.

What to do
----------
Reward valid reasoning, set a minimum length, check that the stop sequence is not rewarded by itself.

References
----------
RAGEN, arXiv 2504.20073, finding 6 and figure 11; VC-PPO, arXiv 2503.01491 (value bias makes outputs collapse).
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

    watch_ratio: float = knob(0.3, least=0.05, most=0.8, low=0.2, high=0.4, source="failure catalogue D2")
    gone_ratio: float = knob(0.1, least=0.005, most=0.3, low=0.05, source="failure catalogue 3.4")
    valid_share: float = knob(0.9, least=0.1, most=1.0, low=0.8, source="failure catalogue D2")
    watch_steps: int = knob(10, least=1, most=200, high=5, source="failure catalogue D2")
    gone_steps: int = knob(5, least=1, most=100, low=10, high=3, source="runs that die within a dozen steps")
    smooth_steps: int = knob(5, least=1, most=50, source="small batches")
    baseline_steps: int = knob(20, least=3, most=500, source="failure catalogue 3.2")


LENGTHS = ("thinking_length", "response_length")


def detect(run: Run, params: Params) -> Track | NotEvaluated:
    """Judge how much of their length the answers have kept."""
    name = next(name for name in LENGTHS if run.has(name))
    steps, values = run.series(name)
    length = stats.trailing(values, steps, params.smooth_steps)
    normal = stats.baseline(values, steps, window_steps=params.baseline_steps, arm_steps=run.arm_steps)
    ratio = stats.ratio(length, normal)
    gone = ratio < params.gone_ratio
    back = ~(ratio < 1.5 * params.gone_ratio)
    short = stats.held(ratio < params.watch_ratio, steps, params.watch_steps, release=~(ratio < 1.3 * params.watch_ratio))
    unreasoned, valid, usual = _no_reasoning(run, steps, params)
    level, onset = stats.ladder(
        stats.either(short, unreasoned),
        stats.held(gone, steps, params.gone_steps, release=back),
        stats.held(gone, steps, 2 * params.gone_steps, release=back),
    )
    told = unreasoned.on & ~short.on & ~gone  # the length is not what is wrong
    evidence = {
        "signal": name,
        "what": np.where(told, "share of rollouts with valid reasoning", f"{name} in tokens"),
        "value": np.where(told, valid, length),
        "baseline": np.where(told, usual, normal),
        "ratio": np.where(told, stats.ratio(valid, usual), ratio),
    }
    return Track(steps, level, onset, ratio, np.full(len(steps), params.watch_ratio), evidence)


def _no_reasoning(run: Run, steps: stats.Steps, params: Params) -> tuple[stats.Held, stats.Floats, stats.Floats]:
    """Whether valid reasoning got lost; its share and what that usually was, at the steps of the length."""
    at, valid = run.series("valid_thinking_frac")
    usual = stats.baseline(valid, at, off_factor=None, off_by=0.3, arm_steps=run.arm_steps)
    flag = stats.held((usual >= params.valid_share) & (valid < params.valid_share), at, params.watch_steps)
    nan = float("nan")
    return stats.spread(flag, at, steps), stats.as_of(valid, at, steps, nan), stats.as_of(usual, at, steps, nan)


DETECTOR = Detector(
    card=Card(
        id="length-collapse",
        code="D2",
        title="answers shrink to a fraction",
        family="length",
        highest=Level.CRITICAL,
        needs=(LENGTHS,),
        uses=("valid_thinking_frac", "success_rate", "eval_score"),
        gates=(*STANDARD_GATES, "not-improving"),
        message="{what} fell to {value:.3g}, {ratio:.0%} of its baseline {baseline:.3g}",
        remedies=(
            Remedy(
                "Reward valid reasoning, or set a minimum length",
                {"verl": "custom_reward_function.path=...", "TRL": "reward_funcs=[..., length_floor]"},
                cost="a length floor invites padding",
            ),
            Remedy("Check stop sequences and the chat template: is ending at once rewarded?"),
        ),
        references=("arXiv 2504.20073 finding 6", "arXiv 2503.01491"),
        units={"ratio": "of baseline"},
    ),
    params=Params(),
    detect=detect,
)
