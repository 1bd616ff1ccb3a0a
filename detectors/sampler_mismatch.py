"""Sampler and trainer disagree about the probability of the same tokens.

What it looks at
----------------
Whichever the log has: the gap of probabilities, their correlation, the KL between the two, the importance ratio and the effective
sample size.

Why it matters
--------------
Rollouts that one engine samples and another one scores are off-policy even when the weights are the same. The error is largest on
low-probability tokens, typically after tool output; it grows, and entropy eruption or a gradient spike follows. Growth tells more
than level.

How it decides
--------------
* watch: correlation below 0.99 for 5 steps; or KL twice its baseline (5-step median, above 0.001) for 20 steps.
* warning: probability gap above 0.01 and 1.5 times its baseline, importance ratio outside 0.5-2, its standard deviation above 1,
  effective sample size below 0.3, or KL above 0.1, each for 5 steps.

Probabilities and log-probabilities are different scales and are never mixed.

Example
-------
>>> import numpy as np, pandas as pd
>>> from echotrap.detector import episodes
>>> from echotrap.record import Run
>>> kl = np.concatenate((np.full(40, 0.001), 0.001 * 1.1 ** np.arange(40)))
>>> frame = pd.DataFrame({"mismatch_kl": kl}, index=pd.Index(range(1, 81), name="step"))
>>> [episode] = episodes(DETECTOR(Run("example", "-", "frame", frame)))
>>> episode.onset_step, dict(episode.alarm_steps)
(51, {<Level.WATCH: 1>: 70})

False positives
---------------
Several images per prompt, quantised sampling, routing flips of mixtures of experts, very long outputs.

What to do
----------
Truncated importance sampling, rejection of odd sequences, the same precision (fp16 or an fp32 head) and kernels on both sides,
routing replay.

References
----------
verl ``docs/algo/rollout_corr.md`` and FAQ; prime-rl ``docs/training.md``; vocabulary pruning, arXiv 2512.23087; MiniMax-M1,
arXiv 2506.13585 (an fp32 head brings the correlation back to 0.99).
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

    prob_gap: float = knob(0.01, least=0.001, most=0.5, low=0.02, source="verl FAQ")
    gap_rise: float = knob(1.5, least=1.0, most=20.0, source="a gap that is large from the first step is a matter of the engines")
    prob_corr: float = knob(0.99, least=0.5, most=1.0, low=0.98, source="failure catalogue C9")
    kl_rise: float = knob(2.0, least=1.2, most=50.0, low=4.0, source="prime-rl docs/training.md")
    least_kl: float = knob(0.001, least=0.0, most=0.1, source="below it the estimate is noise")
    most_kl: float = knob(0.1, least=0.005, most=5.0, source="verl docs/algo/rollout_corr.md")
    ratio_low: float = knob(0.5, least=0.0, most=1.0, source="verl docs/algo/rollout_corr.md")
    ratio_high: float = knob(2.0, least=1.0, most=100.0, source="verl docs/algo/rollout_corr.md")
    ratio_std: float = knob(1.0, least=0.1, most=100.0, source="verl docs/algo/rollout_corr.md")
    ess_share: float = knob(0.3, least=0.01, most=0.9, source="verl docs/algo/rollout_corr.md")
    hold_steps: int = knob(5, least=1, most=100, low=10, high=3, source="failure catalogue 3.2")
    growth_steps: int = knob(20, least=3, most=500, source="failure catalogue C9")


SIGNALS = ("prob_gap", "prob_corr", "mismatch_kl", "logprob_gap")
ALL = (*SIGNALS, "is_ratio_mean", "is_ratio_std", "ess_frac")


def detect(run: Run, params: Params) -> Track | NotEvaluated:
    """Judge how well sampler and trainer agree."""
    names = [name for name in ALL if run.has(name)]
    steps = stats.union(*(run.series(name).steps for name in names))
    watches, warnings = [], []
    for name in names:
        at, values = run.series(name)
        growing, loud = _judge(name, np.abs(stats.trailing(values, at, 5)), at, run, params)
        watches.append(stats.spread(growing, at, steps))
        warnings.append(stats.spread(loud, at, steps))
    level, onset = stats.ladder(stats.either(*watches), stats.either(*warnings))
    grave = np.array([2 * loud.on + growing.on for growing, loud in zip(watches, warnings, strict=True)])
    worst = np.argmax(grave, axis=0)
    value = np.array([run.at(name, steps) for name in names])[worst, np.arange(len(steps))]
    first = stats.baseline(run.series(names[0]).values, run.series(names[0]).steps, arm_steps=run.arm_steps)
    limit = stats.as_of(first, run.series(names[0]).steps, steps, np.nan)
    return Track(steps, level, onset, run.at(names[0], steps), limit, {"signal": np.array(names)[worst], "value": value})


def _judge(name: str, level: stats.Floats, at: stats.Steps, run: Run, params: Params) -> tuple[stats.Held, stats.Held]:
    """One signal: whether it grows, and whether it is too large."""
    normal = np.abs(stats.baseline(run.series(name).values, at, arm_steps=run.arm_steps))
    never = np.zeros(len(at), bool)
    rise = level > params.kl_rise * normal
    if name == "prob_corr":
        return stats.held(level < params.prob_corr, at, params.hold_steps), stats.never(at)
    growing, loud = {
        "prob_gap": (never, (level > params.prob_gap) & (level > params.gap_rise * normal)),
        "mismatch_kl": (rise & (level > params.least_kl), level > params.most_kl),
        "logprob_gap": (rise, never),
        "is_ratio_mean": (never, (level < params.ratio_low) | (level > params.ratio_high)),
        "is_ratio_std": (never, level > params.ratio_std),
        "ess_frac": (never, level < params.ess_share),
    }[name]
    return stats.held(growing, at, params.growth_steps), stats.held(loud, at, params.hold_steps)


DETECTOR = Detector(
    card=Card(
        id="sampler-mismatch",
        code="C9",
        title="sampler and trainer disagree",
        family="off-policy",
        tier="extension",
        highest=Level.WATCH,
        needs=(SIGNALS,),
        uses=("is_ratio_mean", "is_ratio_std", "ess_frac"),
        message="sampler and trainer disagree: {signal} {value:.3g}",
        remedies=(
            Remedy(
                "Correct for it: truncated importance sampling, rejection of odd sequences",
                {
                    "verl": "algorithm.rollout_correction.rollout_is=token algorithm.rollout_correction.rollout_is_threshold=2.0",
                    "TRL": "vllm_importance_sampling_correction=True",
                    "prime-rl": "loss.type=... with a token mask",
                },
            ),
            Remedy(
                "Remove the cause: one precision and one kernel on both sides",
                {
                    "verl": "actor_rollout_ref.rollout.dtype=float16 actor_rollout_ref.actor.fsdp_config.dtype=float16",
                    "TRL": "fp16=True cast_lm_head_to_fp32=True",
                },
            ),
        ),
        references=("verl docs/algo/rollout_corr.md", "prime-rl docs/training.md", "arXiv 2512.23087", "arXiv 2506.13585"),
    ),
    params=Params(),
    detect=detect,
)
