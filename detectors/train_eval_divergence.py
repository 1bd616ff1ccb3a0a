"""The held-out score falls while the training reward rises.

What it looks at
----------------
Held-out score and training outcome at the evaluations.

Why it matters
--------------
The policy learns the training prompts, or the grader, instead of the task. It is the first thing that reward hacking shows.

How it decides
--------------
* watch: at least 3 evaluations; the held-out score is below its best by more than 15 % of it and by more than twice its own
  noise, while the training outcome (20-step mean) is above what it was at that best by more than its noise; on 2 evaluations in
  a row.

Example
-------
>>> import numpy as np, pandas as pd
>>> from echotrap.detector import episodes
>>> from echotrap.record import Run
>>> step = np.arange(1, 201)
>>> score = np.full(200, np.nan)
>>> score[19::20] = [0.2, 0.3, 0.4, 0.45, 0.5, 0.45, 0.35, 0.25, 0.2, 0.15]
>>> frame = pd.DataFrame({"reward_mean": 0.2 + 0.003 * step, "eval_score": score}, index=pd.Index(step, name="step"))
>>> [episode] = episodes(DETECTOR(Run("example", "-", "frame", frame)))
>>> episode.onset_step, dict(episode.alarm_steps)
(160, {<Level.WATCH: 1>: 180})

False positives
---------------
A small evaluation set; another distribution of prompts; a best score that was luck.

What to do
----------
Read rollouts with a high reward; patch the grader; more or other data; stop at the best held-out score.

References
----------
Failure catalogue F6; evaluator stress tests, arXiv 2507.05619.
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

    fall_ratio: float = knob(0.15, least=0.01, most=0.9, low=0.25, source="RAGEN's healthy run falls by 11 %")
    noise_sigma: float = knob(2.0, least=0.5, most=10.0, low=3.0, source="failure catalogue F6")
    evaluations: int = knob(2, least=1, most=20, low=3, source="failure catalogue F6")


def detect(run: Run, params: Params) -> Track | NotEvaluated:
    """Judge whether training and held-out outcome go apart."""
    steps, held_out = run.series("eval_score")
    if len(steps) < 3:
        return NotEvaluated("fewer than 3 evaluations")
    name = "reward_mean" if run.has("reward_mean") else "success_rate"
    at, training = run.series(name)
    seen = stats.apart(held_out, steps, training, at, fall_ratio=params.fall_ratio, sigmas=params.noise_sigma)
    level, onset = stats.ladder(stats.held_points(seen.flag & (np.arange(len(steps)) >= 2), steps, params.evaluations))
    evidence = {"value": held_out, "best": seen.best, "signal": name, "training": seen.outcome, "rise": seen.rise}
    return Track(steps, level, onset, held_out, seen.limit, evidence)


DETECTOR = Detector(
    card=Card(
        id="train-eval-divergence",
        code="F6",
        title="held-out score falls while training rises",
        family="evaluation",
        tier="run-level",
        highest=Level.WATCH,
        needs=(("eval_score",), ("reward_mean", "success_rate")),
        gates=("min-data", "declared-event"),
        message="held-out score {value:.3g} (best {best:.3g}) while {signal} rose by {rise:.3g} to {training:.3g}",
        remedies=(
            Remedy("Read rollouts with a high reward and patch the grader"),
            Remedy(
                "Stop at the best held-out score; other or more data",
                {"verl": "trainer.test_freq=10", "TRL": "load_best_model_at_end=True metric_for_best_model=..."},
            ),
        ),
        references=("arXiv 2507.05619",),
    ),
    params=Params(),
    detect=detect,
)
