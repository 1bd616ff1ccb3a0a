"""Rollouts of different prompts, or all rollouts of one prompt, say the same thing.

What it looks at
----------------
The share of a rollout's 4-grams that rollouts of other prompts also have (reasoning only; wording that more than 90 % of the
first step's rollouts have, and wording of the prompts, does not count), the share of rollouts that begin alike, and the share
that are copies of another rollout of their group.

Why it matters
--------------
This is the echo itself: the policy tells one story whatever it is asked. On the texts that RAGEN prints the share goes from
0.00 at step 0 to 0.55 at step 150, while distinct-1 barely moves.

How it decides
--------------
Watch, for 3 steps: cross share above ``max(.30, min(3 x baseline, halfway from baseline to 1), baseline + .15)``; or more than
half of the rollouts begin with the same 20 words where fewer than a fifth did; or more than half are copies, 30 points more
than at the start. Warning: a watch while the rewards lose their spread too (in-group std or R_w below half of its baseline, or
dead groups above a half and 30 points more than at the start).

Example
-------
>>> import numpy as np, pandas as pd
>>> from echotrap.detector import Level, episodes
>>> from echotrap.record import Run
>>> columns = {"cross_rollout_share": np.concatenate((np.full(30, 0.03), np.linspace(0.03, 0.6, 20), np.full(20, 0.6)))}
>>> columns["zero_std_frac"] = np.concatenate((np.full(50, 0.1), np.full(20, 0.8)))
>>> frame = pd.DataFrame(columns, index=pd.Index(range(1, 71), name="step"))
>>> [episode] = episodes(DETECTOR(Run("example", "-", "frame", frame)))
>>> episode.onset_step, episode.alarm_steps[Level.WATCH], episode.alarm_steps[Level.WARNING]
(40, 42, 51)

False positives
---------------
A format that is enforced later than the first step; few rollouts; tasks with one prompt or with one short right answer, where
solved rollouts must agree.

What to do
----------
As for the Echo Trap: keep the prompts with the most in-group spread, clip higher, drop the KL term; vary prompts and initial
states; reward diversity.

References
----------
RAGEN, arXiv 2504.20073, table 1; Shaib et al., 2403.00553 (compression, self-repetition); Lee et al., 2107.06499
(near-duplicates).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from echotrap import stats
from echotrap.detector import Card, Detector, Level, NotEvaluated, Remedy, Track, knob
from echotrap.record import Run


@dataclass(frozen=True)
class Params:
    """Working point; each knob says where it comes from."""

    least_share: float = knob(0.30, least=0.05, most=0.9, low=0.4, high=0.2, source="failure catalogue B5")
    baseline_factor: float = knob(3.0, least=1.5, most=10.0, source="failure catalogue B5")
    least_rise: float = knob(0.15, least=0.0, most=0.5, low=0.2, high=0.1, source="sampling noise of 16 rollouts")
    opening_share: float = knob(0.5, least=0.1, most=1.0, low=0.7, source="failure catalogue B5")
    opening_baseline: float = knob(0.2, least=0.0, most=0.5, source="failure catalogue B5")
    copies_share: float = knob(0.5, least=0.1, most=1.0, low=0.7, source="half of the group gives no new information")
    copies_rise: float = knob(0.3, least=0.0, most=0.9, source="failure catalogue A3, the same margin")
    window_steps: int = knob(3, least=1, most=100, low=6, high=2, source="failure catalogue B5")
    baseline_steps: int = knob(20, least=3, most=500, source="failure catalogue 3.2")
    least_rollouts: int = knob(16, least=1, most=1000, source="validation tables hold 20; below 16 one rollout is 6 %")


def detect(run: Run, params: Params) -> Track | NotEvaluated:
    """Judge how much rollouts share with one another."""
    steps, share = run.series("cross_rollout_share")
    judged = ~(run.at("rollout_count", steps) < params.least_rollouts)
    if not judged.any():
        return NotEvaluated(f"fewer than {params.least_rollouts} rollouts with text at every step")

    def normal(values: NDArray[np.float64]) -> NDArray[np.float64]:
        out, seen = np.full(len(steps), np.nan), np.isfinite(values)  # NaN, which compares false, where a signal is absent
        out[seen] = stats.baseline(
            values[seen], steps[seen], window_steps=params.baseline_steps, off_factor=None, arm_steps=run.arm_steps
        )
        return out

    usual = normal(share)
    limit = np.maximum(params.least_share, np.minimum(params.baseline_factor * usual, (1 + usual) / 2))
    limit = np.maximum(limit, usual + params.least_rise)
    flag = share > limit
    opening, copies = run.at("opening_share", steps), run.at("copies_frac", steps)
    flag |= (opening > params.opening_share) & (normal(opening) < params.opening_baseline)
    flag |= copies > np.maximum(params.copies_share, normal(copies) + params.copies_rise)
    flag &= judged
    echo = stats.held(flag, steps, params.window_steps)
    level, onset = stats.ladder(echo, stats.Held(echo.on & _spread_gone(run, steps, normal), echo.since))
    said = [f"; most common opening {part:.0%}" if np.isfinite(part) else "" for part in opening.tolist()]
    evidence = {
        "opening": np.array(said, dtype=np.str_),
        "value": share,
        "baseline": usual,
        "opening_share": opening,
        "copies_frac": copies,
    }
    return Track(steps, level, onset, share, limit, evidence)


def _spread_gone(
    run: Run, steps: NDArray[np.int64], normal: Callable[[NDArray[np.float64]], NDArray[np.float64]]
) -> NDArray[np.bool_]:
    """Whether the rewards inside prompt groups have lost their spread, as A2 and A3 see it."""
    gone = np.zeros(len(steps), bool)
    for name in ("rw_ratio", "group_reward_std"):
        values = run.at(name, steps)
        gone |= values < 0.5 * normal(values)
    dead = run.at("zero_std_frac", steps)
    return gone | ((dead >= 0.5) & (dead >= normal(dead) + 0.3))


DETECTOR = Detector(
    card=Card(
        id="cross-rollout-repetition",
        code="B5",
        title="rollouts of different prompts say the same thing",
        family="text",
        highest=Level.WARNING,
        needs=(("cross_rollout_share",),),
        uses=("opening_share", "copies_frac", "rollout_count", "rw_ratio", "group_reward_std", "zero_std_frac"),
        message="{value:.0%} of a rollout's 4-grams are found under other prompts (baseline {baseline:.0%}){opening}",
        remedies=(
            Remedy(
                "Train on the prompts with the most in-group reward spread (top 25-50 %)",
                {
                    "RAGEN": "actor_rollout_ref.rollout.rollout_filter_value=0.9 rollout_filter_type=std",
                    "verl": "algorithm.filter_groups.enable=True algorithm.filter_groups.metric=acc",
                    "OpenRLHF": "--dynamic_filtering --dynamic_filtering_reward_range 0.01 0.99",
                },
                cost="fewer groups per step",
            ),
            Remedy(
                "Go back to a checkpoint from before the onset; vary prompts and initial states; clip higher",
                {
                    "verl": "actor_rollout_ref.actor.clip_ratio_high=0.28",
                    "TRL": "epsilon_high=0.28",
                    "OpenRLHF": "--eps_clip_low_high 0.2 0.28",
                },
                cost="clipping higher alone delays the collapse by 20-100 steps",
            ),
        ),
        references=("arXiv 2504.20073 table 1", "arXiv 2403.00553", "arXiv 2107.06499"),
        units={"value": "0..1", "baseline": "0..1", "opening_share": "0..1", "copies_frac": "0..1"},
    ),
    params=Params(),
    detect=detect,
)
