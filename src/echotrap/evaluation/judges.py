"""Who judges a run: echotrap, and the rules it has to beat. All see the same run and answer with alarm steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from echotrap import stats
from echotrap.config import Settings
from echotrap.detector import Level
from echotrap.diagnosis import examine
from echotrap.record import Run
from echotrap.reporting import report

__all__ = ["BASELINES", "Alarm", "echotrap_judge", "random_judge"]


class Alarm(NamedTuple):
    """What a judge says of a run.

    Attributes
    ----------
    severity : str
        At the end of the run: ``ok``, ``info``, ``warning``, ``critical``, ``insufficient``.
    label : str
        Verdict, or the name of the rule.
    first_step, critical_step : int or None
        First step of the whole run at warning or above, and at critical.
    onset_step : int or None
        Where the judge says that it began.
    """

    severity: str
    label: str
    first_step: int | None = None
    critical_step: int | None = None
    onset_step: int | None = None


Judge = Callable[[Run], Alarm]


def echotrap_judge(settings: Settings | None = None) -> Judge:
    """The diagnosis itself."""

    def judge(run: Run) -> Alarm:
        seen = examine(run, settings)
        verdict = report(seen).verdict
        return Alarm(
            verdict.severity,
            verdict.label,
            _first(run, seen.level >= Level.WARNING),
            _first(run, seen.level >= Level.CRITICAL),
            verdict.onset_step,
        )

    return judge


def _first(run: Run, flag: np.ndarray) -> int | None:
    return int(run.steps[int(np.argmax(flag))]) if flag.any() else None


def _rule(name: str, run: Run, steps: np.ndarray, flag: np.ndarray) -> Alarm:
    """A rule that fires once and for all is critical."""
    if not len(flag) or not flag.any():
        return Alarm("ok" if len(flag) else "insufficient", name)
    first = int(steps[int(np.argmax(flag))])
    return Alarm("critical", name, first, first, first)


def ragen(run: Run) -> Alarm:
    """RAGEN's stop rule: each of the last 10 steps below a tenth of the mean in-group std of the first 10."""
    steps, values = run.series("group_reward_std")
    first = steps < (steps[0] + 10 if len(steps) else 0)
    if not len(values) or first.all():
        return Alarm("insufficient", "RAGEN's stop rule")
    return _rule("RAGEN's stop rule", run, steps, stats.held((values < 0.1 * values[first].mean()) & ~first, steps, 10).on)


def _outcome(run: Run) -> tuple[np.ndarray, np.ndarray]:
    name = next((name for name in ("eval_score", "success_rate", "reward_mean") if run.has(name)), "reward_mean")
    return run.series(name)


def half_peak(run: Run) -> Alarm:
    """The outcome is below half of its peak."""
    steps, values = _outcome(run)
    peak = stats.running_max(values)
    return _rule("below half its peak", run, steps, (peak > 0) & (values < 0.5 * peak))


def drop_20(run: Run) -> Alarm:
    """The training reward is down by a fifth of its range from its peak."""
    steps, values = run.series("reward_mean")
    width = stats.running_max(values) - stats.running_min(values)
    flag = values < stats.running_max(values) - 0.2 * width
    return _rule("reward down 20 %", run, steps, flag & (np.arange(len(values)) >= 5))


def random_judge(rate: float, seed: int = 0) -> Judge:
    """An alarm at a random step, on a share of the runs that matches another judge's."""
    rng = np.random.default_rng(seed)

    def judge(run: Run) -> Alarm:
        if rng.random() >= rate or not len(run.steps):
            return Alarm("ok", "random")
        step = int(rng.choice(run.steps))
        return Alarm("critical", "random", step, step, step)

    return judge


BASELINES: dict[str, Judge] = {"RAGEN's stop rule": ragen, "below half its peak": half_peak, "reward down 20 %": drop_20}
"""Simple rules, by name."""
