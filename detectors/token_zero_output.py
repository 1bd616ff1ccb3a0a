"""Rollouts are one symbol, over and over.

What it looks at
----------------
The share and the number of rollouts that are one symbol: more than half ``!`` or a token in angle brackets (``<unk><unk>``), or
nine tenths any other punctuation mark. A repeated letter or word does not count: that is a loop.

Why it matters
--------------
Log-probs that are not a number make the sampler take token 0, which is ``!`` in the vocabularies of Qwen. The weights or the
numerics are broken. It is no Echo Trap: remedies against lost variance do nothing.

How it decides
--------------
Critical at once: more than 1 % of the rollouts, and at least 2 of at least 8.

Example
-------
>>> import numpy as np, pandas as pd
>>> from echotrap.detector import Level, episodes
>>> from echotrap.record import Run
>>> columns = {"single_symbol_frac": [0, 0, 0.25], "single_symbol_count": [0, 0, 8], "rollout_count": [32, 32, 32]}
>>> run = Run("example", "-", "frame", pd.DataFrame(columns, index=pd.Index([1, 2, 3], name="step"), dtype=float))
>>> [episode] = episodes(DETECTOR(run))
>>> episode.onset_step, episode.alarm_steps[Level.CRITICAL]
(3, 3)

False positives
---------------
Padding that was logged as text; tasks that ask for repeated characters.

What to do
----------
Go back to a checkpoint from before the first such step and look for the source of the non-finite values: overflow in the KL
term, half precision, a sampler that lost its weights.

References
----------
mll-lab-nu/RAGEN#52, volcengine/verl#3025, huggingface/open-r1#555 and #587, modelscope/ms-swift#4060.
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

    least_share: float = knob(0.01, least=0.0, most=0.5, low=0.05, source="failure catalogue C12")
    least_count: int = knob(2, least=1, most=100, low=4, source="failure catalogue C12")
    least_rollouts: int = knob(8, least=1, most=1000, source="failure catalogue C12")


def detect(run: Run, params: Params) -> Track | NotEvaluated:
    """Look for rollouts of one symbol."""
    steps, share = run.series("single_symbol_frac")
    rollouts = run.at("rollout_count", steps)
    count = run.at("single_symbol_count", steps)
    count = np.where(np.isfinite(count), count, np.round(share * rollouts))
    if (rollouts < params.least_rollouts).all() and len(steps):
        return NotEvaluated(f"fewer than {params.least_rollouts} rollouts with text at every step")
    flag = (share > params.least_share) & ~(count < params.least_count) & ~(rollouts < params.least_rollouts)
    down = stats.held(np.zeros(len(steps), bool), steps, 1)
    level, onset = stats.ladder(down, down, stats.held(flag, steps, 1))
    evidence = {"value": share, "count": count}
    return Track(steps, level, onset, share, np.full(len(steps), params.least_share), evidence)


DETECTOR = Detector(
    card=Card(
        id="token-zero-output",
        code="C12",
        title="rollouts are one repeated symbol",
        family="numerics",
        highest=Level.CRITICAL,
        needs=(("single_symbol_frac",),),
        uses=("single_symbol_count", "rollout_count"),
        gates=(),  # one row is enough, and nothing excuses it
        message="{value:.0%} of the rollouts are one repeated symbol",
        remedies=(
            Remedy(
                "Go back to a checkpoint from before the first such step; skip updates whose gradient is not finite",
                {"verl": "actor_rollout_ref.actor.grad_clip=1.0", "TRL": "bf16=True max_grad_norm=1.0"},
                cost="the steps since then",
            ),
            Remedy(
                "Look for the overflow: clamp the low-variance KL, sample and train in the same precision",
                {
                    "verl": "actor_rollout_ref.actor.use_kl_loss=False (as a test)",
                    "TRL": "beta=0.0 (as a test)",
                },
            ),
        ),
        references=("mll-lab-nu/RAGEN#52", "volcengine/verl#3025", "huggingface/open-r1#555", "modelscope/ms-swift#4060"),
        units={"value": "0..1", "count": "count"},
    ),
    params=Params(),
    detect=detect,
)
