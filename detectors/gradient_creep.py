"""The gradient norm grows slowly and steadily.

What it looks at
----------------
Medians of the gradient norm over blocks of 10 steps.

Why it matters
--------------
A creep without spikes is how a disagreement between sampler and trainer shows in the norm, long before anything breaks.

How it decides
--------------
* watch: after 100 steps, at least 8 of the last 10 block medians are above the one before, and the last is twice the first.

Example
-------
>>> import numpy as np, pandas as pd
>>> from echotrap.detector import episodes
>>> from echotrap.record import Run
>>> norm = 0.2 * 1.01 ** np.maximum(np.arange(200) - 60, 0)
>>> frame = pd.DataFrame({"grad_norm": norm}, index=pd.Index(range(1, 201), name="step"))
>>> [episode] = episodes(DETECTOR(Run("example", "-", "frame", frame)))
>>> episode.onset_step, dict(episode.alarm_steps)
(41, {<Level.WATCH: 1>: 140})

False positives
---------------
A batch that a filter makes smaller and smaller; a learning-rate schedule; longer answers under a summed loss.

What to do
----------
Look at sampler mismatch first; tighter clipping only delays.

References
----------
verl FAQ; INTELLECT-2, arXiv 2505.07291.
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

    rising_blocks: int = knob(8, least=5, most=10, low=9, source="failure catalogue C2")
    growth_factor: float = knob(2.0, least=1.1, most=20.0, low=3.0, source="failure catalogue C2")
    block_steps: int = knob(10, least=2, most=200, source="failure catalogue C2")


BLOCKS = 10


def detect(run: Run, params: Params) -> Track | NotEvaluated:
    """Judge whether the gradient norm creeps up."""
    steps, values = run.series("grad_norm")
    steps, values = steps[values > 0], values[values > 0]
    span = params.block_steps
    if not len(steps) or steps[-1] - steps[0] < BLOCKS * span:
        return NotEvaluated(f"fewer than {BLOCKS * span} steps with a gradient")
    block = (steps - steps[0]) // span
    full = np.flatnonzero(np.diff(block, append=block[-1])) if len(block) else np.empty(0, np.int64)
    medians = stats.trailing(np.log(values), steps, span)[full]
    rises = np.concatenate(([0], np.cumsum(np.diff(medians) > 0)))
    index = np.arange(len(medians))
    first = index - BLOCKS + 1
    enough = first >= 0
    first = np.maximum(first, 0)
    growth = np.exp(medians - medians[first])
    creeping = enough & (rises - rises[first] >= params.rising_blocks) & (growth >= params.growth_factor)
    at = steps[full]
    seen = np.where(creeping, np.maximum(steps[0], at[first] - span + 1) if len(at) else 0, -1)
    rung = stats.spread(stats.Held(creeping, seen.astype(np.int64)), at, steps)
    level, onset = stats.ladder(stats.Held(rung.on, np.where(rung.on, _logged(steps, rung.since), -1)))
    growth = stats.as_of(growth, at, steps, np.nan)
    return Track(steps, level, onset, growth, np.full(len(steps), params.growth_factor), {"value": values, "growth": growth})


def _logged(steps: stats.Steps, wanted: stats.Steps) -> stats.Steps:
    """The first logged step at or after each."""
    return steps[np.minimum(np.searchsorted(steps, wanted), len(steps) - 1)]


DETECTOR = Detector(
    card=Card(
        id="gradient-creep",
        code="C2",
        title="the gradient norm creeps up",
        family="gradient",
        tier="extension",
        highest=Level.WATCH,
        needs=(("grad_norm",),),
        gates=(*STANDARD_GATES, "not-improving"),
        message="gradient norm {value:.3g}, {growth:.1f} times what it was ten blocks ago",
        remedies=(
            Remedy(
                "Look at sampler mismatch; then clip tighter",
                {"verl": "actor_rollout_ref.actor.grad_clip=0.1", "TRL": "max_grad_norm=0.1"},
                cost="clipping only delays",
            ),
        ),
        references=("verl docs/faq/faq.rst", "arXiv 2505.07291"),
        units={"value": "L2"},
    ),
    params=Params(),
    detect=detect,
)
