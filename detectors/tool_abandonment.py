"""The agent stops calling its tools.

What it looks at
----------------
Tool calls per rollout against the run's own first steps.

Why it matters
--------------
A policy that no longer calls its tools cannot learn to use them: no rollout shows what a call would have brought.

How it decides
--------------
* watch: calls (5-step median) below 0.6 of the baseline for 10 steps; or none at all in the first 20 steps, which says that
  calling was never learned.
* warning: below 0.3 of the baseline, which must have been at least half a call, for 5 steps. The gate *not-improving* holds it
  back.

Example
-------
>>> import numpy as np, pandas as pd
>>> from echotrap.detector import episodes
>>> from echotrap.record import Run
>>> calls = np.concatenate((np.full(40, 3.0), np.linspace(3.0, 0.2, 20), np.full(20, 0.2)))
>>> frame = pd.DataFrame({"tool_calls": calls}, index=pd.Index(range(1, 81), name="step"))
>>> [episode] = episodes(DETECTOR(Run("example", "-", "frame", frame)))
>>> episode.onset_step, dict(episode.alarm_steps)
(52, {<Level.WATCH: 1>: 61})

False positives
---------------
Bad tools, dead tools (look at environment failure first), tasks that can be solved without.

What to do
----------
Repair the tool; a stage that rewards calling at all; a cold start dense in interaction.

References
----------
ASTER, arXiv 2602.01204; R1-Searcher (stage 1 rewards the call itself).
"""

from __future__ import annotations

from dataclasses import dataclass

from echotrap import stats
from echotrap.detector import STANDARD_GATES, Card, Detector, Level, NotEvaluated, Remedy, Track, knob
from echotrap.record import Run


@dataclass(frozen=True)
class Params:
    """Working point; each knob says where it comes from."""

    watch_ratio: float = knob(0.6, least=0.1, most=0.9, low=0.5, source="failure catalogue E14")
    warning_ratio: float = knob(0.3, least=0.01, most=0.8, low=0.2, source="failure catalogue E14")
    normal_calls: float = knob(0.5, least=0.05, most=20.0, source="gate was-normal")
    never_steps: int = knob(20, least=3, most=500, source="failure catalogue E14")
    hold_steps: int = knob(5, least=1, most=100, low=10, high=3, source="failure catalogue E14")


def detect(run: Run, params: Params) -> Track | NotEvaluated:
    """Judge whether tools are still called."""
    steps, values = run.series("tool_calls")
    calls = stats.trailing(values, steps, 5)
    normal = stats.baseline(values, steps, arm_steps=run.arm_steps)
    usual = normal >= params.normal_calls
    never = stats.running_max(values) <= 0
    back = ~(calls < 1.3 * params.watch_ratio * normal)
    level, onset = stats.ladder(
        stats.either(
            stats.held(usual & (calls < params.watch_ratio * normal), steps, 2 * params.hold_steps, release=back),
            stats.held(never, steps, params.never_steps),
        ),
        stats.held(usual & (calls < params.warning_ratio * normal), steps, params.hold_steps, release=back),
    )
    return Track(steps, level, onset, calls, params.warning_ratio * normal, {"value": calls, "baseline": normal})


DETECTOR = Detector(
    card=Card(
        id="tool-abandonment",
        code="E14",
        title="the agent stops calling its tools",
        family="agent",
        tier="extension",
        highest=Level.WATCH,
        needs=(("tool_calls",),),
        uses=("success_rate", "reward_mean"),
        gates=(*STANDARD_GATES, "not-improving"),
        message="{value:.2f} tool calls per rollout, baseline {baseline:.2f}",
        remedies=(
            Remedy("Check that the tool works and helps; then a cold start dense in interaction"),
            Remedy(
                "A stage that rewards calling at all",
                {"verl": "custom_reward_function.path=...", "TRL": "reward_funcs=[..., tool_called]"},
                cost="withdraw it later, or calls become decoration",
            ),
        ),
        references=("arXiv 2602.01204",),
        units={"value": "calls", "baseline": "calls"},
    ),
    params=Params(),
    detect=detect,
)
