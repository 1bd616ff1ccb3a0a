"""The policy has fallen, or is falling, into the Echo Trap.

What it looks at
----------------
What the other detectors saw, over time: the spread of rewards inside prompt groups, dead groups, the text of the rollouts,
entropy in both directions, the gradient norm, the outcome, and the format floor.

Why it matters
--------------
A multi-turn policy reinforces its own locally rewarded phrases; rollouts of one state converge to the same text and the same
return; group advantages lose their information and the update follows regularisers and noise until the policy cannot recover.
The score may look adequate meanwhile.

How it decides
--------------
A state machine with memory, because the signs occur neither in one step nor in the published order. Memory M is half of the
run so far, at least 50 and at most 200 steps.

* stage 1, forming: `reward-variance-collapse` or `zero-variance-groups` (unless all groups are right) or `template-collapse` or
  `cross-rollout-repetition` at watch.
* stage 2, suspected: stage 1 that has lasted for 10 steps and, within M, an abnormal entropy (`entropy-collapse` or
  `entropy-eruption`) or a repetition detector of another kind at watch, while the outcome sets no new best. Where it stands
  well above its start, spread and entropy fall by convergence too: then the text must speak.
* stage 3, confirmed: stage 2 and, within M, `gradient-spike` or `performance-drop` at warning; or all three published signs
  within M; or `format-floor` at critical while answers are not cut. A true trap may keep an adequate reward; so, while the
  outcome is not improving and the task is not solved, also dispersion and text both at warning within M; and, where the outcome
  does not stand above its start, entropy with two independent measures of the text (shared phrases, and reasoning that no
  longer fits its prompt): rewards that are partly chance keep the spread up while every rollout says the same.
* answers that are nearly all cut have no reward to differ in: unless they share their phrases, that is truncation.
* an entropy eruption whose rollouts repeat nothing, where they were looked at, stays at stage 1: it is garble, no echo.
* it ends when dispersion, text, floor and outcome have been clear for 10 steps.

Stage 1 is a watch (the verdict's label stays), stage 2 a warning, stage 3 critical.

Example
-------
>>> import numpy as np, pandas as pd
>>> from echotrap.detector import Level, Symptoms, episodes
>>> from echotrap.record import Run
>>> steps = np.arange(0, 100, 10)
>>> seen = {
...     "reward-variance-collapse": np.array([0, 0, 0, 1, 1, 1, 1, 2, 2, 2], np.int8),
...     "entropy-eruption": np.array([0, 0, 0, 0, 0, 1, 1, 1, 1, 1], np.int8),
...     "performance-drop": np.array([0, 0, 0, 0, 0, 0, 0, 0, 2, 2], np.int8),
... }
>>> onsets = {name: np.where(level > 0, steps[np.argmax(level > 0)], -1) for name, level in seen.items()}
>>> run = Run("example", "-", "frame", pd.DataFrame(index=pd.Index(steps, name="step")))
>>> never = np.zeros(10, bool)
>>> symptoms = Symptoms(run, steps, seen, onsets, never, never, never, np.full(10, 50.0))
>>> [episode] = episodes(DETECTOR.combine(symptoms, DETECTOR.params))
>>> episode.onset_step, [(int(level), step) for level, step in episode.alarm_steps.items()]
(30, [(1, 30), (2, 50), (3, 80)])

False positives
---------------
A solved task (its gate turns stage 1 into *converged*); batches after a filter; deterministic evaluation prompts mixed in; a
jump of the curriculum; a dead environment.

What to do
----------
Stage 1: keep the prompts with the most in-group reward spread, clip higher, drop the KL term, add a critic, score finer.
Stage 3: stop, go back to a checkpoint from before stage 1 began, lower the learning rate, then the above.

References
----------
RAGEN, arXiv 2504.20073, sections 4 and 5, appendices B.3 and F; RAGEN-2, arXiv 2604.06268; RAGEN ``config/base.yaml``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from echotrap import stats
from echotrap.detector import Card, Detector, Level, NotEvaluated, Remedy, Symptoms, Track, knob
from echotrap.record import Run

DISPERSION = ("reward-variance-collapse", "zero-variance-groups")
TEXT = ("cross-rollout-repetition", "within-rollout-repetition", "template-collapse")
MOSTLY = 0.7
ENTROPY = ("entropy-collapse", "entropy-eruption")


@dataclass(frozen=True)
class Params:
    """Working point of the stage machine."""

    starved_share: float = knob(0.9, least=0.3, most=1.0, source="recorded run whose answers are all cut")
    exit_steps: int = knob(10, least=1, most=200, source="failure catalogue 8.1")


def detect(run: Run, params: Params) -> NotEvaluated:
    """Say that a composite needs the other detectors."""
    return NotEvaluated("a composite: judged from what the other detectors saw")


def combine(symptoms: Symptoms, params: Params) -> Track | NotEvaluated:
    """Walk the stages."""
    families = [
        any(name in symptoms.levels for name in ids)
        for ids in (DISPERSION, TEXT, ENTROPY, ("gradient-spike",), ("performance-drop",))
    ]
    if sum(families) < 2 or not (families[0] or families[1]):
        return NotEvaluated("needs two parts of the signature, dispersion or text among them")
    watch, warning, critical = Level.WATCH, Level.WARNING, Level.CRITICAL
    at, remembered = symptoms.at_least, symptoms.remembered
    stuck = ~symptoms.improving & ~symptoms.solved

    starved = at(watch, "truncation") & (symptoms.run.at("truncated_frac", symptoms.steps) >= params.starved_share)
    starved = remembered(starved | at(warning, "truncation"))
    floor = at(critical, "format-floor") & ~starved  # a cut answer breaks the format too
    dead = at(watch, "zero-variance-groups") & ~_mostly_right(symptoms)
    dispersion = at(watch, "reward-variance-collapse") | dead
    echo = at(watch, "template-collapse", "cross-rollout-repetition")
    text, entropy = at(watch, *TEXT), at(watch, *ENTROPY)
    quiet = ~(dispersion | text | floor | at(watch, "performance-drop"))
    over = stats.held(quiet, symptoms.steps, params.exit_steps).on
    first = dispersion | echo
    unexplained = ~symptoms.risen | echo  # by convergence
    lasts = stats.held(dispersion, symptoms.steps, params.exit_steps).on | echo
    forming = stats.latch(first, over)
    second = forming & remembered(lasts) & (remembered(entropy) | (remembered(dispersion) & text)) & stuck & unexplained
    confirming = at(warning, "gradient-spike", "performance-drop")
    triple = (
        remembered(dispersion)
        & remembered(entropy)
        & remembered(at(warning, "gradient-spike"))
        & (dispersion | entropy | confirming)
    )
    both = remembered(at(warning, *DISPERSION)) & remembered(at(warning, *TEXT)) & stuck & (dispersion | text)
    phrases, fit = at(warning, "cross-rollout-repetition"), at(warning, "template-collapse")
    agreed = remembered(entropy) & phrases & fit & stuck & ~symptoms.risen
    third = (remembered(second) & confirming) | (triple & stuck) | both | agreed
    if "cross-rollout-repetition" in symptoms.levels:  # text was looked at: garble that repeats nothing is an eruption, no echo
        garble = remembered(at(watch, "entropy-eruption")) & ~remembered(text)
        second, third, floor = second & ~garble, third & ~garble, floor & ~garble
    cut = starved & ~phrases  # answers that are cut have no reward to differ in
    second, third = second & ~cut, (third & ~cut) | floor

    stage = np.zeros(len(symptoms.steps), np.int8)
    for height, flag in ((1, first), (2, second), (3, third)):
        stage[stats.latch(flag, over)] = height
    onset = _since(stage > 0, symptoms.onset(stage > 0, *DISPERSION, *TEXT, *ENTROPY, "format-floor"))
    return Track(
        symptoms.steps,
        stage,
        onset,
        stage.astype(np.float64),
        np.full(len(stage), 3.0),
        {"stage": stage.astype(np.float64)},
    )


def _mostly_right(symptoms: Symptoms) -> np.ndarray:
    """Where most of the dead groups are all right: too easy, not echoing."""
    run, steps = symptoms.run, symptoms.steps
    return np.asarray(run.at("zero_std_all_pass_frac", steps) >= MOSTLY * run.at("zero_std_frac", steps))


def _since(up: np.ndarray, onset: np.ndarray) -> np.ndarray:
    """Hold the onset of the first step of each stretch through the stretch."""
    starts = up & ~np.concatenate(([False], up[:-1])) if len(up) else up
    index = np.maximum.accumulate(np.where(starts, np.arange(len(up)), 0)) if len(up) else np.empty(0, np.int64)
    return np.where(up, onset[index], -1) if len(up) else onset


DETECTOR = Detector(
    card=Card(
        id="echo-trap",
        code="A1",
        title="the Echo Trap: reward spread, entropy, gradient and text go together",
        family="composite",
        highest=Level.CRITICAL,
        needs=(),
        uses=("group_reward_std", "zero_std_frac", "entropy", "grad_norm", "reward_mean", "eval_score", "cross_rollout_share"),
        gates=(),
        message="stage {stage:.0f} of 3",
        remedies=(
            Remedy(
                "Train on the prompts with the most in-group reward spread (uncertainty filter, top 25-50 %)",
                {
                    "RAGEN": "actor_rollout_ref.rollout.rollout_filter_value=0.9 (top_p, include_zero=False)",
                    "verl": "algorithm.filter_groups.enable=True algorithm.filter_groups.metric=seq_reward",
                    "TRL": "drop prompts whose groups are constant (dataset filter by pass rate)",
                    "OpenRLHF": "--dynamic_filtering",
                },
                cost="fewer groups per step; it did not rescue RAGEN's GRPO runs",
            ),
            Remedy(
                "Clip higher and drop the KL term",
                {
                    "RAGEN": "actor_rollout_ref.actor.clip_ratio_high=0.28 actor_rollout_ref.actor.use_kl_loss=False",
                    "verl": "actor_rollout_ref.actor.clip_ratio_high=0.28 actor_rollout_ref.actor.use_kl_loss=False",
                    "TRL": "epsilon_high=0.28 beta=0.0",
                    "OpenRLHF": "--eps_clip_low_high 0.2 0.28 --init_kl_coef 0",
                },
                cost="alone it delays the collapse by 20-100 steps; in the recorded small runs a KL term kept the trap away",
            ),
            Remedy(
                "Lower the learning rate; prefer a critic (PPO) to group baselines",
                {
                    "RAGEN": "algorithm.adv_estimator=gae actor_rollout_ref.actor.optim.lr=5e-7",
                    "verl": "algorithm.adv_estimator=gae actor_rollout_ref.actor.optim.lr=5e-7",
                    "TRL": "learning_rate=5e-7",
                    "OpenRLHF": "--advantage_estimator gae --actor_learning_rate 5e-7",
                },
                cost="slower; a critic is fragile in very random environments",
            ),
            Remedy("Score in finer steps than right or wrong (tool, argument names, argument values)", {}),
        ),
        references=("arXiv 2504.20073 sec. 4-5", "arXiv 2604.06268", "RAGEN config/base.yaml"),
    ),
    params=Params(),
    detect=detect,
    combine=combine,
)
