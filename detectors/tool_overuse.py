"""Tool calls multiply and the outcome does not improve.

What it looks at
----------------
Tool calls per rollout and the outcome of training, against the run's own first steps.

Why it matters
--------------
Under a reward that sees only the answer a call is free. Calls crowd out reasoning, fill the context and cost time.

How it decides
--------------
* watch: calls (5-step median) 1.5 times the baseline and at least one more, while the outcome (20-step mean) is above its own
  baseline by no more than its noise, for 10 steps.

Example
-------
>>> import numpy as np, pandas as pd
>>> from echotrap.detector import episodes
>>> from echotrap.record import Run
>>> calls = np.concatenate((np.full(40, 2.0), np.linspace(2.0, 6.0, 20), np.full(20, 6.0)))
>>> frame = pd.DataFrame({"tool_calls": calls, "success_rate": 0.4}, index=pd.Index(range(1, 81), name="step"))
>>> [episode] = episodes(DETECTOR(Run("example", "-", "frame", frame)))
>>> episode.onset_step, dict(episode.alarm_steps)
(48, {<Level.WATCH: 1>: 57})

False positives
---------------
Harder data.

What to do
----------
A conditional reward for efficiency, paid only where the answer is right. Static penalties can themselves cause hacking.

References
----------
Search Wisely, arXiv 2505.17281 (27.7 % of search steps avoidable); SAAS, arXiv 2605.29796.
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

    growth_ratio: float = knob(1.5, least=1.1, most=10.0, low=2.0, source="failure catalogue E2")
    more_calls: float = knob(1.0, least=0.0, most=20.0, source="a half call more is no overuse")
    noise_sigma: float = knob(1.0, least=0.0, most=5.0, source="failure catalogue E2")
    hold_steps: int = knob(10, least=1, most=200, low=20, source="failure catalogue E2")


def detect(run: Run, params: Params) -> Track | NotEvaluated:
    """Judge whether more calls bring more."""
    steps, values = run.series("tool_calls")
    calls = stats.trailing(values, steps, 5)
    normal = stats.baseline(values, steps, arm_steps=run.arm_steps)
    at, outcome = run.series("success_rate" if run.has("success_rate") else "reward_mean")
    start = stats.baseline(outcome, at, off_factor=None, arm_steps=run.arm_steps)
    gain = stats.trailing(outcome, at, 20, "mean") - start
    better = stats.as_of(gain > params.noise_sigma * np.nan_to_num(stats.noise(outcome, how="mean")), at, steps, False)
    many = (calls > params.growth_ratio * normal) & (calls > normal + params.more_calls)
    level, onset = stats.ladder(stats.held(many & ~better, steps, params.hold_steps))
    return Track(steps, level, onset, calls, params.growth_ratio * normal, {"value": calls, "baseline": normal})


DETECTOR = Detector(
    card=Card(
        id="tool-overuse",
        code="E2",
        title="tool calls multiply and bring nothing",
        family="agent",
        tier="extension",
        highest=Level.WATCH,
        needs=(("tool_calls",), ("success_rate", "reward_mean")),
        message="{value:.1f} tool calls per rollout, baseline {baseline:.1f}, and no better outcome",
        remedies=(
            Remedy(
                "Pay for efficiency only where the answer is right",
                {"verl": "custom_reward_function.path=...", "TRL": "reward_funcs=[..., few_calls_if_right]"},
                cost="a static penalty suppresses needed calls",
            ),
        ),
        references=("arXiv 2505.17281", "arXiv 2605.29796"),
        units={"value": "calls", "baseline": "calls"},
    ),
    params=Params(),
    detect=detect,
)
