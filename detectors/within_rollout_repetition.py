"""Rollouts repeat themselves.

What it looks at
----------------
The share of rollouts over a repetition limit (rep-3 above .20, rep-4 above .15, half of the text in a loop, or any limit of
Gopher's filter; fixed wording of the format does not count), the share of rollouts more than half of which is a loop, and the
mean rep-4. Only what the policy wrote is read.

Why it matters
--------------
A policy that loops has found text that is likely under itself whatever the task. Repetition often peaks while a collapse is
under way and falls again once the texts have become short.

How it decides
--------------
Each of the two shares against ``max(5 %, 3 x baseline)`` plus the sampling noise of such a share (1.64 standard errors, where
the number of rollouts is known); rep-4 against ``max(3 x baseline, baseline + .25)``, because code and tables repeat from the
start. The score is the largest of the three ratios. Watch when it is above 1 once, warning after 5 steps; also, whatever it was
at the start, when rep-4 and the share of text in loops are both above 0.6 (watch), for 10 steps (warning). Needs 16 rollouts
with text at the step.

Example
-------
>>> import numpy as np, pandas as pd
>>> from echotrap.detector import Level, episodes
>>> from echotrap.record import Run
>>> share = np.concatenate((np.full(30, 0.02), np.full(20, 0.3)))
>>> frame = pd.DataFrame({"repetitive_frac": share}, index=pd.Index(range(1, 51), name="step"))
>>> [episode] = episodes(DETECTOR(Run("example", "-", "frame", frame)))
>>> episode.onset_step, episode.alarm_steps[Level.WATCH], episode.alarm_steps[Level.WARNING]
(31, 31, 35)

False positives
---------------
Code, tables, JSON, enumerations, quoted evidence, agents that answer every turn in the same form. A run that repeats itself
from its first step has a high baseline and stays silent.

What to do
----------
Penalise repeated n-grams in the reward, stop looping generations early and mask them out, sample with min-p or top-p, and check
whether the reward pays for length.

References
----------
Rae et al., arXiv 2112.11446, table A1; Welleck et al., 1908.04319 (rep-n); Yeo et al., 2502.03373 (repetition penalty).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from echotrap import stats
from echotrap.detector import Card, Detector, Level, NotEvaluated, Remedy, Track, knob
from echotrap.record import Run


@dataclass(frozen=True)
class Params:
    """Working point; each knob says where it comes from."""

    least_share: float = knob(0.05, least=0.0, most=0.5, low=0.1, high=0.05, source="failure catalogue B4")
    baseline_factor: float = knob(3.0, least=1.5, most=10.0, low=4.0, high=2.5, source="failure catalogue B4")
    rep_4_rise: float = knob(
        0.25, least=0.05, most=0.8, low=0.35, high=0.2, source="code and mathematics move by .1 in healthy runs"
    )
    looping_rep_4: float = knob(0.6, least=0.1, most=1.0, source="code and templated calls stay below 0.6")
    looping_share: float = knob(0.6, least=0.1, most=1.0, source="a dump that begins after the collapse has no sound start")
    noise_sigma: float = knob(1.64, least=0.0, most=5.0, source="one-sided 95 % of a binomial share")
    window_steps: int = knob(5, least=1, most=100, low=10, high=3, source="failure catalogue B4")
    baseline_steps: int = knob(20, least=3, most=500, source="failure catalogue 3.2")
    least_rollouts: int = knob(16, least=1, most=1000, source="validation tables hold 20; below 16 one rollout is 6 %")


def detect(run: Run, params: Params) -> Track | NotEvaluated:
    """Judge how many rollouts repeat themselves, and how much."""
    main = "repetitive_frac" if run.has("repetitive_frac") else "rep_4"
    steps, _ = run.series(main)
    count = run.at("rollout_count", steps)
    judged = ~(count < params.least_rollouts)  # an unknown count is no reason to look away
    score = np.zeros(len(steps))
    evidence: dict[str, Any] = {}
    for name in ("repetitive_frac", "loop_frac", "rep_4"):
        values = run.at(name, steps)
        if not np.isfinite(values).all():
            continue
        normal = stats.baseline(values, steps, window_steps=params.baseline_steps, arm_steps=run.arm_steps)
        if name == "rep_4":
            limit = np.maximum(params.baseline_factor * normal, normal + params.rep_4_rise)
            ratio = values / limit
        else:
            limit = np.maximum(params.least_share, params.baseline_factor * normal)
            ratio = values / (
                limit + np.nan_to_num(params.noise_sigma * np.sqrt(limit * np.clip(1 - limit, 0, 1) / np.maximum(count, 1)))
            )
        score = np.fmax(score, ratio)
        evidence |= {name: values, f"{name}_baseline": normal}
    if not judged.any():
        return NotEvaluated(f"fewer than {params.least_rollouts} rollouts with text at every step")
    flag = judged & (score > 1)
    looping = judged & (run.at("rep_4", steps) >= params.looping_rep_4) & (run.at("loop_frac", steps) >= params.looping_share)
    level, onset = stats.ladder(
        stats.either(stats.held(flag, steps, 1), stats.held(looping, steps, 1)),
        stats.either(stats.held(flag, steps, params.window_steps), stats.held(looping, steps, 2 * params.window_steps)),
    )
    evidence |= {"times_limit": score, "what": main}
    return Track(steps, level, onset, score, np.ones(len(steps)), evidence)


DETECTOR = Detector(
    card=Card(
        id="within-rollout-repetition",
        code="B4",
        title="rollouts repeat themselves",
        family="text",
        highest=Level.WARNING,
        needs=(("repetitive_frac", "rep_4"),),
        uses=("loop_frac", "rep_4", "rollout_count"),
        message="repetition inside rollouts is {times_limit:.1f} times its limit",
        remedies=(
            Remedy(
                "Penalise repeated n-grams in the reward, and look at what the length reward pays for",
                {"TRL": "reward_funcs=[..., get_repetition_penalty_reward(ngram_size=3, max_penalty=-1.0)]"},
                cost="may also punish tables and code",
            ),
            Remedy(
                "Sample with top-p or min-p, and mask truncated loops out of the loss",
                {
                    "verl": "actor_rollout_ref.rollout.top_p=0.95",
                    "TRL": "top_p=0.95 mask_truncated_completions=True",
                    "OpenRLHF": "--top_p 0.95",
                },
                cost="sampling that the update does not know of makes it off-policy",
            ),
        ),
        references=("arXiv 2112.11446 table A1", "arXiv 1908.04319", "arXiv 2502.03373"),
        units={"repetitive_frac": "0..1", "loop_frac": "0..1", "rep_4": "0..1"},
    ),
    params=Params(),
    detect=detect,
)
