"""The agent stops early: interaction collapses to the least number of turns.

What it looks at
----------------
Turns per rollout against the run's own first steps, and the outcome.

Why it matters
--------------
An agent that answers at once cannot use its environment any more, and never samples the long trajectories that would teach it.

How it decides
--------------
* watch: turns (5-step median) below half of the baseline, which must have been at least 2, for 5 steps.
* warning: within a tenth of the fewest possible (1) after a baseline of at least 2, for 5 steps. The gate *not-improving* holds
  it back.

Example
-------
>>> import numpy as np, pandas as pd
>>> from echotrap.detector import episodes
>>> from echotrap.record import Run
>>> turns = np.concatenate((np.full(40, 4.0), np.linspace(4.0, 1.0, 20), np.full(20, 1.0)))
>>> frame = pd.DataFrame({"num_turns": turns}, index=pd.Index(range(1, 81), name="step"))
>>> [episode] = episodes(DETECTOR(Run("example", "-", "frame", frame)))
>>> episode.onset_step, dict(episode.alarm_steps)
(56, {<Level.WATCH: 1>: 60})

False positives
---------------
Rational stopping: with a useless tool every model stops calling it. Efficiency, where the outcome rises.

What to do
----------
A cold start dense in interaction, a least number of turns, continuation of rollouts that ended early. Check the tool first.

References
----------
ASTER, arXiv 2602.01204.
"""

from __future__ import annotations

from dataclasses import dataclass

from echotrap import stats
from echotrap.detector import STANDARD_GATES, Card, Detector, Level, NotEvaluated, Remedy, Track, knob
from echotrap.record import Run


@dataclass(frozen=True)
class Params:
    """Working point; each knob says where it comes from."""

    watch_ratio: float = knob(0.5, least=0.1, most=0.9, low=0.3, source="failure catalogue E3")
    fewest_turns: float = knob(1.1, least=1.0, most=5.0, source="failure catalogue E3")
    normal_turns: float = knob(2.0, least=1.2, most=50.0, source="gate was-normal")
    hold_steps: int = knob(5, least=1, most=100, low=10, high=3, source="failure catalogue E3")


def detect(run: Run, params: Params) -> Track | NotEvaluated:
    """Judge whether rollouts end early."""
    steps, values = run.series("num_turns")
    turns = stats.trailing(values, steps, 5)
    normal = stats.baseline(values, steps, arm_steps=run.arm_steps)
    usual = normal >= params.normal_turns
    back = ~(turns < 1.3 * params.watch_ratio * normal)
    level, onset = stats.ladder(
        stats.held(usual & (turns < params.watch_ratio * normal), steps, params.hold_steps, release=back),
        stats.held(usual & (turns <= params.fewest_turns), steps, params.hold_steps, release=back),
    )
    return Track(steps, level, onset, turns, params.watch_ratio * normal, {"value": turns, "baseline": normal})


DETECTOR = Detector(
    card=Card(
        id="premature-termination",
        code="E3",
        title="the agent stops early",
        family="agent",
        tier="extension",
        highest=Level.WATCH,
        needs=(("num_turns",),),
        uses=("success_rate", "reward_mean"),
        gates=(*STANDARD_GATES, "not-improving"),
        message="{value:.1f} turns per rollout, baseline {baseline:.1f}",
        remedies=(
            Remedy("Check that the tool is worth calling; then a cold start dense in interaction"),
            Remedy(
                "Reward or require a least number of turns",
                {
                    "verl": "actor_rollout_ref.rollout.multi_turn.max_assistant_turns=...",
                    "TRL": "reward_funcs=[..., least_turns]",
                },
                cost="invites empty turns",
            ),
        ),
        references=("arXiv 2602.01204",),
        units={"value": "turns", "baseline": "turns"},
    ),
    params=Params(),
    detect=detect,
)
