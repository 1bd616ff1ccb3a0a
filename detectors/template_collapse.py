"""The reasoning no longer depends on the prompt.

What it looks at
----------------
Retrieval accuracy: how often a reasoning fits its own prompt better than the other prompts of the step. RAGEN-2 logs it from
log-probs; without them echotrap measures it on the text with bigram models, one per prompt group.

Why it matters
--------------
A policy may vary its words inside a prompt and still tell every prompt the same story: entropy looks normal while the
information between prompt and reasoning is gone. In RAGEN-2's runs it falls 10 to 100 steps before success does.

How it decides
--------------
Counted from what guessing gives, where that is known. Watch: below 55 % of its own mean over the first 20 steps for 20 steps (two
points on sparse logs). Warning: the same for twice as long. Where the number of rollouts is known, so many points are taken
together that 256 reasonings are compared, and their sampling noise is taken off the limit. Steps with fewer than 80 % valid
reasoning or action blocks do not count: broken output is easy to retrieve. A recovery clears only above 70 % of the first mean,
on valid steps with some success. A run that never was 15 points above guessing is not judged. A rising outcome does not hold it
back: the reward may well pay for reasoning that ignores the prompt, and success falls last.

Example
-------
>>> import numpy as np, pandas as pd
>>> from echotrap.detector import Level, episodes
>>> from echotrap.record import Run
>>> accuracy = np.concatenate((np.full(40, 0.8), np.full(60, 0.3)))
>>> run = Run("example", "-", "frame", pd.DataFrame({"retrieval_acc": accuracy}, index=pd.Index(range(1, 101), name="step")))
>>> [episode] = episodes(DETECTOR(run))
>>> episode.onset_step, episode.alarm_steps[Level.WATCH], episode.alarm_steps[Level.WARNING]
(41, 60, 80)

False positives
---------------
Tasks that rightly have one way to think; nearly identical prompts; reasonings of a few words.

What to do
----------
Filter prompts by reward variance (RAGEN-2: top-p .9, no zero-variance groups), lower the KL and entropy coefficients: they are
the same for every prompt and win where the rewards have no spread.

References
----------
RAGEN-2, arXiv 2604.06268, sections 3-5, appendix F and figure 5; mll-lab-nu/RAGEN ``ragen/trainer/collapse_metrics.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from echotrap import stats
from echotrap.detector import Card, Detector, Level, NotEvaluated, Remedy, Track, knob
from echotrap.record import Run


@dataclass(frozen=True)
class Params:
    """Working point; each knob says where it comes from."""

    watch_ratio: float = knob(0.55, least=0.2, most=0.95, low=0.45, high=0.65, source="RAGEN-2 figure 5, test T9")
    clear_ratio: float = knob(0.7, least=0.3, most=1.0, source="between the stable run's minimum and its mean")
    window_steps: int = knob(20, least=1, most=200, low=30, high=10, source="failure catalogue B3")
    sparse_points: int = knob(2, least=1, most=20, source="failure catalogue B3")
    baseline_steps: int = knob(20, least=3, most=500, source="failure catalogue B3")
    valid_share: float = knob(0.8, least=0.0, most=1.0, source="RAGEN-2 figure 12")
    dead_score: float = knob(0.01, least=0.0, most=0.5, source="RAGEN agent_trainer.py, low_validation_success")
    noise_sigma: float = knob(1.64, least=0.0, most=5.0, source="one-sided 95 % of a binomial share")
    compared: int = knob(128, least=1, most=100_000, source="reasonings that the text measure compares at most")
    pooled: int = knob(256, least=1, most=100_000, source="a fifth of the way from 1/8 to 1 is then two standard errors")
    above_chance: float = knob(0.15, least=0.0, most=0.9, source="sampling noise of 64 reasonings is .06")


def detect(run: Run, params: Params) -> Track | NotEvaluated:
    """Judge how well the reasoning can be told apart by prompt."""
    steps, single = run.series("retrieval_acc")
    normal = _first_mean(steps, single, params.baseline_steps)
    chance = run.at("retrieval_chance", steps)
    told_apart = ~(normal - chance <= params.above_chance)  # true where chance is unknown
    if not told_apart.any():
        return NotEvaluated("retrieval accuracy was near guessing from the start")
    compared = np.clip(run.at("rollout_count", steps), 1, params.compared)
    points = np.nan_to_num(np.ceil(params.pooled / compared), nan=1.0).astype(np.int64)
    accuracy = _last_mean(single, points)
    guess = np.nan_to_num(chance)
    ratio = stats.ratio(accuracy - guess, normal - guess)
    invalid = np.zeros(len(steps), bool)
    for name in ("valid_thinking_frac", "valid_action_frac"):
        invalid |= run.at(name, steps) < params.valid_share
    dead = run.at("success_rate" if run.has("success_rate") else "eval_score", steps) < params.dead_score
    limit = guess + params.watch_ratio * (normal - guess)
    limit = limit - np.nan_to_num(params.noise_sigma * np.sqrt(limit * (1 - limit) / (points * compared)))
    low = (accuracy < limit) & told_apart & ~invalid
    below = stats.latch(low, (ratio > params.clear_ratio) & ~invalid & ~dead)
    sparse = stats.spacing(steps) >= 5

    def lasting(times: int) -> stats.Held:
        dense = stats.held(below, steps, times * params.window_steps)
        few = stats.held(below, np.arange(len(steps)), times * params.sparse_points)
        return stats.Held(np.where(sparse, few.on, dense.on), dense.since)

    level, onset = stats.ladder(lasting(1), lasting(2))
    above = np.where(np.isfinite(chance), " above guessing", "")
    evidence = {"value": accuracy, "baseline": normal, "ratio": ratio, "chance": chance, "above": above}
    return Track(steps, level, onset, accuracy, limit, evidence)


def _first_mean(steps: NDArray[np.int64], values: NDArray[np.float64], window_steps: int) -> NDArray[np.float64]:
    """Mean over the first steps; provisional until they are full."""
    running = np.cumsum(values) / np.arange(1, len(values) + 1)
    inside = int(np.searchsorted(steps, steps[0] + window_steps)) if len(steps) else 0
    running[inside:] = running[inside - 1 : inside]
    return np.asarray(running, np.float64)


def _last_mean(values: NDArray[np.float64], points: NDArray[np.int64]) -> NDArray[np.float64]:
    """Mean of as many of the latest points as are asked for at each; of all so far where there are fewer."""
    sums = np.concatenate(([0.0], np.cumsum(values)))
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - points, 0)
    return np.asarray((sums[ends] - sums[starts]) / (ends - starts), np.float64)


DETECTOR = Detector(
    card=Card(
        id="template-collapse",
        code="B3",
        title="the reasoning no longer depends on the prompt",
        family="text",
        highest=Level.WARNING,
        tier="extension",
        needs=(("retrieval_acc",),),
        uses=("retrieval_chance", "rollout_count", "valid_thinking_frac", "valid_action_frac", "success_rate", "eval_score"),
        gates=("min-data", "raw-input", "warmup", "declared-event", "solved"),
        message="retrieval accuracy fell from {baseline:.2f} to {value:.2f}, {ratio:.0%} of its early level{above}",
        remedies=(
            Remedy(
                "Filter prompts by reward variance, without zero-variance groups",
                {
                    "RAGEN": "actor_rollout_ref.rollout.rollout_filter_value=0.9 rollout_filter_include_zero=False",
                    "verl": "algorithm.filter_groups.enable=True",
                    "OpenRLHF": "--dynamic_filtering",
                },
                cost="a third to two thirds of the rollouts are not used",
            ),
            Remedy(
                "Lower the KL and entropy coefficients",
                {
                    "verl": "actor_rollout_ref.actor.kl_loss_coef=0.0001 actor_rollout_ref.actor.entropy_coeff=0",
                    "TRL": "beta=0.0",
                    "OpenRLHF": "--init_kl_coef 0",
                },
            ),
        ),
        references=("arXiv 2604.06268", "RAGEN ragen/trainer/collapse_metrics.py"),
        units={"value": "0..1", "baseline": "0..1", "chance": "0..1", "ratio": "ratio"},
    ),
    params=Params(),
    detect=detect,
)
