"""The policy writes tool results itself.

What it looks at
----------------
The share of rollouts with a block of tool results inside text that the policy wrote: in an assistant turn where tools speak under
their own role, or without a call before it where they speak in between.

Why it matters
--------------
Generation was not stopped after a call, and the policy reasons from facts that it made up. If such tokens carry loss it learns
to do so.

How it decides
--------------
* watch: more than .01 of the rollouts (5-step mean) for 5 steps, unless most did at the start: then it is how this dump is
  written.

Example
-------
>>> import numpy as np, pandas as pd
>>> from echotrap.detector import episodes
>>> from echotrap.record import Run
>>> made_up = np.concatenate((np.zeros(40), np.full(20, 0.2)))
>>> run = Run("example", "-", "frame", pd.DataFrame({"fabricated_frac": made_up}, index=pd.Index(range(1, 61), name="step")))
>>> [episode] = episodes(DETECTOR(run))
>>> episode.onset_step, dict(episode.alarm_steps)
(41, {<Level.WATCH: 1>: 45})

False positives
---------------
Results that are quoted with their markup.

What to do
----------
Stop generation at the end of a call; cut what follows it before the loss; mask tokens of the environment.

References
----------
Algorineko/AgenticArXiv-RL issues 19, 80, 81; RAGEN pull request 66.
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

    watch_share: float = knob(0.01, least=0.001, most=0.5, low=0.05, source="failure catalogue E8")
    usual: float = knob(0.5, least=0.1, most=1.0, source="a dialect, not a failure, where most rollouts begin that way")
    smooth_steps: int = knob(5, least=1, most=50, source="one rollout of 64 is 1.6 %")
    hold_steps: int = knob(5, least=1, most=100, low=10, source="as void-turns")


def detect(run: Run, params: Params) -> Track | NotEvaluated:
    """Judge whether results are made up."""
    steps, values = run.series("fabricated_frac")
    share = stats.trailing(values, steps, params.smooth_steps, "mean")
    normal = stats.baseline(values, steps, off_factor=None, off_by=0.2, arm_steps=run.arm_steps)
    level, onset = stats.ladder(stats.held((share > params.watch_share) & ~(normal > params.usual), steps, params.hold_steps))
    limit = np.full(len(steps), params.watch_share)
    return Track(steps, level, onset, share, limit, {"value": share, "baseline": normal})


DETECTOR = Detector(
    card=Card(
        id="fabricated-observations",
        code="E8",
        title="the policy writes tool results itself",
        family="agent",
        tier="extension",
        highest=Level.WATCH,
        needs=(("fabricated_frac",),),
        message="{value:.1%} of the rollouts hold a tool result that the policy wrote",
        remedies=(
            Remedy(
                "Stop generation at the end of a call, and give tokens of the environment no loss",
                {
                    "verl": 'stop=["</tool_call>"] in the agent loop; actor_rollout_ref.actor.state_masking=True (Search-R1)',
                    "TRL": 'generation_kwargs={"stop": ["</tool_call>"]}',
                    "RAGEN": "enable_response_mask=True",
                    "OpenRLHF": "stop strings in --agent_func_path",
                },
            ),
        ),
        references=("Algorineko/AgenticArXiv-RL issue 80", "RAGEN pull request 66"),
        units={"value": "0..1", "baseline": "0..1"},
    ),
    params=Params(),
    detect=detect,
)
