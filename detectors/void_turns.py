"""Turns end with neither a call nor an answer.

What it looks at
----------------
The share of rollouts with a turn that holds neither a complete call (or code block, or action) nor a final answer.

Why it matters
--------------
Such a turn is a sign of drift to improbable tokens. Trained on, it raises the gradient; its share rises before the norm explodes.

How it decides
--------------
* watch: the share (5-step median) is above .1 and above twice its baseline, for 5 steps.

Example
-------
>>> import numpy as np, pandas as pd
>>> from echotrap.detector import episodes
>>> from echotrap.record import Run
>>> void = np.concatenate((np.full(40, 0.03), np.full(20, 0.5)))
>>> run = Run("example", "-", "frame", pd.DataFrame({"void_turns_frac": void}, index=pd.Index(range(1, 61), name="step")))
>>> [episode] = episodes(DETECTOR(run))
>>> episode.onset_step, dict(episode.alarm_steps)
(43, {<Level.WATCH: 1>: 47})

False positives
---------------
A syntax of calls that the parser does not know; turns that the length limit cut off.

What to do
----------
Leave rollouts with a void turn out of the loss.

References
----------
SimpleTIR, arXiv 2509.02479 (dropping them took AIME24 from 22.1, text only, to 50.5).
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

    watch_share: float = knob(0.1, least=0.01, most=0.9, low=0.2, high=0.07, source="failure catalogue E1")
    growth_ratio: float = knob(2.0, least=1.0, most=10.0, low=3.0, source="failure catalogue E1")
    smooth_steps: int = knob(5, least=1, most=50, source="with 32 rollouts one is 3 %")
    hold_steps: int = knob(5, least=1, most=100, low=10, source="failure catalogue E1")


def detect(run: Run, params: Params) -> Track | NotEvaluated:
    """Judge whether turns come to nothing."""
    steps, values = run.series("void_turns_frac")
    share = stats.trailing(values, steps, params.smooth_steps, "median")
    normal = stats.baseline(values, steps, off_factor=None, off_by=0.2, arm_steps=run.arm_steps)
    limit = np.maximum(params.watch_share, params.growth_ratio * normal)
    level, onset = stats.ladder(stats.held(share > limit, steps, params.hold_steps))
    return Track(steps, level, onset, share, limit, {"value": share, "baseline": normal})


DETECTOR = Detector(
    card=Card(
        id="void-turns",
        code="E1",
        title="turns hold neither a call nor an answer",
        family="agent",
        tier="extension",
        highest=Level.WATCH,
        needs=(("void_turns_frac",),),
        message="{value:.0%} of the rollouts have a turn without call or answer (baseline {baseline:.0%})",
        remedies=(
            Remedy(
                "Leave rollouts with a void turn out of the loss",
                {
                    "verl": "set response_mask to 0 for them in a custom agent loop",
                    "TRL": "mask_truncated_completions=True and a reward of None for void rollouts",
                    "RAGEN": "es_manager.format_penalty=-0.1",
                    "OpenRLHF": "return no reward for them from --agent_func_path",
                },
                cost="fewer rollouts a step",
            ),
        ),
        references=("arXiv 2509.02479",),
        units={"value": "0..1", "baseline": "0..1"},
    ),
    params=Params(),
    detect=detect,
)
