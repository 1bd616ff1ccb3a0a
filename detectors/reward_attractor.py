"""One safe, mediocre reward holds the policy.

What it looks at
----------------
The mean reward and whether groups have any spread left, above the lowest and below the highest reward seen.

Why it matters
--------------
A reward function with a cheap trivial optimum (a penalty that multiplies a positive reward, a constant for the right format)
draws the policy there, and nothing leads away: all rollouts get the same.

How it decides
--------------
Reward as 10-step mean.

* watch: it has moved by less than 2 % of the range seen so far within 10 steps and 5 points, at least 70 % of the groups have no
  spread, and it lies in the inner part of that range (5-80 %), for 5 steps.
* warning: the same for 20 steps with 90 % of the groups dead.

Example
-------
>>> import numpy as np, pandas as pd
>>> from echotrap.detector import episodes
>>> from echotrap.record import Run
>>> reward = np.concatenate((0.5 + 0.45 * np.sin(np.arange(40.0)), np.full(30, 0.3)))
>>> dead = np.concatenate((np.full(40, 0.1), np.full(30, 0.95)))
>>> frame = pd.DataFrame({"reward_mean": reward, "zero_std_frac": dead}, index=pd.Index(range(1, 71), name="step"))
>>> [episode] = episodes(DETECTOR(Run("example", "-", "frame", frame)))
>>> episode.onset_step, dict(episode.alarm_steps)
(50, {<Level.WATCH: 1>: 54})

False positives
---------------
Binary rewards near zero; a solved task whose ceiling was seen once by luck.

What to do
----------
Compute what trivial policies would earn, before training. Make penalties subtract rather than multiply.

References
----------
kirang89/ocamler-grpo, ``doc/mode-collapse-epoch-0.04-analysis.md`` (83.9 % of 2,952 completions scored exactly 0.048).
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

    still_ratio: float = knob(0.02, least=0.0, most=0.2, source="means of a handful of values move by more")
    watch_share: float = knob(0.7, least=0.3, most=1.0, low=0.8, source="failure catalogue A7")
    warning_share: float = knob(0.9, least=0.5, most=1.0, source="failure catalogue A7")
    inner_low: float = knob(0.05, least=0.0, most=0.5, source="below it: format floor")
    inner_high: float = knob(0.8, least=0.5, most=1.0, source="above it: solved")
    watch_steps: int = knob(5, least=1, most=100, low=10, source="failure catalogue A7")
    warning_steps: int = knob(20, least=2, most=500, source="failure catalogue A7")


def detect(run: Run, params: Params) -> Track | NotEvaluated:
    """Judge whether the reward is stuck in the middle."""
    steps, reward = run.series("reward_mean")
    lowest, highest = stats.running_min(reward), stats.running_max(reward)
    wide = highest - lowest
    recent = stats.trailing(reward, steps, 10, "max") - stats.trailing(reward, steps, 10, "min")
    place = stats.ratio(reward - lowest, wide)
    steady = np.abs(np.diff(reward, prepend=reward[:1])) <= params.still_ratio * wide
    still = (
        stats.held_points(steady, steps, 5).on
        & (recent <= params.still_ratio * wide)
        & (place >= params.inner_low)
        & (place <= params.inner_high)
    )
    at, values = run.series("zero_std_frac")
    dead = stats.as_of(stats.trailing(values, at, 10, "mean"), at, steps, np.nan)
    level, onset = stats.ladder(
        stats.held(still & (dead >= params.watch_share), steps, params.watch_steps),
        stats.held(still & (dead >= params.warning_share), steps, params.warning_steps),
    )
    return Track(steps, level, onset, reward, highest, {"value": reward, "best": highest, "dead": dead})


DETECTOR = Detector(
    card=Card(
        id="reward-attractor",
        code="A7",
        title="one mediocre reward holds the policy",
        family="reward",
        tier="extension",
        highest=Level.WATCH,
        needs=(("reward_mean",), ("zero_std_frac",)),
        gates=(*STANDARD_GATES, "not-improving"),
        message="reward stands at {value:.3g} (best {best:.3g}) with {dead:.0%} of the groups without spread",
        remedies=(
            Remedy(
                "Change the reward: penalties that subtract, no constant for the format alone",
                {"verl": "custom_reward_function.path=...", "TRL": "reward_funcs=[...] reward_weights=[...]"},
            ),
        ),
        references=("kirang89/ocamler-grpo",),
        units={"value": "reward", "best": "reward", "dead": "0..1"},
    ),
    params=Params(),
    detect=detect,
)
