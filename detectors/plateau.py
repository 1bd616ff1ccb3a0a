"""Learning has stopped while exploration is alive.

What it looks at
----------------
The held-out score against its best, with reward spread and entropy as witnesses that the policy is still moving.

Why it matters
--------------
A plateau is not an Echo Trap. It is counter-evidence: nothing has died, there is just nothing more to be had.

How it decides
--------------
* watch: no new best in 5 evaluations, while in-group reward spread and entropy, where logged, are above 0.7 and 0.3 of their
  baselines.

Example
-------
>>> import numpy as np, pandas as pd
>>> from echotrap.detector import episodes
>>> from echotrap.record import Run
>>> score = np.array([0.1, 0.3, 0.4, 0.45, 0.44, 0.45, 0.43, 0.44, 0.45, 0.44])
>>> frame = pd.DataFrame({"eval_score": score}, index=pd.Index(range(20, 220, 20), name="step"))
>>> [episode] = episodes(DETECTOR(Run("example", "-", "frame", frame)))
>>> episode.onset_step, dict(episode.alarm_steps)
(100, {<Level.WATCH: 1>: 180})

False positives
---------------
A noisy evaluation whose best was luck; a solved task.

What to do
----------
Harder data, another learning rate, more context; or stop.

References
----------
Failure catalogue F7.
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

    evaluations: int = knob(5, least=2, most=100, low=10, source="failure catalogue F7")
    spread_ratio: float = knob(0.7, least=0.1, most=1.0, source="failure catalogue F7")
    entropy_ratio: float = knob(0.3, least=0.05, most=1.0, source="sound runs fall to 0.29")


def detect(run: Run, params: Params) -> Track | NotEvaluated:
    """Judge whether the held-out score still rises."""
    steps, values = run.series("eval_score")
    if len(steps) <= params.evaluations:
        return NotEvaluated(f"fewer than {params.evaluations + 1} evaluations")
    best = stats.running_max(values)
    stuck = np.concatenate(([False], values[1:] <= best[:-1]))
    alive = np.ones(len(steps), bool)
    for name, ratio in (
        ("rw_ratio", params.spread_ratio),
        ("group_reward_std", params.spread_ratio),
        ("entropy", params.entropy_ratio),
    ):
        at, signal = run.series(name)
        normal = stats.baseline(signal, at, arm_steps=run.arm_steps)
        low = stats.trailing(signal, at, 20) < ratio * normal
        alive &= ~stats.as_of(low, at, steps, False)
    level, onset = stats.ladder(stats.held_points(stuck & alive, steps, params.evaluations))
    return Track(steps, level, onset, values, best, {"value": values, "best": best})


DETECTOR = Detector(
    card=Card(
        id="plateau",
        code="F7",
        title="learning has stopped, exploration has not",
        family="event",
        tier="run-level",
        highest=Level.WATCH,
        needs=(("eval_score",),),
        uses=("rw_ratio", "group_reward_std", "entropy"),
        message="held-out score {value:.3g}, no new best since {best:.3g}",
        remedies=(
            Remedy(
                "Harder data, another learning rate, or stop",
                {"verl": "actor_rollout_ref.actor.optim.lr", "TRL": "learning_rate"},
            ),
        ),
        references=("failure catalogue F7",),
    ),
    params=Params(),
    detect=detect,
)
