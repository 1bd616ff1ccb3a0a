"""Calls and answers can no longer be parsed.

What it looks at
----------------
The share of turns with a valid call or answer: as logged (RAGEN), or counted from the rollouts (unclosed tags, JSON that is none,
turns without any act).

Why it matters
--------------
A few control tokens hold the structure of an agent's output. When their probabilities are pushed away the format breaks at once
though the ability is still there, and every reward that needs the format is gone.

How it decides
--------------
Against the best 20-step median so far, and only where that is at least .8. Watch: 20 points below it, and 4 standard
deviations of its own step-to-step noise. Warning: that for 3 steps, or below .8 for 5 steps where it was at least .9. Critical:
that far below it for 5 steps. Needs 16 rollouts where their number is known.

Example
-------
>>> import numpy as np, pandas as pd
>>> from echotrap.detector import Level, episodes
>>> from echotrap.record import Run
>>> valid = np.concatenate((np.full(40, 0.97), np.full(10, 0.4)))
>>> run = Run("example", "-", "frame", pd.DataFrame({"valid_action_frac": valid}, index=pd.Index(range(1, 51), name="step")))
>>> [episode] = episodes(DETECTOR(run))
>>> episode.onset_step, episode.alarm_steps[Level.WARNING], episode.alarm_steps[Level.CRITICAL]
(41, 43, 45)

False positives
---------------
A new parser or prompt template; a curriculum step to tools the policy has not seen.

What to do
----------
Go back to the last good checkpoint; interleave supervised steps on well-formed calls; decode with constraints; look for a
length limit that cuts calls off.

References
----------
arXiv 2606.26027 (format collapse of tool calls; BFCL-V3 3.5 with RL alone, 17 with interleaved supervision).
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

    drop: float = knob(0.2, least=0.05, most=0.9, low=0.3, high=0.15, source="failure catalogue E6")
    noise_sigma: float = knob(4.0, least=0.0, most=20.0, low=5.0, high=3.0, source="a sound run with 20 rollouts moves by .2")
    floor: float = knob(0.8, least=0.1, most=1.0, low=0.7, source="failure catalogue E6")
    was_normal: float = knob(0.9, least=0.1, most=1.0, source="failure catalogue E6")
    was_usable: float = knob(0.8, least=0.1, most=1.0, source="below it the share moves by .1 from step to step")
    window_steps: int = knob(5, least=1, most=100, low=10, high=3, source="failure catalogue E6")
    median_steps: int = knob(20, least=3, most=500, source="failure catalogue E6")
    least_rollouts: int = knob(16, least=1, most=1000, source="validation tables hold 20; below 16 one rollout is 6 %")


def detect(run: Run, params: Params) -> Track | NotEvaluated:
    """Judge whether the output can still be parsed."""
    steps, valid = run.series("valid_action_frac")
    empty = np.nan_to_num(run.at("silent_frac", steps))  # an empty rollout is a broken one, and no lack of rollouts
    judged = ~(run.at("rollout_count", steps) < params.least_rollouts * (1 - empty))
    if not judged.any():
        return NotEvaluated(f"fewer than {params.least_rollouts} rollouts at every step")
    usual = stats.rolling_median_steps(valid, steps, params.median_steps)
    normal = stats.running_max(np.concatenate(([np.nan], usual[:-1])))  # the best it was before this step
    noise = np.nan_to_num(np.concatenate(([np.nan], stats.noise(valid, how="mean")[:-1])))  # before this step
    limit = normal - np.maximum(params.drop, params.noise_sigma * noise)
    fell = judged & (normal >= params.was_usable) & (valid <= limit)
    low = judged & (normal >= params.was_normal) & (valid < params.floor)
    window = params.window_steps
    level, onset = stats.ladder(
        stats.held(fell, steps, 1),
        stats.either(stats.held(fell, steps, (window + 1) // 2), stats.held(low, steps, window)),
        stats.held(fell, steps, window),
    )
    return Track(steps, level, onset, valid, limit, {"value": valid, "baseline": normal})


DETECTOR = Detector(
    card=Card(
        id="tool-format-collapse",
        code="E6",
        title="calls and answers can no longer be parsed",
        family="agent",
        highest=Level.CRITICAL,
        tier="extension",
        needs=(("valid_action_frac",),),
        uses=("rollout_count", "silent_frac"),
        message="{value:.0%} of the turns hold a valid call or answer (it was {baseline:.0%})",
        remedies=(
            Remedy("Go back to the last checkpoint with valid output and interleave supervised steps on well-formed calls"),
            Remedy(
                "Check that calls are not cut off, and decode them with constraints",
                {"verl": "data.max_response_length=<longer>", "TRL": "max_completion_length=<longer>"},
                cost="constraints hide the symptom from the reward",
            ),
        ),
        references=("arXiv 2606.26027",),
        units={"value": "0..1", "baseline": "0..1"},
    ),
    params=Params(),
    detect=detect,
)
