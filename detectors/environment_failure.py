"""Tools, retrievers or sandboxes fail, and the policy is blamed for it.

What it looks at
----------------
The share of tool calls that fail and of rollouts without text, and the tool latency, against the run's own first steps.

Why it matters
--------------
A dead search backend looks like a collapse: reward, length and entropy change in one step. Blaming the policy leads to the wrong
remedy, and training through an outage teaches it not to use the tool.

How it decides
--------------
* watch: failed calls, or empty rollouts, 5 points above baseline for 5 steps.
* warning: failed calls 15 points above baseline for 3 steps; or empty rollouts above 5 % and 5 points above baseline for 5 steps;
  or latency three times its baseline for 3 steps.

Example
-------
>>> import numpy as np, pandas as pd
>>> from echotrap.detector import Level, episodes
>>> from echotrap.record import Run
>>> failed = np.concatenate((np.full(40, 0.02), np.full(20, 0.9)))
>>> frame = pd.DataFrame({"tool_error_frac": failed}, index=pd.Index(range(1, 61), name="step"))
>>> [episode] = episodes(DETECTOR(Run("example", "-", "frame", frame)))
>>> episode.onset_step, episode.alarm_steps[Level.WARNING]
(41, 43)

False positives
---------------
Errors that the policy causes: malformed calls are a matter of its format, so look at the kind of error first. A harder data set
whose tools are slower.

What to do
----------
Pause, repair the tool, leave errored rollouts out of the loss, cache and retry; go back to before the outage if the policy has
already learned to avoid the tool.

References
----------
prime-rl ``docs/training.md`` (errored rollouts); search agents depend more on the corpus than on the algorithm,
arXiv 2605.27881.
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

    watch_rise: float = knob(0.05, least=0.01, most=0.5, low=0.1, source="prime-rl docs/training.md")
    warning_rise: float = knob(0.15, least=0.02, most=0.9, low=0.25, high=0.1, source="failure catalogue E7")
    latency_ratio: float = knob(3.0, least=1.2, most=50.0, low=5.0, source="failure catalogue E7")
    watch_steps: int = knob(5, least=1, most=100, low=10, source="prime-rl docs/training.md")
    warning_steps: int = knob(3, least=1, most=100, low=5, high=2, source="an outage is a step")
    baseline_steps: int = knob(20, least=3, most=500, source="failure catalogue 3.2")


SHARES = ("tool_error_frac", "empty_frac")


def detect(run: Run, params: Params) -> Track | NotEvaluated:
    """Judge whether the environment answers."""
    steps = stats.union(*(run.series(name).steps for name in (*SHARES, "tool_latency")))
    arm = run.arm_steps
    watch, warning = stats.never(steps), stats.never(steps)
    normals = []
    for name in SHARES:
        at, values = run.series(name)
        normal = stats.baseline(values, at, window_steps=params.baseline_steps, off_factor=None, off_by=0.1, arm_steps=arm)
        normals.append(stats.as_of(normal, at, steps, np.nan))
        back = ~(values >= normal + params.watch_rise)
        low = stats.held(values >= normal + params.watch_rise, at, params.watch_steps)
        if name == "tool_error_frac":
            high = stats.held(values >= normal + params.warning_rise, at, params.warning_steps, release=back)
        else:
            high = stats.held((values > params.watch_rise) & ~back, at, params.watch_steps)
        watch = stats.either(watch, stats.spread(low, at, steps))
        warning = stats.either(warning, stats.spread(high, at, steps))
    at, latency = run.series("tool_latency")
    usual = stats.baseline(latency, at, window_steps=params.baseline_steps, arm_steps=arm)
    slow = stats.held(latency > params.latency_ratio * usual, at, params.warning_steps)
    warning = stats.either(warning, stats.spread(slow, at, steps))
    level, onset = stats.ladder(watch, warning)
    failed, empty = (np.nan_to_num(run.at(name, steps)) for name in SHARES)
    share = np.maximum(failed, empty)
    is_slow = stats.as_of(slow.on, at, steps, False)
    kind = np.select([is_slow, failed >= empty], [2, 0], 1)
    evidence = {
        "what": np.array(["tool calls that fail", "rollouts without text", "seconds a tool takes"])[kind],
        "value": np.choose(kind, [failed, empty, run.at("tool_latency", steps)]),
        "baseline": np.choose(kind, [*normals, stats.as_of(usual, at, steps, np.nan)]),
    }
    return Track(steps, level, onset, share, np.full(len(steps), params.warning_rise), evidence)


DETECTOR = Detector(
    card=Card(
        id="environment-failure",
        code="E7",
        title="tools or sandboxes fail",
        family="environment",
        tier="extension",
        highest=Level.WARNING,
        needs=((*SHARES, "tool_latency"),),
        uses=(*SHARES, "tool_latency"),
        gates=("min-data", "declared-event"),
        tell="alarm",
        message="{what}: {value:.3g}, at first {baseline:.3g}",
        remedies=(
            Remedy("Pause, repair the tool, go back to before the outage"),
            Remedy(
                "Leave errored rollouts out of the loss; cache and retry calls",
                {"verl": "tool configuration: timeout, max_retries", "TRL": "raise in the tool, mask the rollout"},
            ),
        ),
        references=("prime-rl docs/training.md", "arXiv 2605.27881"),
        units={"value": "0..1 or s", "baseline": "0..1 or s"},
    ),
    params=Params(),
    detect=detect,
)
