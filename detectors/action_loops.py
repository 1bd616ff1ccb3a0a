"""The same call comes again and again, with the same result.

What it looks at
----------------
The share of calls (or environment actions) that an earlier one of the rollout equals, arguments and result included; and the
share of rollouts with three such in a row.

Why it matters
--------------
The policy no longer sees that nothing changed: it has lost track of what it did, and spends its turns.

How it decides
--------------
* watch: repeated calls (5-step mean) above .2 and above 1.5 times their baseline, or loops in more than .1 of the rollouts, for 5
  steps.

Example
-------
>>> import numpy as np, pandas as pd
>>> from echotrap.detector import episodes
>>> from echotrap.record import Run
>>> again = np.concatenate((np.full(40, 0.05), np.full(20, 0.5)))
>>> run = Run("example", "-", "frame", pd.DataFrame({"repeated_calls_frac": again}, index=pd.Index(range(1, 61), name="step")))
>>> [episode] = episodes(DETECTOR(run))
>>> episode.onset_step, dict(episode.alarm_steps)
(42, {<Level.WATCH: 1>: 46})

False positives
---------------
Tools that are polled until something changes; small worlds in which a step back is a good move.

What to do
----------
Show earlier actions in the prompt, subtract a little for an exact repeat, cap the turns.

References
----------
UI-Copilot (progress confusion in long interaction).
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

    watch_share: float = knob(0.2, least=0.02, most=0.9, low=0.35, source="failure catalogue E9")
    growth_ratio: float = knob(1.5, least=1.0, most=10.0, low=2.0, source="untrained policies repeat themselves too")
    loops: float = knob(0.1, least=0.01, most=0.9, low=0.25, source="failure catalogue E9")
    hold_steps: int = knob(5, least=1, most=100, low=10, source="failure catalogue E9")


def detect(run: Run, params: Params) -> Track | NotEvaluated:
    """Judge whether calls repeat themselves."""
    steps, values = run.series("repeated_calls_frac")
    share = stats.trailing(values, steps, 5, "mean")
    normal = stats.baseline(values, steps, off_factor=None, off_by=0.2, arm_steps=run.arm_steps)
    at, rows = run.series("call_loops_frac")
    loops = stats.as_of(stats.trailing(rows, at, 5, "mean"), at, steps, np.nan)
    limit = np.maximum(params.watch_share, params.growth_ratio * normal)
    level, onset = stats.ladder(stats.held((share > limit) | (loops > params.loops), steps, params.hold_steps))
    return Track(steps, level, onset, share, limit, {"value": share, "baseline": normal, "loops": loops})


DETECTOR = Detector(
    card=Card(
        id="action-loops",
        code="E9",
        title="the same call again and again",
        family="agent",
        tier="extension",
        highest=Level.WATCH,
        needs=(("repeated_calls_frac",),),
        uses=("call_loops_frac",),
        message="{value:.0%} of the calls repeat an earlier one and its result (baseline {baseline:.0%})",
        remedies=(
            Remedy(
                "Cap the turns, show earlier actions in the prompt, subtract a little for an exact repeat",
                {
                    "verl": "actor_rollout_ref.rollout.multi_turn.max_assistant_turns=<fewer>",
                    "TRL": "max_tool_calling_iterations=<fewer>",
                    "RAGEN": "agent_proxy.max_turn=<fewer>",
                    "OpenRLHF": "a turn limit in --agent_func_path",
                },
                cost="a cap also cuts rollouts that need many turns",
            ),
        ),
        references=("UI-Copilot",),
        units={"value": "0..1", "baseline": "0..1", "loops": "0..1"},
    ),
    params=Params(),
    detect=detect,
)
