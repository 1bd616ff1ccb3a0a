"""Answers are cut off at the length limit, and the reward starves.

What it looks at
----------------
The share of responses that end at the limit rather than at an end token, against the run's own first steps.

Why it matters
--------------
A cut answer has no final answer and no reward; when most are cut, the policy is punished for length whatever it wrote. A rising
share is often the outside of an entropy eruption or of a length hack.

How it decides
--------------
* watch: share above 0.1 and at least 0.1 above baseline for 5 steps; or above 0.5 for 10 steps whatever the baseline (then it is
  a matter of the configuration: raise the limit).
* warning: above 0.5 and at least 0.3 above baseline for 5 steps.
* critical: above 0.7 and at least 0.3 above baseline for 10 steps.

The gate *not-improving* holds warning and critical back while the outcome sets new bests.

Example
-------
>>> import numpy as np, pandas as pd
>>> from echotrap.detector import Level, episodes
>>> from echotrap.record import Run
>>> share = np.concatenate((np.full(30, 0.02), np.linspace(0.02, 0.9, 30), np.full(20, 0.9)))
>>> frame = pd.DataFrame({"truncated_frac": share}, index=pd.Index(range(1, 81), name="step"))
>>> [episode] = episodes(DETECTOR(Run("example", "-", "frame", frame)))
>>> episode.onset_step, [step for _, step in sorted(episode.alarm_steps.items())]
(35, [39, 51, 63])

False positives
---------------
An intended growth of the budget; more tool turns; a limit below need from step 0, which is a fault of the configuration and no
collapse. verl's v1 trainer never reports less than one response per batch.

What to do
----------
Raise the limit; shape the reward before the limit rather than at it; mask the loss of cut samples; average the loss over tokens.

References
----------
DAPO, arXiv 2503.14476 (overlong shaping); Skywork-OR1, arXiv 2505.22312; Dr. GRPO, arXiv 2503.20783; verl
``docs/perf/best_practices.rst``; verl#1066.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from echotrap import stats
from echotrap.detector import STANDARD_GATES, Card, Detector, Level, NotEvaluated, Remedy, Track, knob
from echotrap.record import Run


@dataclass(frozen=True)
class Params:
    """Working point; each knob says where it comes from."""

    watch_share: float = knob(0.1, least=0.01, most=0.9, low=0.2, source="verl docs/perf/best_practices.rst")
    warning_share: float = knob(0.5, least=0.05, most=0.95, source="failure catalogue D1")
    critical_share: float = knob(0.7, least=0.1, most=0.99, source="failure catalogue D1")
    watch_rise: float = knob(0.1, least=0.0, most=0.9, low=0.2, source="sound runs wander by 0.1")
    rise: float = knob(0.3, least=0.05, most=0.9, low=0.4, high=0.2, source="failure catalogue D1")
    hold_steps: int = knob(5, least=1, most=100, low=10, high=3, source="failure catalogue D1")
    baseline_steps: int = knob(20, least=3, most=500, source="failure catalogue 3.2")


def detect(run: Run, params: Params) -> Track | NotEvaluated:
    """Judge the share of responses cut at the limit."""
    steps, values = run.series("truncated_frac")
    normal = stats.baseline(
        values, steps, window_steps=params.baseline_steps, off_factor=None, off_by=params.watch_rise, arm_steps=run.arm_steps
    )
    risen = values >= normal + params.rise
    kept = ~(values >= normal + params.watch_rise)
    hold = params.hold_steps
    level, onset = stats.ladder(
        stats.either(
            stats.held((values > params.watch_share) & (values > normal + params.watch_rise), steps, hold),
            stats.held(values > params.warning_share, steps, 2 * hold),
        ),
        stats.held(risen & (values > params.warning_share), steps, hold, release=kept),
        stats.held(risen & (values > params.critical_share), steps, 2 * hold, release=kept),
    )
    evidence = {"share": values, "baseline": normal}
    return Track(steps, level, onset, values, np.full(len(steps), params.warning_share), evidence)


DETECTOR = Detector(
    card=Card(
        id="truncation",
        code="D1",
        title="answers are cut off at the length limit",
        family="length",
        highest=Level.CRITICAL,
        needs=(("truncated_frac",),),
        uses=("reward_mean", "response_length_max", "length_limit"),
        gates=(*STANDARD_GATES, "not-improving", "not-risen"),
        message="{share:.0%} of the responses are cut at the length limit; baseline {baseline:.0%}",
        remedies=(
            Remedy(
                "Raise the limit, if answers need it",
                {
                    "verl": "data.max_response_length=8192",
                    "TRL": "max_completion_length=8192",
                    "OpenRLHF": "--generate_max_len 8192",
                },
                cost="memory and time",
            ),
            Remedy(
                "Shape the reward before the limit (soft overlong punishment), mask cut samples",
                {
                    "verl": "reward_model.overlong_buffer.enable=True reward_model.overlong_buffer.len=4096",
                    "TRL": "mask_truncated_completions=True",
                },
                cost="masking removes the pressure against length",
            ),
            Remedy(
                "Average the loss over tokens, not over sequences",
                {"verl": "actor_rollout_ref.actor.loss_agg_mode=token-mean", "TRL": "loss_type='dapo'"},
            ),
        ),
        references=("arXiv 2503.14476", "arXiv 2503.20783", "verl docs/perf/best_practices.rst"),
        units={"share": "0..1", "baseline": "0..1"},
    ),
    params=Params(),
    detect=detect,
)
