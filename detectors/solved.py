"""The task is solved: convergence, not collapse.

What it looks at
----------------
The success rate, the share of groups that are all right, or a reward whose ceiling is known; and the held-out score.

Why it matters
--------------
A solved task takes away reward spread, entropy and gradient exactly as a collapse does. What tells them apart is that the outcome
is at its ceiling and stays there.

How it decides
--------------
* watch: success rate at least 0.95, or 0.9 of the groups all right, or the reward in the top 5 % of its known range, on 3 points
  in a row; and the last held-out score, if there is one, at least 0.9 of its best.

The condition itself is a gate for other detectors. A reward whose ceiling nobody named is not called solved: a plateau may be a
trap.

Example
-------
>>> import numpy as np, pandas as pd
>>> from echotrap.detector import episodes
>>> from echotrap.record import Run
>>> success = np.minimum(0.3 + 0.02 * np.arange(60), 0.99)
>>> frame = pd.DataFrame({"success_rate": success}, index=pd.Index(range(1, 61), name="step"))
>>> [episode] = episodes(DETECTOR(Run("example", "-", "frame", frame)))
>>> episode.onset_step, episode.level.name
(34, 'WATCH')

False positives
---------------
A grader that can be fooled: read the rollouts, look at the held-out score.

What to do
----------
Stop, or give it harder prompts.

References
----------
Failure catalogue F9 and 8.2.
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

    success: float = knob(0.95, least=0.5, most=1.0, source="failure catalogue F9")
    all_right: float = knob(0.9, least=0.5, most=1.0, source="failure catalogue F9")
    held_out_ratio: float = knob(0.9, least=0.5, most=1.0, source="failure catalogue F9")
    points: int = knob(3, least=1, most=50, source="failure catalogue F9")


def detect(run: Run, params: Params) -> Track | NotEvaluated:
    """Judge whether the outcome is at its ceiling."""
    name = next(name for name in ("success_rate", "zero_std_all_pass_frac", "reward_mean") if run.has(name))
    steps, values = run.series(name)
    limit = params.all_right if name == "zero_std_all_pass_frac" else params.success
    share = values
    if name == "reward_mean":
        low, high = run.reward_range(steps, values)
        share = stats.ratio(values - low, high - low)
    held_out_steps, held_out = run.series("eval_score")
    good = stats.as_of(held_out >= params.held_out_ratio * stats.running_max(held_out), held_out_steps, steps, True)
    level, onset = stats.ladder(stats.held_points((share >= limit) & good, steps, params.points))
    return Track(steps, level, onset, share, np.full(len(steps), limit), {"signal": name, "value": values, "share": share})


DETECTOR = Detector(
    card=Card(
        id="solved",
        code="F9",
        title="the task is solved",
        family="event",
        tier="run-level",
        highest=Level.WATCH,
        needs=(("success_rate", "zero_std_all_pass_frac", "reward_mean"),),
        uses=("eval_score", "reward_min", "reward_max"),
        gates=("min-data", "declared-event"),
        message="{signal} {value:.3g}, {share:.0%} of what can be reached",
        remedies=(
            Remedy(
                "Stop, or train on harder prompts",
                {"verl": "data.train_files=... (harder)", "TRL": "train_dataset=... (harder)"},
            ),
        ),
        references=("failure catalogue F9",),
        units={"share": "0..1"},
    ),
    params=Params(),
    detect=detect,
)
