"""A part of the reward works against the outcome, or drowns it.

What it looks at
----------------
Each reward component within prompt groups: its correlation with the outcome, and its share of the reward's variance.

Why it matters
--------------
Advantages are made of within-group differences. A component that goes against the outcome pushes the policy away from it; an easy
one (format, length) that supplies most of the variance decides what is learned.

How it decides
--------------
* watch: a component's correlation with the outcome (10-step mean) is below -.1 and below zero by 2.6 standard errors; or a
  component other than the outcome has more than .7 of the variance; for 10 steps.

Example
-------
>>> import numpy as np, pandas as pd
>>> from echotrap.detector import episodes
>>> from echotrap.record import Run
>>> against = np.concatenate((np.full(30, 0.2), np.full(30, -0.4)))
>>> columns = {"components/brevity/corr": against, "component_corr_min": against, "component_rollouts": 64.0}
>>> run = Run("example", "-", "frame", pd.DataFrame(columns, index=pd.Index(range(1, 61), name="step")))
>>> track = DETECTOR(run)
>>> [episode] = episodes(track)
>>> episode.onset_step, dict(episode.alarm_steps), track.evidence["which"][-1].item()
(36, {<Level.WATCH: 1>: 45}, 'brevity')

False positives
---------------
Shaping that is meant to matter only early; a penalty for effort on tasks whose hard items need effort.

What to do
----------
Reweight each component by how well it tells right from wrong; pay it only where the answer is right; or drop it.

References
----------
Iterative Reward Calibration (naive per-turn rewards cost up to 14 points); HDPO (a penalty drowns in the variance of accuracy).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from echotrap import stats
from echotrap.detector import Card, Detector, Level, NotEvaluated, Remedy, Track, knob
from echotrap.record import Run


@dataclass(frozen=True)
class Params:
    """Working point; each knob says where it comes from."""

    correlation: float = knob(0.1, least=0.0, most=0.9, low=0.2, source="failure catalogue A5")
    sigmas: float = knob(2.6, least=1.0, most=6.0, low=4.0, high=2.0, source="95 % for one component; there may be several")
    share: float = knob(0.7, least=0.4, most=1.0, low=0.85, source="failure catalogue A5")
    smooth_steps: int = knob(10, least=1, most=100, source="failure catalogue A5")
    hold_steps: int = knob(10, least=1, most=200, low=20, high=5, source="failure catalogue A5")


def detect(run: Run, params: Params) -> Track | NotEvaluated:
    """Judge the components one by one; the worst of them counts."""
    steps = stats.union(run.series("component_corr_min").steps, run.series("component_share_max").steps)
    rollouts = np.nan_to_num(run.at("component_rollouts", steps), nan=16.0)
    error = params.sigmas / np.sqrt(np.maximum(rollouts * stats.points_in(steps, params.smooth_steps), 4))
    names, lowest = _worst(run, steps, "/corr", "component_corr_min", params, low=True)
    owners, largest = _worst(run, steps, "/share", "component_share_max", params, low=False)
    limit = -np.maximum(params.correlation, error)
    against, owns = lowest < limit, largest > params.share
    level, onset = stats.ladder(stats.held(against | owns, steps, params.hold_steps))
    evidence = {
        "which": np.where(owns & ~against, owners, names),
        "how": np.where(owns & ~against, "has most of the variance", "goes against the outcome"),
        "value": np.where(owns & ~against, largest, lowest),
    }
    return Track(steps, level, onset, lowest, limit, evidence)


def _worst(
    run: Run, steps: NDArray[np.int64], ending: str, summary: str, params: Params, *, low: bool
) -> tuple[NDArray[np.str_], NDArray[np.float64]]:
    """Which component has the lowest (or highest) smoothed value at each step, and that value."""
    columns = [str(name) for name in run.metrics.columns if str(name).startswith("components/") and str(name).endswith(ending)]
    columns = [name for name in columns if run.has(name) and not (ending == "/share" and _is_outcome(run, name))]
    columns = columns or [summary]
    series = [run.series(name) for name in columns]
    means = [
        stats.as_of(stats.trailing(item.values, item.steps, params.smooth_steps, "mean"), item.steps, steps, np.nan)
        for item in series
    ]
    table = np.nan_to_num(np.array(means), nan=np.inf if low else -np.inf)
    place = table.argmin(axis=0) if low else table.argmax(axis=0)
    value = np.take_along_axis(table, place[None, :], axis=0)[0]
    titles = np.array([name.removeprefix("components/").removesuffix(ending) for name in columns])
    return titles[place], np.where(np.isfinite(value), value, np.nan)


def _is_outcome(run: Run, name: str) -> bool:
    """The outcome has a share too, but no correlation with itself."""
    return not run.has(name.removesuffix("/share") + "/corr")


DETECTOR = Detector(
    card=Card(
        id="reward-misalignment",
        code="A5",
        title="a part of the reward works against the outcome",
        family="reward",
        tier="extension",
        highest=Level.WATCH,
        needs=(("component_corr_min", "component_share_max"),),
        uses=("component_rollouts",),
        message="{which} {how} ({value:.2f})",
        remedies=(
            Remedy(
                "Reweight the component by how well it tells right from wrong, or pay it only where the answer is right",
                {
                    "TRL": "reward_weights=[1.0, 0.1, ...]",
                    "verl": "custom_reward_function.path=...",
                    "RAGEN": "es_manager.format_penalty=-0.01",
                    "OpenRLHF": "--remote_rm_url <reward function>",
                },
            ),
            Remedy(
                "Normalise each component before adding them up",
                {
                    "TRL": 'multi_objective_aggregation="normalize_then_sum"',
                    "verl": "standardise each part inside custom_reward_function",
                },
                cost="a rare component gets the weight of a common one",
            ),
        ),
        references=("Iterative Reward Calibration", "HDPO", "arXiv 2601.05242"),
        units={"value": "corr. or 0..1"},
    ),
    params=Params(),
    detect=detect,
)
