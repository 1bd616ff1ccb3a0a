"""The reward pays different completions the same.

What it looks at
----------------
Pairs of rollouts of one prompt that differ in the tools called, their arguments or the answer: the share that got equal reward.
Where the dump holds the expected calls, also the share of those ties that a fine-grained score would rank.

Why it matters
--------------
A group-relative advantage is zero between equals. Exact match pays a call with one wrong value like a call of the wrong tool, so
the policy is never told that it came closer.

How it decides
--------------
* watch: the share (10-step mean) is above .5 for 10 steps in a run that calls tools, unless a fine-grained score is known to rank
  less than half of the ties.

Example
-------
>>> import numpy as np, pandas as pd
>>> from echotrap.detector import episodes
>>> from echotrap.record import Run
>>> tied = np.concatenate((np.full(30, 0.3), np.full(30, 0.9)))
>>> frame = pd.DataFrame({"tie_frac": tied, "calls_per_turn": 1.0}, index=pd.Index(range(1, 61), name="step"))
>>> [episode] = episodes(DETECTOR(Run("example", "-", "frame", frame)))
>>> episode.onset_step, dict(episode.alarm_steps)
(34, {<Level.WATCH: 1>: 43})

False positives
---------------
Tasks that are all or nothing; calls that differ in letters and mean the same; hard prompts on which everything is wrong.

What to do
----------
Score tool name, parameter names and parameter values apart; multiply instead of adding where a wrong tool must be worth nothing.

References
----------
ToolRL, arXiv 2504.13958 (17 % over the base model, 15 % over SFT); GDPO, arXiv 2601.05242.
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

    watch_share: float = knob(0.5, least=0.2, most=1.0, low=0.8, high=0.4, source="failure catalogue A4")
    least_calls: float = knob(0.1, least=0.0, most=10.0, source="a run without tools has other rewards to think of")
    ranked: float = knob(0.5, least=0.0, most=1.0, source="ties that no finer score ranks are no loss")
    smooth_steps: int = knob(10, least=1, most=100, source="few pairs differ at one step")
    hold_steps: int = knob(10, least=1, most=200, low=20, high=5, source="failure catalogue A4")


def detect(run: Run, params: Params) -> Track | NotEvaluated:
    """Judge how much the reward ties."""
    steps, values = run.series("tie_frac")
    share = stats.trailing(values, steps, params.smooth_steps, "mean")
    calls = run.at("calls_per_turn" if run.has("calls_per_turn") else "tool_calls", steps)
    ranked = run.at("ranked_ties_frac", steps)
    coarse = (share > params.watch_share) & (calls >= params.least_calls) & ~(ranked < params.ranked)
    level, onset = stats.ladder(stats.held(coarse, steps, params.hold_steps))
    evidence = {"value": share, "ranked": ranked, "levels": run.at("reward_levels", steps)}
    return Track(steps, level, onset, share, np.full(len(steps), params.watch_share), evidence)


DETECTOR = Detector(
    card=Card(
        id="coarse-reward-ties",
        code="A4",
        title="the reward ties completions that differ",
        family="reward",
        tier="extension",
        highest=Level.WATCH,
        needs=(("tie_frac",), ("calls_per_turn", "tool_calls")),
        uses=("ranked_ties_frac", "reward_levels"),
        message="{value:.0%} of the pairs that differ get the same reward",
        remedies=(
            Remedy(
                "Score tool name, parameter names and parameter values apart",
                {
                    "verl": "custom_reward_function.path=...",
                    "TRL": "reward_funcs=[tool_name, parameter_names, parameter_values]",
                    "RAGEN": "a step reward in the environment's step()",
                    "OpenRLHF": "--remote_rm_url <reward function>",
                },
                cost="a partial score can be hacked; keep the exact match as one part",
            ),
            Remedy(
                "Normalise each reward before adding them up",
                {
                    "TRL": 'multi_objective_aggregation="normalize_then_sum"',
                    "verl": "standardise each part inside custom_reward_function",
                },
            ),
        ),
        references=("arXiv 2504.13958", "arXiv 2601.05242"),
        units={"value": "0..1", "ranked": "0..1", "levels": "count"},
    ),
    params=Params(),
    detect=detect,
)
