"""Scores of a judge on labelled runs: recall, false alarms with exact intervals, delay, lead time, abstentions."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
from pydantic import BaseModel, ConfigDict

from echotrap.evaluation.judges import Alarm
from echotrap.record import Run

__all__ = ["Case", "Judged", "Rate", "Scores", "expectation_met", "interval", "no_return", "score"]

SEVERE = ("warning", "critical")
QUIET = ("ok", "info")


class _Data(BaseModel):
    model_config = ConfigDict(frozen=True)


class Case(_Data):
    """The truth about one run, as labelled: the columns of ``labels.tsv``.

    Attributes
    ----------
    expect : str
        ``critical``, ``warning+``, ``quiet``, ``insufficient``, ``any``.
    onset_first, onset_last : int or None
        Steps between which the failure sets in.
    """

    case: str
    label: str
    expect: str = "any"
    onset_first: int | None = None
    onset_last: int | None = None
    main: str = ""
    echo_trap: str = ""
    why: str = ""

    @property
    def fails(self) -> bool:
        """Whether something goes wrong in it."""
        return self.expect in ("critical", "warning+")


class Judged(_Data):
    """One run and what a judge said of it."""

    case: Case
    severity: str
    label: str
    first_step: int | None
    critical_step: int | None
    onset_step: int | None
    last_step: int | None
    points: int
    no_return_step: int | None
    met: bool | None
    timely: bool | None
    error: str | None = None

    @property
    def delay_steps(self) -> int | None:
        """Steps from the first onset to the first alarm."""
        if self.case.onset_first is None or self.first_step is None:
            return None
        return self.first_step - self.case.onset_first

    @property
    def lead_steps(self) -> int | None:
        """Steps from the first alarm to the point of no return."""
        return None if self.no_return_step is None or self.first_step is None else self.no_return_step - self.first_step


class Rate(_Data):
    """A share with its exact (Clopper-Pearson) 95 % interval."""

    hits: int
    of: int
    low: float
    high: float

    @property
    def share(self) -> float:
        """Hits over all; NaN of none."""
        return self.hits / self.of if self.of else float("nan")


class Scores(_Data):
    """Scores of one judge on one set of runs."""

    judge: str
    recall: dict[str, Rate]
    false_alarms: dict[str, Rate]
    false_criticals: Rate
    all_false_alarms: Rate
    met: Rate
    abstained: int
    delay_median: dict[str, float | None]
    lead_median: float | None
    detected_before_no_return: Rate
    confusion: dict[str, dict[str, int]]


def interval(hits: int, of: int, confidence: float = 0.95) -> Rate:
    """Clopper-Pearson interval of a share.

    Examples
    --------
    >>> rate = interval(0, 20)
    >>> round(rate.low, 3), round(rate.high, 3)
    (0.0, 0.168)
    """
    from scipy.stats import beta

    if of == 0:
        return Rate(hits=0, of=0, low=0.0, high=1.0)
    tail = (1 - confidence) / 2
    low = 0.0 if hits == 0 else float(beta.ppf(tail, hits, of - hits + 1))
    high = 1.0 if hits == of else float(beta.ppf(1 - tail, hits + 1, of - hits))
    return Rate(hits=hits, of=of, low=low, high=high)


def expectation_met(expect: str, severity: str) -> bool | None:
    """Whether a severity is what the label expects; ``None`` where opinions may differ."""
    wanted = {
        "critical": ("critical",),
        "warning+": SEVERE,
        "quiet": QUIET,
        "insufficient": ("insufficient",),
    }.get(expect)
    return None if wanted is None else severity in wanted


def no_return(run: Run) -> int | None:
    """First step from which the outcome stays below half of its peak until the end of the run."""
    name = next((name for name in ("eval_score", "success_rate", "reward_mean") if run.has(name)), None)
    if name is None:
        return None
    steps, values = run.series(name)
    low = np.minimum.accumulate(values)
    gained = np.maximum.accumulate(values) - np.minimum(low, 0 if values.max() > 0 else low)
    below = values - np.minimum(low, 0 if values.max() > 0 else low) < 0.5 * gained
    if not below[-1]:
        return None
    back = np.flatnonzero(~below)
    return int(steps[back[-1] + 1]) if len(back) else None


def judge_case(case: Case, run: Run, alarm: Alarm) -> Judged:
    """Hold an alarm against the truth."""
    timely = None
    if case.fails and case.onset_first is not None:
        late = case.onset_last if case.onset_last is not None else case.onset_first
        last = int(run.steps[-1]) if len(run.steps) else 0
        length = last - int(run.steps[0]) if len(run.steps) else 0
        after = run.steps[run.steps > late][:5]
        allowed = max(late + 0.1 * length, float(after[-1]) if len(after) else late)
        timely = alarm.first_step is not None and case.onset_first <= alarm.first_step <= allowed
    return Judged(
        case=case,
        severity=alarm.severity,
        label=alarm.label,
        first_step=alarm.first_step,
        critical_step=alarm.critical_step,
        onset_step=alarm.onset_step,
        last_step=int(run.steps[-1]) if len(run.steps) else None,
        points=len(run.steps),
        no_return_step=no_return(run) if case.fails else None,
        met=expectation_met(case.expect, alarm.severity),
        timely=timely,
    )


def score(judge: str, judged: Iterable[Judged]) -> Scores:
    """Add up what a judge said.

    An alarm counts as found when the run ends at warning or above and the first alarm did not come before the onset. It counts
    as false when a run that should be quiet was at warning or above at any step.
    """
    runs: Sequence[Judged] = tuple(judged)
    hits: dict[str, list[bool]] = defaultdict(list)
    false: dict[str, list[bool]] = defaultdict(list)
    critical: list[bool] = []
    delays: dict[str, list[int]] = defaultdict(list)
    for item in runs:
        kind = item.case.label
        if item.case.fails:
            early = item.case.onset_first is not None and item.first_step is not None and item.first_step < item.case.onset_first
            hit = item.severity in SEVERE and not early
            hits[kind].append(hit)
            if hit and item.delay_steps is not None:
                delays[kind].append(item.delay_steps)
        elif item.case.expect == "quiet":
            false[kind].append(item.first_step is not None)
            critical.append(item.critical_step is not None)
    leads = [item.lead_steps for item in runs if item.lead_steps is not None]
    doomed = [item for item in runs if item.no_return_step is not None]
    confusion: dict[str, Counter[str]] = defaultdict(Counter)
    for item in runs:
        confusion[item.case.label][item.label] += 1
    expected = [item.met for item in runs if item.met is not None]
    every = [flag for flags in false.values() for flag in flags]
    return Scores(
        judge=judge,
        recall={kind: interval(sum(flags), len(flags)) for kind, flags in sorted(hits.items())},
        false_alarms={kind: interval(sum(flags), len(flags)) for kind, flags in sorted(false.items())},
        false_criticals=interval(sum(critical), len(critical)),
        all_false_alarms=interval(sum(every), len(every)),
        met=interval(sum(expected), len(expected)),
        abstained=sum(item.severity == "insufficient" for item in runs),
        delay_median={kind: float(np.median(delays[kind])) if delays[kind] else None for kind in sorted(hits)},
        lead_median=float(np.median(leads)) if leads else None,
        detected_before_no_return=interval(sum(lead > 0 for lead in leads), len(doomed)),
        confusion={kind: dict(count) for kind, count in sorted(confusion.items())},
    )
