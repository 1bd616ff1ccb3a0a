"""The range of the reward changes.

What it looks at
----------------
Lowest and highest reward of a step, against the range seen until twenty steps before.

Why it matters
--------------
New weights, another reward function or a bug move every number that is made of rewards. It is no failure by itself, but what
other detectors compare across it is not comparable.

How it decides
--------------
* watch: the range of a step reaches beyond the earlier one by more than half of its width, for 3 steps.

Example
-------
>>> import numpy as np, pandas as pd
>>> from echotrap.detector import episodes
>>> from echotrap.record import Run
>>> frame = pd.DataFrame({"reward_min": 0.0, "reward_max": np.repeat([1.0, 5.0], 40)}, index=pd.Index(range(1, 81), name="step"))
>>> [episode] = episodes(DETECTOR(Run("example", "-", "frame", frame)))
>>> episode.onset_step, dict(episode.alarm_steps), episode.cleared_step
(41, {<Level.WATCH: 1>: 43}, 61)

False positives
---------------
Rewards without bounds that grow as the policy learns.

What to do
----------
Declare the change, so that baselines begin anew (``[[event]]`` in echotrap.toml).

References
----------
ToolRL, arXiv 2504.13958 (scale and timing of rewards matter).
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

    excess: float = knob(0.5, least=0.05, most=10.0, low=1.0, high=0.2, source="unbounded rewards creep; weights change at once")
    memory_steps: int = knob(20, least=5, most=200, source="a new range is known after a baseline's length")
    hold_steps: int = knob(3, least=1, most=50, source="failure catalogue F5")


def detect(run: Run, params: Params) -> Track | NotEvaluated:
    """Judge whether rewards left their range."""
    steps, high = run.series("reward_max")
    low = run.at("reward_min", steps)
    before = np.searchsorted(steps, steps - params.memory_steps, side="right") - 1
    known = before >= 0
    top = np.where(known, stats.running_max(high)[np.maximum(before, 0)], np.nan)
    bottom = np.where(known, stats.running_min(np.nan_to_num(low, nan=np.inf))[np.maximum(before, 0)], np.nan)
    wide = top - bottom
    beyond = np.maximum(high - top, bottom - low)
    moved = (wide > 0) & np.isfinite(wide) & (beyond > params.excess * wide)
    level, onset = stats.ladder(stats.held(moved, steps, params.hold_steps))
    evidence = {"low": low, "high": high, "was_low": bottom, "was_high": top}
    return Track(steps, level, onset, high, top + params.excess * wide, evidence)


DETECTOR = Detector(
    card=Card(
        id="reward-rescale",
        code="F5",
        title="the range of the reward changes",
        family="event",
        tier="run-level",
        highest=Level.WATCH,
        needs=(("reward_min",), ("reward_max",)),
        gates=("min-data",),
        message="rewards now reach from {low:.3g} to {high:.3g}; they were within {was_low:.3g} to {was_high:.3g}",
        remedies=(Remedy("Declare the change in echotrap.toml, so that baselines begin anew"),),
        references=("arXiv 2504.13958",),
        units={"low": "reward", "high": "reward", "was_low": "reward", "was_high": "reward"},
    ),
    params=Params(),
    detect=detect,
)
