"""Every rollout gets the same lowest reward: the format has broken down.

What it looks at
----------------
The mean reward and its spread, against the format floor (turns x format penalty) where the configuration gives it, else against
the lowest reward seen; and the share of turns with a parseable action.

Why it matters
--------------
When every turn is invalid the return is one constant, in every group. Nothing can be learned from there. Four of RAGEN's five
published collapses end on this floor; it is the cleanest critical alarm there is.

How it decides
--------------
Only for a run that has been off the floor before, for most of 20 steps.

* critical, floor known: mean reward within 10 % of one penalty of ``max_turns x format_penalty`` and reward spread at most 2 %
  of its baseline, on one point.
* floor unknown: mean reward within 1 % of its range of the lowest seen, with no spread, on ``k`` points in a row and 5 steps
  (warning) or 10 steps (critical). ``k`` grows with how often the run has touched its floor before, so that small batches which
  fail as a whole now and then are not taken for a collapse: ``q^k < 0.001``, ``q`` the share of earlier such points.
* critical: valid actions below 0.2 on two points, after a baseline above 0.5; not where the length limit broke them (the share of
  cut answers is at least 0.7 of the invalid share).

Example
-------
>>> import numpy as np, pandas as pd
>>> from echotrap.detector import Level, episodes
>>> from echotrap.record import Run, RunConfig
>>> reward = np.concatenate((np.linspace(-0.1, 0.3, 40), np.full(20, -0.5)))
>>> std = np.concatenate((np.full(40, 0.4), np.zeros(20)))
>>> frame = pd.DataFrame({"reward_mean": reward, "group_reward_std": std}, index=pd.Index(range(1, 61), name="step"))
>>> [known] = episodes(DETECTOR(Run("example", "-", "frame", frame, config=RunConfig(max_turns=5, format_penalty=-0.1))))
>>> [unknown] = episodes(DETECTOR(Run("example", "-", "frame", frame)))
>>> known.alarm_steps[Level.CRITICAL], unknown.alarm_steps[Level.WARNING], unknown.alarm_steps[Level.CRITICAL]
(41, 45, 50)

False positives
---------------
A cold start (excluded: the run must have been better); tasks like Sokoban where five ineffective moves cost as much as five
invalid ones: read it as "floor, or no effective move".

What to do
----------
Roll back to before the validity fell; warm up the format by supervised fine-tuning; constrained decoding; look at the parser if
the fall came in one step.

References
----------
RAGEN, arXiv 2504.20073, recovered curves; ``es_manager.format_penalty`` in RAGEN's configuration.
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

    penalty_tolerance: float = knob(0.1, least=0.0, most=0.5, source="failure catalogue A9: 0.01 at RAGEN's penalty of 0.1")
    range_tolerance: float = knob(0.01, least=0.0, most=0.1, source="failure catalogue A9")
    spread_ratio: float = knob(0.02, least=0.0, most=0.2, source="failure catalogue A9")
    chance: float = knob(0.001, least=1e-9, most=0.1, low=1e-5, high=0.01, source="small batches that fail as a whole")
    warning_steps: int = knob(5, least=1, most=100, low=10, high=3, source="failure catalogue 3.2")
    critical_steps: int = knob(10, least=1, most=200, low=20, source="verl run whose answers shrank to one token")
    valid_share: float = knob(0.2, least=0.0, most=0.5, source="failure catalogue A9")
    cut_share: float = knob(0.7, least=0.1, most=1.0, source="recorded runs whose answers go on into the limit")
    valid_before: float = knob(0.5, least=0.2, most=1.0, source="gate was-normal")


SPREAD = ("group_reward_std", "zero_std_frac", "reward_std", "reward_max")


def detect(run: Run, params: Params) -> Track | NotEvaluated:
    """Judge whether the reward is pinned at its floor."""
    steps, reward = run.series("reward_mean" if run.has("reward_mean") else "valid_action_frac")
    floor = np.full(len(steps), np.nan)
    pinned = np.zeros(len(steps), bool)
    warning = critical = stats.never(steps)
    if run.has("reward_mean") and any(run.has(name) for name in SPREAD):
        flat = _no_spread(run, steps, reward, params)
        turns, penalty = run.config.max_turns, run.config.format_penalty
        if turns and penalty:
            floor[:] = -abs(penalty) * turns
            pinned = flat & (np.abs(reward - floor) <= params.penalty_tolerance * abs(penalty))
            critical = stats.held(pinned & _was_off(pinned, steps), steps, 1)
        else:
            lowest, highest = stats.running_min(reward), stats.running_max(reward)
            floor = lowest
            pinned = flat & (reward - lowest <= params.range_tolerance * (highest - lowest))
            sunk = pinned & _was_off(pinned, steps) & (highest > lowest)
            warning, critical = (
                stats.held(sunk, steps, window, chance=params.chance) for window in (params.warning_steps, params.critical_steps)
            )
    valid = run.at("valid_action_frac", steps)
    critical = stats.either(critical, _invalid(run, steps, params))
    level, onset = stats.ladder(stats.never(steps), warning, critical)
    evidence = {
        "value": np.where(pinned, run.at("reward_mean", steps), valid),
        "floor": np.where(pinned, floor, params.valid_share),
        "what": np.where(pinned, "the reward is pinned at its floor", "actions are no longer valid"),
    }
    return Track(steps, level, onset, reward, floor, evidence)


def _was_off(pinned: stats.Flags, steps: stats.Steps) -> stats.Flags:
    """Whether the run has ever been off the floor for most of 20 steps: one lucky rollout is no normal state."""
    off = stats.trailing((~pinned).astype(np.float64), steps, 20, "mean") >= 0.5
    off[:2] = False
    return np.asarray(np.logical_or.accumulate(off))


def _no_spread(run: Run, steps: stats.Steps, reward: stats.Floats, params: Params) -> stats.Flags:
    """Whether all rollouts got the same reward, by whichever witness the log has."""
    tiny = 1e-6 * np.maximum(stats.running_max(np.abs(reward)), 1e-6)
    flags = []
    for name in ("group_reward_std", "reward_std"):
        at, values = run.series(name)
        normal = stats.baseline(values, at, arm_steps=run.arm_steps)
        flat = values <= params.spread_ratio * np.nan_to_num(normal)
        if run.has(name):
            flags.append(stats.as_of(flat, at, steps, False) | (run.at(name, steps) <= tiny))
    if run.has("zero_std_frac"):
        flags.append(run.at("zero_std_frac", steps) >= 0.999)
    if run.has("reward_max") and run.has("reward_min"):
        flags.append(run.at("reward_max", steps) - run.at("reward_min", steps) <= tiny)
    return np.asarray(np.any(flags, axis=0)) if flags else np.zeros(len(steps), bool)


def _invalid(run: Run, steps: stats.Steps, params: Params) -> stats.Held:
    at, valid = run.series("valid_action_frac")
    before = stats.baseline(valid, at, off_factor=None, off_by=0.3, arm_steps=run.arm_steps) > params.valid_before
    by_cut = run.at("truncated_frac", at) >= params.cut_share * (1 - valid)  # the length limit broke them: see `truncation`
    flag = stats.held(before & (valid < params.valid_share) & ~by_cut, at, 2)
    return stats.spread(flag, at, steps)


DETECTOR = Detector(
    card=Card(
        id="format-floor",
        code="A9",
        title="every rollout gets the same lowest reward",
        family="reward",
        highest=Level.CRITICAL,
        needs=(("reward_mean", "valid_action_frac"), (*SPREAD, "valid_action_frac")),
        uses=("reward_min", "valid_action_frac", "truncated_frac"),
        gates=("declared-event",),
        message="{what}: {value:.3g} (floor {floor:.3g})",
        remedies=(
            Remedy(
                "Go back to a checkpoint from before the validity fell",
                {"verl": "trainer.resume_mode=resume_path trainer.resume_from_path=...", "TRL": "resume_from_checkpoint=..."},
            ),
            Remedy("Warm up the format by supervised fine-tuning on valid trajectories"),
            Remedy(
                "Constrain decoding to the action grammar",
                {"verl": "actor_rollout_ref.rollout.multi_turn.format=hermes", "TRL": "vllm_guided_decoding_regex=..."},
                cost="hides format errors from the reward",
            ),
        ),
        references=("arXiv 2504.20073", "RAGEN config/base.yaml"),
        units={"value": "reward or 0..1", "floor": "reward or 0..1"},
    ),
    params=Params(),
    detect=detect,
)
