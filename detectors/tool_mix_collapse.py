"""One tool takes over.

What it looks at
----------------
The entropy of the tool names over the calls of a step, and the share of the most used one, in runs that used three or more.

Why it matters
--------------
A tool that often pays a little crowds out those that are needed seldom. What is no longer called is no longer learned.

How it decides
--------------
* watch: the entropy (5-step mean) is below .3 of its baseline, or one tool has more than .95 of the calls and had less than .8,
  for 5 steps.

Example
-------
>>> import numpy as np, pandas as pd
>>> from echotrap.detector import episodes
>>> from echotrap.record import Run
>>> columns = {"tool_mix_entropy": np.repeat([1.2, 0.1], 40), "top_tool_share": np.repeat([0.5, 0.98], 40), "tool_count": 4.0}
>>> run = Run("example", "-", "frame", pd.DataFrame(columns, index=pd.Index(range(1, 81), name="step")))
>>> [episode] = episodes(DETECTOR(run))
>>> episode.onset_step, dict(episode.alarm_steps)
(44, {<Level.WATCH: 1>: 48})

False positives
---------------
Data that now need one tool; a curriculum.

What to do
----------
Mix tasks that need the other tools; look for a reward that any call of this tool earns.

References
----------
Proof-of-Use, arXiv 2510.10931; SynPlanResearch-R1; PhGPO.
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

    entropy_ratio: float = knob(0.3, least=0.05, most=0.9, low=0.15, high=0.4, source="failure catalogue E5")
    top_share: float = knob(0.95, least=0.5, most=1.0, low=0.99, source="failure catalogue E5")
    was_shared: float = knob(0.8, least=0.3, most=1.0, source="a tool that always had most of the calls takes nothing over")
    least_tools: float = knob(3.0, least=2.0, most=20.0, source="failure catalogue E5")
    hold_steps: int = knob(5, least=1, most=100, low=10, high=3, source="failure catalogue E5")


def detect(run: Run, params: Params) -> Track | NotEvaluated:
    """Judge whether the tools are still mixed."""
    steps, values = run.series("tool_mix_entropy")
    entropy = stats.trailing(values, steps, 5, "mean")
    normal = stats.baseline(values, steps, off_factor=None, arm_steps=run.arm_steps)
    at, shares = run.series("top_tool_share")
    was = stats.as_of(stats.baseline(shares, at, off_factor=None, arm_steps=run.arm_steps), at, steps, np.nan)
    top = stats.as_of(stats.trailing(shares, at, 5, "mean"), at, steps, np.nan)
    seen, counts = run.series("tool_count")
    several = stats.as_of(stats.baseline(counts, seen, off_factor=None, arm_steps=run.arm_steps), seen, steps, np.nan)
    one = (entropy < params.entropy_ratio * normal) | ((top > params.top_share) & (was < params.was_shared))
    level, onset = stats.ladder(stats.held(one & (several >= params.least_tools), steps, params.hold_steps))
    return Track(steps, level, onset, entropy, params.entropy_ratio * normal, {"value": entropy, "baseline": normal, "top": top})


DETECTOR = Detector(
    card=Card(
        id="tool-mix-collapse",
        code="E5",
        title="one tool takes over",
        family="agent",
        tier="extension",
        highest=Level.WATCH,
        needs=(("tool_mix_entropy",), ("top_tool_share",), ("tool_count",)),
        message="one tool has {top:.0%} of the calls; entropy of the mix {value:.2f}, baseline {baseline:.2f}",
        remedies=(
            Remedy(
                "Mix tasks that need the other tools, and pay a call only where the outcome is right",
                {
                    "verl": "data.train_files=[...] custom_reward_function.path=...",
                    "TRL": "train_dataset=<mixed> reward_funcs=[...]",
                    "RAGEN": "es_manager.train.env_configs.tags=[...]",
                    "OpenRLHF": "--prompt_data a,b --prompt_data_probs 0.5,0.5",
                },
            ),
        ),
        references=("arXiv 2510.10931", "SynPlanResearch-R1", "PhGPO"),
        units={"value": "nats", "baseline": "nats", "top": "0..1"},
    ),
    params=Params(),
    detect=detect,
)
