"""Most prompt groups give no gradient: all their rollouts got the same reward.

What it looks at
----------------
The share of prompt groups whose rewards are all equal, against the run's own first steps and, where accuracy and group size are
known, against what chance alone produces. Where the log says so, which kind: all right, all wrong, or copies of one another.

Why it matters
--------------
A group without spread has zero advantage: its rollouts are paid for and teach nothing. It is the earliest reward-side sign of
an Echo Trap: in RAGEN-2's Sokoban run half of the groups are dead 50 steps before success halves, while the mean in-group
standard deviation still looks normal.

How it decides
--------------
``excess = share - (p^G + (1-p)^G)``, the second term being what independent rollouts of accuracy ``p`` in groups of ``G`` give
(0.43 at p = 0.9, G = 8). Shares are 5-step means.

* watch: share at least 0.5, at least 0.3 above baseline and at least 0.2 in excess, for 5 steps; or nearly every group dead
  (0.9) for 10 steps whatever the baseline, which is then a matter of the configuration.
* warning: the same above 0.6 for 10 steps; or nothing left after a filter for 5 steps; or 0.97 and
  more for 20 steps, whatever it was at the start.

When the all-right groups make up most of the dead ones it stays a watch: the prompts are too easy.

Example
-------
>>> import numpy as np, pandas as pd
>>> from echotrap.detector import Level, episodes
>>> from echotrap.record import Run
>>> share = np.concatenate((np.full(40, 0.1), np.linspace(0.1, 0.8, 15), np.full(20, 0.8)))
>>> frame = pd.DataFrame({"zero_std_frac": share}, index=pd.Index(range(1, 76), name="step"))
>>> [episode] = episodes(DETECTOR(Run("example", "-", "frame", frame)))
>>> episode.onset_step, episode.alarm_steps[Level.WATCH], episode.alarm_steps[Level.WARNING]
(51, 55, 63)

False positives
---------------
Tiny groups and very high or low accuracy (the chance term grows); the end of training on a fixed set; TRL with
``scale_rewards="batch"`` logs only 0 or 1. Many sound runs have half of their groups constant from the first step: that alone
is no alarm. A noisy verifier hides it by breaking ties.

What to do
----------
Look which side the dead groups are on. All wrong: easier prompts, partial credit, larger groups. All right: harder prompts,
drop the solved ones. Copies: treat it as the Echo Trap. Dynamic sampling keeps the batch full either way.

References
----------
RAGEN-2, arXiv 2604.06268, figure 10; DAPO, arXiv 2503.14476; advantage collapse, arXiv 2605.21125 (explains 62 % of the variance
of the final score over 245 configurations).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from echotrap import stats
from echotrap.detector import Card, Detector, Level, NotEvaluated, Remedy, Track, knob
from echotrap.record import Run

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Params:
    """Working point; each knob says where it comes from."""

    watch_share: float = knob(0.5, least=0.2, most=0.95, low=0.6, high=0.45, source="failure catalogue A3; RAGEN-2 figure 10")
    warning_share: float = knob(0.6, least=0.3, most=0.99, low=0.8, high=0.6, source="failure catalogue A3")
    dead_share: float = knob(0.9, least=0.5, most=1.0, source="openr1-like runs are sound at 0.56-0.86")
    total_share: float = knob(0.97, least=0.5, most=1.0, source="no signal at all, whatever it was at the start")
    total_steps: int = knob(20, least=1, most=500, source="no signal at all, whatever it was at the start")
    rise: float = knob(0.3, least=0.05, most=0.9, low=0.4, high=0.2, source="failure catalogue A3")
    excess: float = knob(0.2, least=0.0, most=0.9, source="p^G + (1-p)^G of equal prompts; unequal ones add about 0.1-0.2")
    easy_part: float = knob(0.7, least=0.5, most=1.0, source="share of the dead groups that are all right")
    watch_steps: int = knob(5, least=1, most=100, low=10, high=3, source="failure catalogue A3")
    warning_steps: int = knob(10, least=1, most=200, low=20, high=5, source="failure catalogue A3")
    smooth_steps: int = knob(5, least=1, most=50, source="with two groups a step the share is 0, 0.5 or 1")
    baseline_steps: int = knob(20, least=3, most=500, source="failure catalogue 3.2")


def detect(run: Run, params: Params) -> Track | NotEvaluated:
    """Judge the share of groups without reward spread."""
    if not run.has("zero_std_frac"):
        return _empty_filter(run)
    steps, values = run.series("zero_std_frac")
    share = stats.trailing(values, steps, params.smooth_steps, "mean")
    normal = stats.baseline(
        share, steps, window_steps=params.baseline_steps, off_factor=None, off_by=params.rise, arm_steps=run.arm_steps
    )
    chance = _chance(run, steps, params)
    excess = np.where(np.isfinite(chance), share - chance, share)
    changed = (share >= normal + np.maximum(params.rise, 3 * _error(values, steps, params))) & (excess >= params.excess)
    kept = share < normal + params.rise / 2
    side, easy = _side(run, steps, share, params)

    watch = stats.either(
        stats.held(changed & (share >= params.watch_share), steps, params.watch_steps, release=kept),
        stats.held(share >= params.dead_share, steps, params.warning_steps),
    )
    warning = stats.either(
        stats.held(changed & (share > params.warning_share), steps, params.warning_steps, release=kept),
        stats.held(_nothing_kept(run, steps), steps, params.watch_steps),
        stats.held(share >= params.total_share, steps, params.total_steps),
    )
    warning = stats.Held(warning.on & ~easy, warning.since)
    level, onset = stats.ladder(watch, warning)
    evidence = {
        "share": share,
        "baseline": normal,
        "chance": chance,
        "excess": excess,
        "side": side,
        "filtering": filtering(_dispersion(run, steps)),
    }
    return Track(steps, level, onset, share, np.full(len(steps), params.watch_share), evidence)


FILTER_FROM = 0.75  # RAGEN-2: filtering gained 4.6 and 3.2 points at 1.29 and 1.16, and lost 5.0 at 0.33


def filtering(dispersion: Floats) -> NDArray[np.str_]:
    """Whether choosing groups by their reward variance will help, from its standard deviation over its mean.

    Examples
    --------
    >>> filtering(np.array([1.29, 1.16, 0.33, np.nan])).tolist()
    ['advised', 'advised', 'not advised', 'unknown']
    """
    known = np.where(dispersion >= FILTER_FROM, "advised", "not advised")
    return np.asarray(np.where(np.isfinite(dispersion), known, "unknown"))


def _dispersion(run: Run, steps: NDArray[np.int64]) -> Floats:
    at, values = run.series("group_variance_dispersion")
    return stats.as_of(stats.trailing(values, at, 10, "mean"), at, steps, np.nan)


def _error(values: Floats, steps: NDArray[np.int64], params: Params) -> Floats:
    """Standard error of the smoothed share: with two groups a step it is large."""
    return np.nan_to_num(stats.noise(values, how="mean")) / np.sqrt(stats.points_in(steps, params.smooth_steps))


def _accuracy(run: Run, steps: NDArray[np.int64], smooth_steps: int) -> Floats:
    """Share of right rollouts over the last steps: logged, or the reward where its range is known or is 0..1."""
    at, values = run.series("success_rate" if run.has("success_rate") else "reward_mean")
    if not run.has("success_rate"):
        low, high = run.config.reward_min, run.config.reward_max
        if low is None or high is None or high <= low:
            low, high = 0.0, 1.0
        values = (values - low) / (high - low)
        inside = (stats.running_min(values) >= 0) & (stats.running_max(values) <= 1)
        values = np.where(inside, values, np.nan)
    return stats.as_of(stats.trailing(values, at, smooth_steps, "mean"), at, steps, np.nan)


def _chance(run: Run, steps: NDArray[np.int64], params: Params) -> Floats:
    """Expected share of constant groups of independent rollouts; NaN where accuracy or group size is unknown."""
    size = np.where(run.has("group_size"), run.at("group_size", steps), float(run.config.group_size or np.nan))
    accuracy = _accuracy(run, steps, params.smooth_steps)
    return accuracy**size + (1 - accuracy) ** size


def _side(run: Run, steps: NDArray[np.int64], share: Floats, params: Params) -> tuple[NDArray[np.str_], NDArray[np.bool_]]:
    """Which kind of group is dead, in words, and whether it is mostly the solved kind."""
    right, wrong, copies = (run.at(f"zero_std_{kind}_frac", steps) for kind in ("all_pass", "all_fail", "copies"))
    accuracy = _accuracy(run, steps, 4 * params.smooth_steps)
    part = params.easy_part * share
    easy = np.where(np.isfinite(right), right >= part, accuracy >= params.easy_part)
    words = np.select(
        [easy, copies >= part, np.where(np.isfinite(wrong), wrong >= part, accuracy < 0.3), np.isfinite(right + wrong)],
        ["mostly all right", "mostly copies of one another", "mostly all wrong", "of mixed kinds"],
        "of unknown kind",
    )
    return words, easy


def _nothing_kept(run: Run, steps: NDArray[np.int64]) -> NDArray[np.bool_]:
    return np.asarray(run.at("filter_kept_frac", steps) <= 0)


def _empty_filter(run: Run) -> Track:
    """The same judgement for a log that only says what its filter kept."""
    steps, kept = run.series("filter_kept_frac")
    level, onset = stats.ladder(stats.never(steps), stats.held(kept <= 0, steps, 5))
    unknown = np.full(len(steps), np.nan)
    normal = stats.baseline(1 - kept, steps, off_factor=None, off_by=0.3, arm_steps=run.arm_steps)
    evidence = {"share": 1 - kept, "baseline": normal, "chance": unknown, "excess": unknown, "side": "left out by the filter"}
    return Track(steps, level, onset, 1 - kept, np.ones(len(steps)), evidence)


DETECTOR = Detector(
    card=Card(
        id="zero-variance-groups",
        code="A3",
        title="most prompt groups give no gradient",
        family="reward",
        highest=Level.WARNING,
        needs=(("zero_std_frac", "filter_kept_frac"),),
        uses=(
            "zero_std_all_pass_frac",
            "zero_std_all_fail_frac",
            "zero_std_copies_frac",
            "success_rate",
            "reward_mean",
            "group_size",
            "filter_kept_frac",
            "group_variance_dispersion",
        ),
        gates=("min-data", "raw-input", "warmup", "declared-event", "solved", "not-improving", "not-risen"),
        message="{share:.0%} of the groups have no reward spread ({side}); baseline {baseline:.0%}",
        remedies=(
            Remedy(
                "Sample until the batch is full of groups with spread",
                {
                    "verl": "algorithm.filter_groups.enable=True algorithm.filter_groups.metric=acc",
                    "RAGEN": "actor_rollout_ref.rollout.rollout_filter_value=0.9 rollout_filter_type=std",
                    "OpenRLHF": "--dynamic_filtering --dynamic_filtering_reward_range 0.01 0.99",
                    "TRL": "filter the dataset to a pass rate of 0.1-0.9",
                },
                cost="more rollouts a step",
            ),
            Remedy(
                "Larger groups, partial credit in the reward",
                {"verl": "actor_rollout_ref.rollout.n=16", "TRL": "num_generations=16", "OpenRLHF": "--n_samples_per_prompt 16"},
                cost="compute grows with the group size",
            ),
        ),
        references=("arXiv 2604.06268 fig. 10", "arXiv 2503.14476", "arXiv 2605.21125"),
        units={"share": "0..1", "baseline": "0..1", "chance": "0..1", "excess": "0..1"},
    ),
    params=Params(),
    detect=detect,
)
