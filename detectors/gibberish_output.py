"""Rollouts turn into noise.

What it looks at
----------------
The share of rollouts that are gibberish (more than a fifth of the words belong to no language: no vowel in five letters or more,
letters and digits that change places, over 32 letters; or three or more foreign scripts in more than a tenth of the letters), and
the share of letters outside the script that the run began with.

Why it matters
--------------
Nonsense comes late in an entropy eruption: the policy has left the text that it was trained on. A mix of languages alone is
drift, and forbidding it costs accuracy.

How it decides
--------------
Warning: gibberish in more than 2 % of the rollouts, in at least two, and in more than three times the baseline, for 2 steps.
Watch: letters of other scripts above 10 % and 10 points above the baseline, for 3 steps. Needs 16 rollouts with text.

Example
-------
>>> import numpy as np, pandas as pd
>>> from echotrap.detector import Level, episodes
>>> from echotrap.record import Run
>>> columns = {"gibberish_frac": np.concatenate((np.zeros(30), np.full(5, 0.2))), "rollout_count": np.full(35, 64.0)}
>>> run = Run("example", "-", "frame", pd.DataFrame(columns, index=pd.Index(range(1, 36), name="step")))
>>> [episode] = episodes(DETECTOR(run))
>>> episode.onset_step, episode.alarm_steps[Level.WARNING]
(31, 32)

False positives
---------------
Multilingual tasks, hashes and encoded data, protein or chemical strings. Salad of real words is not seen: entropy sees that.

What to do
----------
Go back to a checkpoint from before the onset, check trainer against sampler log-probs, lower the learning rate, add or raise KL.

References
----------
BeastyZ/ConvSearch-R1#6; arXiv 2505.14815 (language mixing), 2506.05850 (cross-lingual drift), 2510.02387 (gibberish tokens).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from echotrap import stats
from echotrap.detector import Card, Detector, Level, NotEvaluated, Remedy, Track, knob
from echotrap.record import Run


@dataclass(frozen=True)
class Params:
    """Working point; each knob says where it comes from."""

    least_share: float = knob(0.02, least=0.0, most=0.5, low=0.05, high=0.02, source="failure catalogue B6")
    baseline_factor: float = knob(3.0, least=1.5, most=10.0, source="as for repetition, B4")
    gibberish_steps: int = knob(2, least=1, most=100, low=4, high=1, source="one odd batch is no drift")
    script_share: float = knob(0.10, least=0.01, most=0.9, source="failure catalogue B6")
    script_steps: int = knob(3, least=1, most=100, low=6, high=2, source="one odd batch is no drift")
    baseline_steps: int = knob(20, least=3, most=500, source="failure catalogue 3.2")
    least_rollouts: int = knob(16, least=1, most=1000, source="validation tables hold 20; below 16 one rollout is 6 %")


def detect(run: Run, params: Params) -> Track | NotEvaluated:
    """Judge how much of the text is noise or in another script."""
    steps, share = run.series("gibberish_frac")
    count = run.at("rollout_count", steps)
    judged = ~(count < params.least_rollouts)
    if not judged.any():
        return NotEvaluated(f"fewer than {params.least_rollouts} rollouts with text at every step")

    def normal(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return stats.baseline(values, steps, window_steps=params.baseline_steps, off_factor=None, arm_steps=run.arm_steps)

    usual, script = normal(share), run.at("off_script_frac", steps)
    limit = np.maximum(params.least_share, params.baseline_factor * usual)
    noise = judged & (share > limit) & ~(share * count < 2)
    mixed = np.zeros(len(steps), bool)
    if np.isfinite(script).all():
        mixed = judged & (script > params.script_share) & (script > normal(script) + params.script_share)
    level, onset = stats.ladder(stats.held(mixed, steps, params.script_steps), stats.held(noise, steps, params.gibberish_steps))
    return Track(steps, level, onset, share, limit, {"value": share, "baseline": usual, "off_script": script})


DETECTOR = Detector(
    card=Card(
        id="gibberish-output",
        code="B6",
        title="rollouts turn into noise",
        family="text",
        highest=Level.WARNING,
        tier="extension",
        needs=(("gibberish_frac",),),
        uses=("off_script_frac", "rollout_count"),
        message="{value:.0%} of the rollouts are gibberish (baseline {baseline:.0%}); "
        "{off_script:.0%} of the letters are of another script",
        remedies=(
            Remedy("Go back to a checkpoint from before the onset and compare trainer and sampler log-probs"),
            Remedy(
                "Lower the learning rate, raise the KL coefficient",
                {
                    "verl": "actor_rollout_ref.actor.optim.lr=5e-7 actor_rollout_ref.actor.kl_loss_coef=0.001",
                    "TRL": "learning_rate=5e-7 beta=0.001",
                    "OpenRLHF": "--actor_learning_rate 5e-7 --init_kl_coef 0.001",
                },
            ),
        ),
        references=("BeastyZ/ConvSearch-R1#6", "arXiv 2505.14815", "arXiv 2506.05850"),
        units={"value": "0..1", "baseline": "0..1", "off_script": "0..1"},
    ),
    params=Params(),
    detect=detect,
)
