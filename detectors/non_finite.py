"""A metric of the update is NaN or infinite.

What it looks at
----------------
Every value that was logged and is not finite, in any spelling (NaN, Infinity, a string, null), and dense signals that go missing
while others are still logged.

Why it matters
--------------
An overflow or a corrupted log-probability has reached the update. Weights touched by it do not recover, and what follows looks
like other failures: output of one repeated symbol is numerical corruption, not an Echo Trap.

How it decides
--------------
* critical, from one row: loss, gradient norm, KL, entropy, importance ratio or a log-probability gap is NaN or infinite.
* warning: the reward or its spread is; or a dense update metric is null or missing while others go on, which is a suspicion.
* critical: that suspicion on three rows in a row.

A key that was never finite in the whole run was not measured: only a watch, unless it is the loss or the gradient. The event
stays up for 20 steps after the last such row.

Example
-------
>>> import numpy as np, pandas as pd
>>> from echotrap.detector import episodes
>>> from echotrap.record import NonFinite, Run
>>> frame = pd.DataFrame({"loss": [0.1, 0.2, np.nan, 0.1]}, index=pd.Index(range(1, 5), name="step"))
>>> run = Run("example", "-", "frame", frame, nonfinite=(NonFinite(3, "loss", "nan"),))
>>> [episode] = episodes(DETECTOR(run))
>>> episode.onset_step, episode.level.name
(3, 'CRITICAL')

False positives
---------------
Evaluation rows that pad a table with NaN; verl's means over a batch that was aborted as a whole; metrics that a framework fills
in every other step.

What to do
----------
Restart from the last checkpoint with finite values; never wait and see. Clamp the log-ratio at 20, compute log-probabilities and
the head in fp32, check the attention kernel and the sampler's version.

References
----------
verl#721, verl#1581, verl#3025; TRL#3015, TRL#6549 (overflow of the K3 estimator); open-r1#555; OpenRLHF#1335; RAGEN#52.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from echotrap import stats
from echotrap.detector import Card, Detector, Level, NotEvaluated, Remedy, Track, knob
from echotrap.record import Run

ALWAYS = frozenset({"loss", "policy_loss", "grad_norm"})
UPDATE = ALWAYS | {
    "value_loss", "critic_grad_norm", "kl_ref", "kl_old", "entropy", "is_ratio_mean", "is_ratio_min", "is_ratio_std",
    "logprob_gap", "prob_gap", "mismatch_kl", "logp_correct", "logp_incorrect",
}  # fmt: skip
REWARD = frozenset({"reward_mean", "reward_std", "group_reward_std", "success_rate"})


@dataclass(frozen=True)
class Params:
    """Working point; each knob says where it comes from."""

    suspect_rows: int = knob(3, least=1, most=50, low=5, source="failure catalogue C4")
    quiet_steps: int = knob(20, least=1, most=500, source="failure catalogue 9.5")


def detect(run: Run, params: Params) -> Track | NotEvaluated:
    """Judge values that are not finite."""
    if not len(run.steps) or not (run.nonfinite or np.isfinite(run.metrics.to_numpy()).any()):
        return NotEvaluated("nothing was logged")
    steps = run.steps
    n = len(steps)
    certain, other, unmeasured, suspect = (np.zeros(n, bool) for _ in range(4))
    count = np.zeros(n)
    words = np.full(n, "", dtype=object)
    measured = {name: run.has(name) or name in ALWAYS for name in {item.field for item in run.nonfinite}}
    for item in run.nonfinite:
        at = int(np.searchsorted(steps, item.step))
        if at >= n or steps[at] != item.step or item.field not in UPDATE | REWARD:
            continue
        if not measured[item.field]:
            unmeasured[at] = True
        elif item.field in REWARD:
            other[at] |= item.certain
        elif item.certain:
            certain[at] = True
        else:
            suspect[at] = True
        count[at] += 1
        words[at] = ", ".join(filter(None, (words[at], f"{item.field} {item.spelling}")))
    row = np.arange(n)
    quiet = params.quiet_steps
    level, onset = stats.ladder(
        stats.lingering(unmeasured, steps, quiet),
        stats.lingering(other | suspect, steps, quiet),
        stats.lingering(certain | stats.held(suspect, row, params.suspect_rows).on, steps, quiet),
    )
    seen = np.maximum.accumulate(np.where(count > 0, row, -1))  # between events the last one is told
    last = np.where(seen >= 0, steps[np.maximum(seen, 0)], np.nan).astype(np.float64)
    what = words.astype(np.str_)[np.maximum(seen, 0)]
    evidence = {"count": count, "what": what, "rows": np.cumsum(count > 0).astype(np.float64), "last": last}
    return Track(steps, level, onset, count, np.zeros(n), evidence)


DETECTOR = Detector(
    card=Card(
        id="non-finite",
        code="C4",
        title="a metric of the update is NaN or infinite",
        family="numerics",
        highest=Level.CRITICAL,
        needs=(),
        uses=tuple(sorted(UPDATE | REWARD)),
        gates=(),
        message="not finite at {rows:.0f} steps so far, last at step {last:.0f}: {what}",
        remedies=(
            Remedy(
                "Go back to the last checkpoint whose metrics were finite",
                {"verl": "trainer.resume_mode=resume_path trainer.resume_from_path=...", "TRL": "resume_from_checkpoint=..."},
            ),
            Remedy(
                "Log-probabilities and head in fp32, log-ratios clamped, another attention kernel",
                {
                    "verl": "actor_rollout_ref.model.override_config.attn_implementation=sdpa",
                    "TRL": "cast_lm_head_to_fp32=True",
                },
                cost="some memory and speed",
            ),
            Remedy(
                "Lower the learning rate, clip the gradient",
                {"verl": "actor_rollout_ref.actor.grad_clip=0.5", "TRL": "max_grad_norm=0.5"},
            ),
        ),
        references=("verl#721", "verl#3025", "TRL#3015", "OpenRLHF#1335", "RAGEN#52"),
    ),
    params=Params(),
    detect=detect,
)
