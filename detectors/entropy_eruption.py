"""Entropy rises: the policy drifts into garble.

What it looks at
----------------
Policy entropy against its own lowest level so far, with the gradient norm and the response length as second witnesses.

Why it matters
--------------
Search and tool agents mostly collapse with *rising* entropy: low-probability tokens after out-of-distribution tool text, negative
gradients that spread, or a sampler that disagrees with the trainer. A one-sided entropy alarm misses two of RAGEN's five
published collapses.

How it decides
--------------
``rise = entropy / lowest so far``, both as 5-step medians, the lowest one once the baseline is full. The rise counts only where
entropy is above half of its baseline (jitter on a dead policy is no eruption) and by more than 3 standard deviations of its own
step-to-step noise.

* watch: ``rise > 1.5`` (for 5 steps where every step is logged, else on one point).
* warning: the same for 10 steps, still rising, above 1.5 times the baseline or 5 times the lowest level: between its start and a
  third of it the entropy of sound runs wanders.
* critical: warning, above the baseline, while the gradient norm is ten times its local median, or responses are twice as long
  as before.

Example
-------
>>> import numpy as np, pandas as pd
>>> from echotrap.detector import Level, episodes
>>> from echotrap.record import Run
>>> entropy = np.concatenate((np.linspace(1.0, 0.8, 40), 0.8 + 0.06 * np.arange(30)))
>>> frame = pd.DataFrame({"entropy": entropy}, index=pd.Index(range(1, 71), name="step"))
>>> [episode] = episodes(DETECTOR(Run("example", "-", "frame", frame)))
>>> episode.onset_step, episode.alarm_steps[Level.WATCH], episode.alarm_steps[Level.WARNING]
(50, 54, 63)

False positives
---------------
Clip-higher or an entropy bonus that was just switched on; harder prompts; new tools; a temperature change. Declare them.

What to do
----------
Check that sampler and trainer agree; mask or reject low-probability tokens; a likelihood-preserving term on correct rollouts;
drop trajectories with void turns; a tighter gradient clip.

References
----------
Cyclical entropy eruption in agent RL, arXiv 2605.27954; INTELLECT-2, arXiv 2505.07291; LLDS, arXiv 2512.04220; Search-R1#162,
verl#1066, verl#2738, rllm#116.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from echotrap import stats
from echotrap.detector import STANDARD_GATES, Card, Detector, Level, NotEvaluated, Remedy, Track, knob
from echotrap.record import Run


@dataclass(frozen=True)
class Params:
    """Working point; each knob says where it comes from."""

    rise_ratio: float = knob(1.5, least=1.1, most=10.0, low=2.0, high=1.3, source="failure catalogue B2; RAGEN curves")
    alive_ratio: float = knob(0.5, least=0.0, most=2.0, source="Sokoban-PPO erupts to 0.8 of its baseline")
    above_ratio: float = knob(
        1.5, least=0.5, most=10.0, low=2.0, high=1.25, source="sound runs wander between their start and a third of it"
    )
    strong_ratio: float = knob(5.0, least=1.5, most=50.0, low=8.0, source="a sound diffusion run wanders by 3.8 in 2,000 steps")
    noise_sigma: float = knob(
        3.0, least=0.0, most=10.0, low=4.0, source="lowest and highest of many noisy medians lie 3 sigma apart"
    )
    watch_steps: int = knob(5, least=1, most=100, low=10, high=3, source="failure catalogue B2")
    warning_steps: int = knob(10, least=1, most=200, low=20, source="failure catalogue B2")
    smooth_steps: int = knob(5, least=1, most=50, source="single noisy steps are no lowest level")
    baseline_steps: int = knob(20, least=3, most=500, source="failure catalogue 3.2")


def detect(run: Run, params: Params) -> Track | NotEvaluated:
    """Judge how far entropy has risen from its lowest level."""
    steps, values = run.series("entropy")
    if not values.any():
        return NotEvaluated("entropy is exactly 0 on every row: it was not measured")
    smooth = stats.trailing(values, steps, params.smooth_steps)
    normal = stats.baseline(values, steps, window_steps=params.baseline_steps, arm_steps=run.arm_steps)
    lowest = _lowest(smooth, steps, normal, run.arm_steps)
    rise = stats.ratio(smooth, lowest)
    log = np.log(np.maximum(values, np.finfo(float).tiny))
    loud = np.exp(params.noise_sigma * np.nan_to_num(stats.noise(log)))
    up = (rise > np.maximum(params.rise_ratio, loud)) & (smooth > params.alive_ratio * normal)
    down = ~(rise > 1 + (params.rise_ratio - 1) / 2)
    sparse = stats.spacing(steps) >= params.watch_steps
    strong = up & ((smooth > params.above_ratio * normal) | (rise > params.strong_ratio))
    watch = stats.either(stats.held(up, steps, params.watch_steps, release=down), stats.held(up & sparse, steps, 1, release=down))
    warning = stats.held(strong & _rising(smooth, steps, params.warning_steps), steps, params.warning_steps, release=down)
    witness = _gradient(run, steps) | _longer(run, steps)
    critical = stats.Held(warning.on & witness & (smooth > normal), warning.since)
    level, onset = stats.ladder(watch, warning, critical)
    evidence = {"value": values, "lowest": lowest, "rise": rise, "baseline": normal}
    return Track(steps, level, onset, rise, np.full(len(steps), params.rise_ratio), evidence)


def _lowest(smooth: stats.Floats, steps: stats.Steps, normal: stats.Floats, arm_steps: tuple[int, ...]) -> stats.Floats:
    """Lowest level since the last change, once there is a baseline."""
    out = np.full(len(smooth), np.nan)
    edges = [0, *np.searchsorted(steps, arm_steps).tolist(), len(steps)]
    for first, stop in itertools.pairwise(edges):
        known = np.where(np.isfinite(normal[first:stop]), smooth[first:stop], np.nan)
        out[first:stop] = stats.running_min(known)
    return out


def _rising(smooth: stats.Floats, steps: stats.Steps, window_steps: int) -> stats.Flags:
    """Whether the level is not below what it was a window ago."""
    then = np.maximum(np.searchsorted(steps, steps - window_steps, side="left"), 0)
    return np.asarray(smooth >= smooth[then])


def _gradient(run: Run, steps: stats.Steps) -> stats.Flags:
    at, grad = run.series("grad_norm")
    at, grad = at[grad > 0], grad[grad > 0]
    return stats.as_of(stats.lingering(grad > 10 * stats.local(grad, at, 50).centre, at, 20).on, at, steps, False)


def _longer(run: Run, steps: stats.Steps) -> stats.Flags:
    at, length = run.series("response_length")
    length = stats.trailing(length, at, 5)
    return stats.as_of(length > 2 * stats.trailing(length, at, 50, "min"), at, steps, False)


DETECTOR = Detector(
    card=Card(
        id="entropy-eruption",
        code="B2",
        title="entropy rises: the policy drifts into garble",
        family="entropy",
        highest=Level.CRITICAL,
        needs=(("entropy",),),
        uses=("grad_norm", "response_length", "reward_mean", "eval_score"),
        gates=(*STANDARD_GATES, "not-improving"),
        message="entropy rose to {value:.3g}, {rise:.1f} times its lowest level {lowest:.3g}",
        remedies=(
            Remedy(
                "Make sampler and trainer agree: same precision and kernels, truncated importance sampling",
                {
                    "verl": "algorithm.rollout_correction.rollout_is=token algorithm.rollout_correction.rollout_is_threshold=2.0",
                    "TRL": "vllm_importance_sampling_correction=True",
                },
            ),
            Remedy(
                "Clip gradients tighter, lower the learning rate",
                {
                    "verl": "actor_rollout_ref.actor.grad_clip=0.1",
                    "TRL": "max_grad_norm=0.1",
                    "OpenRLHF": "--max_norm 0.1",
                },
                cost="delays rather than cures a mismatch",
            ),
            Remedy(
                "Switch off the entropy bonus and a high upper clip",
                {"verl": "actor_rollout_ref.actor.entropy_coeff=0", "TRL": "epsilon_high=0.2"},
            ),
        ),
        references=("arXiv 2605.27954", "arXiv 2505.07291", "arXiv 2512.04220", "verl#1066", "Search-R1#162"),
        units={"value": "nats/token", "lowest": "nats/token", "rise": "of lowest", "baseline": "nats/token"},
    ),
    params=Params(),
    detect=detect,
)
