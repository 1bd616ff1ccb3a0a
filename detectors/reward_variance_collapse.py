"""Rollouts of one prompt all get the same reward.

What it looks at
----------------
The in-group reward standard deviation (mean over prompt groups, before any filter) or, where rollouts allow it, the
within-group share of the reward variance R_w. Both against the run's own first steps.

Why it matters
--------------
Group-relative advantages are differences inside a group. When the policy has become deterministic per prompt there are none
left: regularisers and noise steer the update. RAGEN calls this the first of the Echo Trap's three signs; on its recovered
curves it confirms a collapse rather than announcing one.

How it decides
--------------
``ratio = value / baseline``, baseline = median of the first 20 steps, times what a rising outcome leaves of the spread by
itself (``sqrt(p (1 - p))`` against its start, where the scale of the reward is known; where it is not, an outcome that stands
well above its start explains any fall, and no more than a watch is given).

* R_w, while the reward is neither at its floor nor at its ceiling (it is undefined there): watch when ``ratio < 0.5``, warning
  when ``ratio < 0.3``, for 5 steps.
* in-group std: watch when ``ratio < 0.5``, warning when ``ratio < 0.1``, for 5 steps.
* the std of the whole batch, where nothing better is logged: watch when ``ratio < 0.25``, warning when ``ratio < 0.1``. It bounds
  the in-group spread from above.

Each for so long that the signal's own history makes it unlikely (chance 0.05 and 0.001): with a few small groups single steps
have no spread. It clears above 0.7.

``preset="ragen"`` is RAGEN's own stop rule: each of the last 10 steps below 10 % of the mean of the first 10;
``preset="ragen-paper"`` asks for 5 steps, as its appendix B.2 does.

Example
-------
>>> import numpy as np, pandas as pd
>>> from echotrap.detector import STANDARD_GATES, Level, episodes
>>> from echotrap.record import Run
>>> std = np.concatenate((np.full(40, 0.4), np.linspace(0.4, 0.02, 20), np.full(40, 0.02)))
>>> frame = pd.DataFrame({"group_reward_std": std}, index=pd.Index(range(1, 101), name="step"))
>>> [episode] = episodes(DETECTOR(Run("example", "-", "frame", frame)))
>>> episode.onset_step, episode.alarm_steps[Level.WATCH], episode.alarm_steps[Level.WARNING]
(52, 56, 64)

False positives
---------------
A solved task; an all-fail start; a smaller group; reward clipping; dynamic sampling (kept groups have spread by construction);
prompts that polarise into always-right and always-wrong. A one-sample dip of 42 % occurs in RAGEN's healthy run.

What to do
----------
Keep the prompts with the most in-group spread (RAGEN: the top 25-50 % by std), raise the sampling temperature, give a finer
reward, use clip-higher, drop the KL term, add a critic.

References
----------
RAGEN, arXiv 2504.20073, section 4 and appendix B; mll-lab-nu/RAGEN ``ragen/trainer/agent_trainer.py`` and
``docs/guide_filtering_and_loss_scaling.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from echotrap import stats
from echotrap.detector import STANDARD_GATES, Card, Detector, Level, NotEvaluated, Remedy, Track, knob
from echotrap.record import Run


@dataclass(frozen=True)
class Params:
    """Working point; each knob says where it comes from."""

    watch_ratio: float = knob(0.5, least=0.1, most=0.9, low=0.4, high=0.6, source="failure catalogue A2; RAGEN curves")
    warning_ratio: float = knob(0.1, least=0.01, most=0.5, low=0.05, high=0.2, source="RAGEN agent_trainer.py")
    warning_rw_ratio: float = knob(0.3, least=0.05, most=0.7, low=0.2, high=0.4, source="simulated runs: 0 % false alarms")
    clear_ratio: float = knob(0.7, least=0.2, most=1.0, source="failure catalogue 8.1, exit")
    watch_chance: float = knob(0.05, least=1e-6, most=0.9, low=0.001, source="groups of four: single steps without any spread")
    warning_chance: float = knob(0.001, least=1e-9, most=0.5, low=1e-5, high=0.01, source="the same")
    window_steps: int = knob(5, least=1, most=100, low=10, high=3, source="failure catalogue A2")
    baseline_steps: int = knob(20, least=3, most=500, source="failure catalogue 3.2")
    mid_reward_margin: float = knob(0.05, least=0.0, most=0.4, source="failure catalogue 3.3, gate mid-reward")
    preset: Literal["default", "ragen", "ragen-paper"] = "default"


class View(NamedTuple):
    """One measure of the spread against its start, and where it is low for long enough."""

    name: str
    steps: stats.Steps
    values: stats.Floats
    normal: stats.Floats
    ratio: stats.Floats
    watch: stats.Held
    warning: stats.Held


def detect(run: Run, params: Params) -> Track | NotEvaluated:
    """Judge the spread of rewards inside prompt groups."""
    if params.preset != "default":
        return _ragen(run, window_steps=10 if params.preset == "ragen" else 5)
    spread = "group_reward_std" if run.has("group_reward_std") else "reward_std"
    views = [_view(run, name, params) for name in ("rw_ratio", spread) if run.has(name)]
    steps = stats.union(*(view.steps for view in views))
    level, onset = stats.ladder(
        stats.either(*(stats.spread(view.watch, view.steps, steps) for view in views)),
        stats.either(*(stats.spread(view.warning, view.steps, steps) for view in views)),
    )
    ratios = np.array([stats.as_of(view.ratio, view.steps, steps, np.nan) for view in views])
    flagged = np.array([stats.spread(view.watch, view.steps, steps).on for view in views])
    worst = np.argmin(np.where(np.isfinite(ratios), ratios + 10.0 * ~flagged, np.inf), axis=0)  # a flagged view speaks first

    def told(name: str, missing: float | str) -> np.ndarray:
        rows = np.array([stats.as_of(np.asarray(getattr(view, name)), view.steps, steps, missing) for view in views])
        return np.asarray(rows[worst, np.arange(len(steps))])

    evidence = {name: told(key, np.nan) for name, key in (("value", "values"), ("baseline", "normal"), ("ratio", "ratio"))}
    evidence["signal"] = np.array([view.name for view in views])[worst]
    return Track(steps, level, onset, evidence["ratio"], np.full(len(steps), params.watch_ratio), evidence)


def _view(run: Run, name: str, params: Params) -> View:
    """Judge one measure. The batch's own spread holds that between prompts too: only its near end says that of the groups."""
    steps, values = run.series(name)
    normal = stats.baseline(values, steps, window_steps=params.baseline_steps, arm_steps=run.arm_steps)
    watch_ratio, warning_ratio = params.watch_ratio, params.warning_ratio
    at, outcome = run.series("success_rate" if run.has("success_rate") else "reward_mean")
    if name == "rw_ratio":
        warning_ratio = params.warning_rw_ratio
        reward = stats.as_of(outcome, at, steps, np.nan)
        floor, ceiling = stats.running_min(reward), stats.running_max(reward)
        margin = params.mid_reward_margin * (ceiling - floor)
        defined = (reward > floor + margin) & (reward < ceiling - margin)
        sure = defined
    else:
        left = _explained(run, steps, params)
        normal = normal * np.where(np.isfinite(left), left, 1.0)
        watch_ratio = params.watch_ratio if name == "group_reward_std" else params.watch_ratio / 2
        defined = np.ones(len(steps), bool)
        sure = np.isfinite(left) | ~stats.as_of(stats.risen(outcome, at), at, steps, False)
    ratio = stats.ratio(values, normal)
    window = params.window_steps
    back, off = ~(defined & (ratio < params.clear_ratio)), ~(sure & (ratio < params.watch_ratio))
    return View(
        name,
        steps,
        values,
        normal,
        ratio,
        stats.held(defined & (ratio < watch_ratio), steps, window, release=back, chance=params.watch_chance),
        stats.held(sure & (ratio < warning_ratio), steps, window, release=off, chance=params.warning_chance),
    )


