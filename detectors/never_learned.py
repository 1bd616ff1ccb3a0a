"""The run has never learned anything: no success, or a reward that never moved.

What it looks at
----------------
Held-out score and training success; where there is neither, whether the reward has ever moved, and whether any group has had
spread.

Why it matters
--------------
Too hard a task and a broken reward function look the same from outside: compute is spent and nothing happens. It is no collapse,
and its remedies are others.

How it decides
--------------
* watch: training success (10-step mean) has never reached 1 %, for 20 steps.
* warning: the held-out score has not on 5 evaluations (RAGEN-2's own stop); training success has not for 50 steps; or
  a reward that has moved by less than a tenth of itself since the start, while three fifths of the groups had no spread over the
  last 20 steps, for 20 steps and 5 points.

Held-out scores that can be negative are not judged.

Example
-------
>>> import numpy as np, pandas as pd
>>> from echotrap.detector import Level, episodes
>>> from echotrap.record import Run
>>> values = {"reward_mean": np.full(60, -0.1), "zero_std_frac": np.ones(60)}
>>> frame = pd.DataFrame(values, index=pd.Index(range(1, 61), name="step"))
>>> [episode] = episodes(DETECTOR(Run("example", "-", "frame", frame)))
>>> episode.onset_step, episode.alarm_steps[Level.WARNING]
(3, 22)

False positives
---------------
A sparse reward whose first success comes late; a reward that the run does not use (distillation); warm-up.

What to do
----------
Check the reward function on known right answers. Then easier prompts, partial credit, a warm start by supervised fine-tuning,
larger groups.

References
----------
RAGEN ``ragen/trainer/agent_trainer.py`` (low_validation_success).
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

    success: float = knob(0.01, least=0.0, most=0.2, source="RAGEN agent_trainer.py")
    evaluations: int = knob(5, least=2, most=50, low=10, high=3, source="RAGEN agent_trainer.py")
    watch_steps: int = knob(20, least=3, most=500, source="failure catalogue F8")
    warning_steps: int = knob(50, least=5, most=2000, low=100, high=30, source="sound runs may need 30 steps for a first success")
    moved_ratio: float = knob(0.1, least=0.0, most=1.0, source="a toy run whose reward moved by 6 %")
    dead_share: float = knob(0.6, least=0.3, most=1.0, low=0.8, source="failure catalogue A3")


def detect(run: Run, params: Params) -> Track | NotEvaluated:
    """Judge whether anything has been learned."""
    steps = stats.union(*(run.series(name).steps for name in ("eval_score", "success_rate", "reward_mean")))
    at, held_out = run.series("eval_score")
    none = (stats.running_max(held_out) < params.success) & (stats.running_min(held_out) >= 0)
    warning = stats.spread(stats.held_points(none, at, params.evaluations), at, steps)
    at, success = run.series("success_rate")
    none = stats.running_max(stats.trailing(success, at, 10, "mean")) < params.success
    watch = stats.spread(stats.held(none, at, params.watch_steps), at, steps)
    warning = stats.either(
        warning,
        stats.spread(stats.held(none, at, params.warning_steps), at, steps),
        _unmoved(run, steps, params),
    )
    level, onset = stats.ladder(watch, warning)
    shown = run.at("eval_score" if run.has("eval_score") else "success_rate" if run.has("success_rate") else "reward_mean", steps)
    name = next(name for name in ("eval_score", "success_rate", "reward_mean") if run.has(name))
    evidence = {"signal": name, "value": shown, "reward": run.at("reward_mean", steps)}
    return Track(steps, level, onset, shown, np.full(len(steps), params.success), evidence)


def _unmoved(run: Run, steps: stats.Steps, params: Params) -> stats.Held:
    """Whether the reward has stood still since the start, without any spread to learn from."""
    at, reward = run.series("reward_mean")
    moved = stats.running_max(reward) - stats.running_min(reward)
    still = moved <= params.moved_ratio * stats.running_max(np.abs(reward))
    dead_at, dead = run.series("zero_std_frac")
    dead = stats.trailing(dead, dead_at, params.watch_steps, "mean")
    spreadless = stats.as_of(dead, dead_at, at, np.nan) >= params.dead_share
    if not len(dead_at):
        deviation_at, deviation = run.series("group_reward_std" if run.has("group_reward_std") else "reward_std")
        spreadless = stats.as_of(deviation, deviation_at, at, np.nan) <= 1e-6
    flag = still & spreadless & (np.arange(len(at)) >= 2)
    lasting = stats.held(flag, at, params.watch_steps, release=~still)
    often = stats.held(flag, np.arange(len(at)), 5, release=~still)
    return stats.spread(stats.Held(lasting.on & often.on, lasting.since), at, steps)


DETECTOR = Detector(
    card=Card(
        id="never-learned",
        code="F8",
        title="nothing has been learned",
        family="reward",
        tier="run-level",
        highest=Level.WARNING,
        needs=(("eval_score", "success_rate", "reward_mean"),),
        uses=("zero_std_frac", "group_reward_std", "reward_std"),
        gates=("min-data", "declared-event", "solved"),
        message="{signal} is {value:.3g} and has not moved since the run began",
        remedies=(
            Remedy("Score known right answers with the reward function: does it ever pay?"),
            Remedy(
                "Easier prompts, partial credit, larger groups",
                {"verl": "actor_rollout_ref.rollout.n=16", "TRL": "num_generations=16", "OpenRLHF": "--n_samples_per_prompt 16"},
            ),
            Remedy("A warm start by supervised fine-tuning"),
        ),
        references=("RAGEN ragen/trainer/agent_trainer.py",),
    ),
    params=Params(),
    detect=detect,
)
