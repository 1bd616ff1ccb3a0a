"""The same completion of the same prompt is paid differently.

What it looks at
----------------
Exact copies inside a prompt group: the share whose copies got another reward.

Why it matters
--------------
Random scores make a spread where there is none. Groups that should be silent push the policy at random, and the usual signs of
collapse (no spread, dead groups) stay away.

How it decides
--------------
* watch: more than .05 of the copies disagree (20-step mean) for 10 steps.

Example
-------
>>> import numpy as np, pandas as pd
>>> from echotrap.detector import episodes
>>> from echotrap.record import Run
>>> unequal = np.concatenate((np.zeros(30), np.full(30, 0.3)))
>>> run = Run("example", "-", "frame", pd.DataFrame({"unequal_copies_frac": unequal}, index=pd.Index(range(1, 61), name="step")))
>>> [episode] = episodes(DETECTOR(run))
>>> episode.onset_step, dict(episode.alarm_steps)
(34, {<Level.WATCH: 1>: 43})

False positives
---------------
Environments of chance (a bandit pays the same arm differently); rewards that depend on what the dump leaves out, such as time.

What to do
----------
Score a fixed sample twice. Make the verifier deterministic: temperature 0, a frozen judge, a rubric, the majority of three.

References
----------
SCRIBE; StepSearch issue 1; asuzukosi/post-training-experiments issue 10.
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

    watch_share: float = knob(
        0.05, least=0.005, most=0.5, low=0.15, high=0.02, source="failure catalogue A6: 5 % rules, 15 % judge"
    )
    smooth_steps: int = knob(20, least=1, most=200, source="copies are few in a sound run")
    hold_steps: int = knob(10, least=1, most=200, low=20, high=5, source="a constant bias, not an event")


def detect(run: Run, params: Params) -> Track | NotEvaluated:
    """Judge whether copies are paid alike."""
    steps, values = run.series("unequal_copies_frac")
    share = stats.trailing(values, steps, params.smooth_steps, "mean")
    level, onset = stats.ladder(stats.held(share > params.watch_share, steps, params.hold_steps))
    return Track(steps, level, onset, share, np.full(len(steps), params.watch_share), {"value": share})


DETECTOR = Detector(
    card=Card(
        id="noisy-verifier",
        code="A6",
        title="the same completion is paid differently",
        family="reward",
        tier="extension",
        highest=Level.WATCH,
        needs=(("unequal_copies_frac",),),
        message="{value:.0%} of the exact copies inside a group got another reward",
        remedies=(
            Remedy(
                "Score deterministically: a rule, a rubric, or a frozen judge at temperature 0",
                {
                    "verl": "custom_reward_function.path=...",
                    "TRL": "reward_funcs=[deterministic_reward]",
                    "OpenRLHF": "--remote_rm_url <deterministic reward>",
                    "RAGEN": "a fixed seed per group in es_manager",
                },
            ),
            Remedy("Take the majority of several judgements", cost="several times the judge's cost"),
        ),
        references=("SCRIBE", "Zillwang/StepSearch issue 1"),
        units={"value": "0..1"},
    ),
    params=Params(),
    detect=detect,
)
