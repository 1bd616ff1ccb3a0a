"""The policy leaves its reference, or its own sampling policy, too fast.

What it looks at
----------------
KL to the reference policy and KL between sampling and updated policy, in absolute terms and against their own last 50 steps.

Why it matters
--------------
KL grows in every run that learns; it is the speed that tells. A policy that doubles its distance in a few dozen steps has usually
too high a learning rate, and the reward follows later. A single value of many orders of magnitude is an overflowing estimator,
whose gradient is just as large.

How it decides
--------------
KL as 5-step median; ``speed = KL / KL 50 steps ago`` (the first 3 points where the run is younger).

* watch: KL to the reference above 1 nat per token, ``speed > 1.5``, for 5 steps; or KL to the sampling policy above 0.1 for 10.
* warning: above 2, ``speed > 1.5``, for 5 steps; or KL to the sampling policy above 0.1 and three times its median of the last
  50 steps for 5 steps; or a single KL a hundred times its local median and above 10.

Once up, it stays up until KL to the reference is back below 1 (0.05 for the sampling policy).

Example
-------
>>> import numpy as np, pandas as pd
>>> from echotrap.detector import Level, episodes
>>> from echotrap.record import Run
>>> kl = np.concatenate((np.linspace(0, 0.1, 40), 0.1 * 1.2 ** np.arange(25)))
>>> frame = pd.DataFrame({"kl_ref": kl}, index=pd.Index(range(1, 66), name="step"))
>>> [episode] = episodes(DETECTOR(Run("example", "-", "frame", frame)))
>>> episode.onset_step, episode.alarm_steps[Level.WATCH], episode.alarm_steps[Level.WARNING]
(56, 60, 64)

False positives
---------------
Loggers that sum KL over the sequence instead of averaging over tokens; runs without a KL term that learn a new format; a
reference that was just refreshed; K1 estimates cancel and may be negative.

What to do
----------
Lower the learning rate or the updates per batch, add or raise the KL term, refresh the reference deliberately rather than by
accident.

References
----------
M2PO, arXiv 2510.01161 (the mean log-ratio cancels); TRL#3015, slime#2198 (K3 overflow); verl documentation on KL control.
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

    watch_kl: float = knob(
        1.0, least=0.05, most=20.0, low=2.0, high=0.5, source="failure catalogue C5; sound runs stay below 0.2-1.1"
    )
    warning_kl: float = knob(2.0, least=0.1, most=50.0, low=4.0, high=1.0, source="failure catalogue C5")
    speed_ratio: float = knob(1.5, least=1.0, most=20.0, low=2.0, source="a plateau reached slowly is no blow-up")
    old_kl: float = knob(0.1, least=0.005, most=10.0, low=0.2, high=0.05, source="failure catalogue C5")
    overflow_factor: float = knob(100.0, least=10.0, most=1e6, source="K3 overflow")
    overflow_kl: float = knob(10.0, least=1.0, most=1e6, source="K3 overflow")
    window_steps: int = knob(50, least=10, most=1000, source="failure catalogue C5")
    hold_steps: int = knob(5, least=1, most=100, low=10, high=3, source="failure catalogue C5")


def detect(run: Run, params: Params) -> Track | NotEvaluated:
    """Judge how fast the policy moves away."""
    name = "kl_ref" if run.has("kl_ref") else "kl_old"
    steps, values = run.series(name)
    values = np.abs(values)
    level_now = stats.trailing(values, steps, 5)
    usual = stats.local(values, steps, params.window_steps)
    before = _before(level_now, steps, params.window_steps)
    hold = params.hold_steps
    overflow = (values > params.overflow_kl) & (values > params.overflow_factor * usual.centre)
    if name == "kl_ref":
        fast, back = level_now > params.speed_ratio * before, level_now < params.watch_kl
        watch = stats.held(fast & (level_now > params.watch_kl), steps, hold, release=back)
        warning = stats.held(fast & (level_now > params.warning_kl), steps, hold, release=back)
        limit = params.watch_kl
    else:
        far, back = level_now > params.old_kl, level_now < params.old_kl / 2
        watch = stats.held(far, steps, 2 * hold, release=back)
        warning = stats.held(far & (level_now > 3 * usual.centre), steps, hold, release=back)
        limit = params.old_kl
    level, onset = stats.ladder(watch, stats.either(warning, stats.lingering(overflow, steps, 20)))
    evidence = {"signal": name, "value": values, "usual": usual.centre, "before": before}
    return Track(steps, level, onset, level_now, np.full(len(steps), limit), evidence)


def _before(level: stats.Floats, steps: stats.Steps, window_steps: int) -> stats.Floats:
    """The level a window ago, or at the third point where the run is younger; infinite until then."""
    if len(level) < 3:
        return np.full(len(level), np.inf)
    then = np.maximum(np.searchsorted(steps, steps - window_steps, side="right") - 1, 2)
    return np.where(np.arange(len(level)) < 3, np.inf, level[then])


DETECTOR = Detector(
    card=Card(
        id="kl-blowup",
        code="C5",
        title="the policy leaves its reference too fast",
        family="off-policy",
        tier="extension",
        highest=Level.WARNING,
        needs=(("kl_ref", "kl_old"),),
        uses=("reward_mean",),
        gates=STANDARD_GATES,
        tell="alarm",
        message="{signal} {value:.3g}, up from {before:.3g} up to 50 steps before",
        remedies=(
            Remedy(
                "Lower the learning rate, fewer updates per batch",
                {
                    "verl": "actor_rollout_ref.actor.optim.lr=5e-7 actor_rollout_ref.actor.ppo_epochs=1",
                    "TRL": "learning_rate=5e-7 num_iterations=1",
                    "OpenRLHF": "--actor_learning_rate 5e-7",
                },
            ),
            Remedy(
                "Add or raise the KL term",
                {
                    "verl": "actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.actor.kl_loss_coef=0.001",
                    "TRL": "beta=0.04",
                    "OpenRLHF": "--init_kl_coef 0.001",
                },
                cost="slower learning; RAGEN found collapse delayed, not cured, by dropping it",
            ),
        ),
        references=("arXiv 2510.01161", "TRL#3015", "slime#2198"),
        units={"value": "nats/token", "usual": "nats/token", "before": "nats/token"},
    ),
    params=Params(),
    detect=detect,
)