def _explained(run: Run, steps: stats.Steps, params: Params) -> stats.Floats:
    """What a rising outcome leaves of the spread by itself: a yes-or-no reward of mean p has the spread sqrt(p (1 - p)).

    NaN where the scale of the outcome is unknown: then nobody can say what convergence would have left.
    """
    share = run.outcome_position(steps)
    spread = np.sqrt(np.clip(share * (1 - share), 0.0, 0.25))
    start = stats.as_of(stats.baseline(share, steps, off_factor=None, window_steps=params.baseline_steps), steps, steps, np.nan)
    before = np.sqrt(np.clip(start * (1 - start), 0.0, 0.25))
    left = np.divide(spread, before, out=np.ones(len(steps)), where=(before > 0) & (share > start))
    return np.where(np.isfinite(share), np.clip(left, 0.0, 1.0), np.nan)


def _ragen(run: Run, window_steps: int) -> Track:
    """RAGEN's stop rule: every one of the last steps below a tenth of the mean of the first ten."""
    steps, values = run.series("group_reward_std")
    first = steps < (steps[0] if len(steps) else 0) + 10
    normal = np.where(first, np.nan, values[first].mean() if first.any() else np.nan)
    if len(steps) and first.all():
        normal[:] = np.nan
    ratio = values / normal
    level, onset = stats.ladder(stats.held(np.zeros(len(steps), bool), steps, 1), stats.held(ratio < 0.1, steps, window_steps))
    evidence = {"signal": "group_reward_std", "value": values, "baseline": normal, "ratio": ratio}
    return Track(steps, level, onset, ratio, np.full(len(steps), 0.1), evidence)


DETECTOR = Detector(
    card=Card(
        id="reward-variance-collapse",
        code="A2",
        title="rewards inside prompt groups have become the same",
        family="reward",
        highest=Level.WARNING,
        needs=(("rw_ratio", "group_reward_std", "reward_std"),),
        uses=("reward_mean", "success_rate", "zero_std_frac"),
        gates=(*STANDARD_GATES, "not-risen"),
        message="{signal} fell to {value:.3g}, {ratio:.0%} of its baseline {baseline:.3g}",
        remedies=(
            Remedy(
                "Train on the prompts with the most in-group reward spread (top 25-50 %)",
                {
                    "RAGEN": "actor_rollout_ref.rollout.rollout_filter_value=0.9 rollout_filter_type=std",
                    "verl": "algorithm.filter_groups.enable=True algorithm.filter_groups.metric=acc",
                    "TRL": "filter the dataset by pass rate; scale_rewards='none'",
                    "OpenRLHF": "--dynamic_filtering --dynamic_filtering_reward_range 0.01 0.99",
                },
                cost="fewer groups per step; on FrozenLake-PPO keeping 50 % removed the collapse",
            ),
            Remedy(
                "Sample more diversely and clip higher",
                {
                    "verl": "actor_rollout_ref.rollout.temperature=1.0 actor_rollout_ref.actor.clip_ratio_high=0.28",
                    "TRL": "temperature=1.0 epsilon_high=0.28",
                    "OpenRLHF": "--temperature 1.0 --eps_clip_low_high 0.2 0.28",
                },
                cost="alone it only delays the collapse, by 20-100 steps",
            ),
        ),
        references=("arXiv 2504.20073 sec. 4", "RAGEN ragen/trainer/agent_trainer.py"),
    ),
    params=Params(),
    detect=detect,
)
