"""Statistics for one noisy run: arrays in, arrays out, and never a look ahead.

Every function here is causal: entry ``i`` of what it returns uses entries ``<= i`` of what it was given. Effect size,
persistence and gates decide; no significance test does (on autocorrelated logs a textbook CUSUM raises false alarms in 60-92 %
of healthy runs).
"""

from __future__ import annotations

import itertools
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from echotrap import windows

__all__ = [
    "Apart",
    "Held",
    "Local",
    "apart",
    "as_of",
    "baseline",
    "best_so_far",
    "dispersion",
    "either",
    "fallen",
    "held",
    "held_points",
    "ladder",
    "latch",
    "lingering",
    "local",
    "local_quantile",
    "never",
    "noise",
    "noise_of_means",
    "points_in",
    "ratio",
    "risen",
    "rolling_median",
    "rolling_median_steps",
    "running_max",
    "running_min",
    "spacing",
    "spread",
    "trailing",
    "union",
    "unlikely",
]

Floats = NDArray[np.float64]
Steps = NDArray[np.int64]
Flags = NDArray[np.bool_]


class Held(NamedTuple):
    """A flag after persistence.

    Attributes
    ----------
    on : (n,) bool
        The flag has held long enough.
    since : (n,) int64
        Step at which the present run of flags began; -1 where the flag is down.
    """

    on: Flags
    since: Steps


class Local(NamedTuple):
    """What was usual lately.

    Attributes
    ----------
    centre, spread : (n,) float64
        Median, and the standard deviation that the median absolute deviation stands for. NaN at the first point.
    """

    centre: Floats
    spread: Floats


class Apart(NamedTuple):
    """A held-out score and a training outcome that part, at the steps of the score.

    Attributes
    ----------
    flag : (n,) bool
        The score has fallen and the outcome has risen since.
    best, limit : (n,) float64
        Highest score so far, and what the score must be below.
    outcome, rise : (n,) float64
        The outcome (20-step mean), and how much higher it is than when the score was at its best.
    """

    flag: Flags
    best: Floats
    limit: Floats
    outcome: Floats
    rise: Floats


def held(flag: Flags, steps: Steps, window_steps: int, *, release: Flags | None = None, chance: float | None = None) -> Held:
    """Ask that a flag stays up for ``window_steps`` steps.

    With one point a step that means as many points in a row; on sparser logs it means at least two points in a row that span the
    window (failure_modes.md 3.2). One step asks for nothing.

    Parameters
    ----------
    flag, steps : (n,) arrays
        Condition and where it was looked at.
    window_steps : int
        How long it must stay up.
    release : (n,) bool, optional
        Hysteresis: what ends a run of flags, both while it waits and once it is on; ``~flag`` by default. Between the two
        limits a point counts neither way, but more than half of the points of a run must be flagged before it is on.
    chance : float, optional
        Ask besides that so many flags in a row are :func:`unlikely` in view of the signal's own history.

    Examples
    --------
    >>> flag = np.array([0, 1, 1, 1, 0, 1], bool)
    >>> held(flag, np.arange(6), 3).on.astype(int).tolist()
    [0, 0, 0, 1, 0, 0]
    >>> held(flag, np.arange(6) * 10, 5).on.astype(int).tolist()
    [0, 0, 1, 1, 0, 0]
    >>> held(flag, np.arange(6), 3, release=np.zeros(6, bool)).on.astype(int).tolist()
    [0, 0, 0, 1, 1, 1]
    """
    n = len(flag)
    if not n:
        return Held(np.zeros(0, bool), np.zeros(0, np.int64))
    release = ~flag if release is None else release & ~flag
    index = np.arange(n)
    running = latch(flag, release)
    first = np.maximum.accumulate(np.where(running & ~np.concatenate(([False], running[:-1])), index, 0))
    seen = np.cumsum(flag)
    flagged: Steps = seen - np.where(first > 0, seen[first - 1], 0)
    since = np.where(running, steps[first], -1).astype(np.int64)
    usual = np.ones(n, bool) if chance is None else unlikely(flag, chance)
    enough = (
        usual & (flagged >= min(window_steps, 2)) & (steps - steps[first] + 1 >= window_steps) & (2 * flagged > index - first + 1)
    )
    return Held(running & latch(flag & enough, ~running), since)


def held_points(flag: Flags, steps: Steps, points: int) -> Held:
    """Ask that a flag stays up for so many logged points, however many steps they span (evaluations, shares of everything)."""
    counted = held(flag, np.arange(len(flag)), points)
    return Held(counted.on, np.where(counted.on, steps[np.maximum(counted.since, 0)], -1) if len(steps) else counted.since)


def spread(rung: Held, at: Steps, steps: Steps) -> Held:
    """A rung of one signal on the steps of another: its last word holds."""
    return Held(as_of(rung.on, at, steps, False), as_of(rung.since, at, steps, -1))


def unlikely(flag: Flags, chance: float = 0.001) -> Flags:
    """Where a run of flags is longer than the signal's own history makes likely.

    With a share ``q`` of flags before the run began, ``k`` in a row have the chance ``q^k``: small batches are at their floor now
    and then, and must stay there for longer than usual.

    Examples
    --------
    >>> often = np.array([0, 1, 0, 1, 0, 1, 0, 1] + [1] * 9, bool)
    >>> int(np.argmax(unlikely(often))) - 7 + 1
    9
    """
    index = np.arange(len(flag))
    last_off = np.maximum.accumulate(np.where(flag, -1, index)) if len(index) else index
    length = index - last_off
    before = np.concatenate(([0], np.cumsum(flag)))[np.maximum(last_off + 1, 0)]
    share = np.clip(before / np.maximum(last_off + 1, 1), 0, 0.99) + 0.005
    return np.asarray(flag & (length >= np.maximum(np.log(chance) / np.log(share), 2)))


def lingering(flag: Flags, steps: Steps, quiet_steps: int) -> Held:
    """Make one incident of flags that are close together: it ends when none was up for ``quiet_steps`` steps.

    Examples
    --------
    >>> flag = np.array([0, 1, 0, 1, 0, 0, 0], bool)
    >>> [part.tolist() for part in lingering(flag, np.arange(7), 3)]
    [[False, True, True, True, True, True, False], [-1, 1, 1, 1, 1, 1, -1]]
    """
    if not len(flag):
        return held(flag, steps, 1)
    last = np.maximum.accumulate(np.where(flag, np.arange(len(flag)), -1))
    on = (last >= 0) & (steps - steps[np.maximum(last, 0)] < quiet_steps)
    return held(on, steps, 1)


def either(*rungs: Held) -> Held:
    """Several ways to reach one level: up where any is, since the earliest of those."""
    on = np.any([rung.on for rung in rungs], axis=0)
    late = np.iinfo(np.int64).max
    since = np.min([np.where(rung.on, rung.since, late) for rung in rungs], axis=0)
    return Held(on, np.where(on, since, -1))


def never(steps: Steps) -> Held:
    """A rung that is not reached."""
    return Held(np.zeros(len(steps), bool), np.full(len(steps), -1, np.int64))


def ladder(*rungs: Held) -> tuple[NDArray[np.int8], Steps]:
    """Combine persistent flags, lowest level first, into a level per step and the step at which the condition began.

    A rung that is not reached is passed as :func:`never`.
    """
    n = len(rungs[0].on)
    level = np.zeros(n, np.int8)
    onset = np.full(n, -1, np.int64)
    for height, rung in enumerate(rungs, start=1):
        level[rung.on] = height
        earlier = rung.on & ((onset < 0) | (rung.since < onset))
        onset[earlier] = rung.since[earlier]
    return level, onset


def latch(set_flag: Flags, clear_flag: Flags) -> Flags:
    """Hysteresis: goes up where ``set_flag`` is, and stays up until ``clear_flag`` is (which loses against a set).

    Examples
    --------
    >>> latch(np.array([0, 1, 0, 0, 0], bool), np.array([1, 0, 0, 1, 0], bool)).astype(int).tolist()
    [0, 1, 1, 0, 0]
    """
    index = np.arange(len(set_flag))
    last_set = np.maximum.accumulate(np.where(set_flag, index, -1)) if len(index) else index
    last_clear = np.maximum.accumulate(np.where(clear_flag & ~set_flag, index, -1)) if len(index) else index
    return last_set > last_clear


def spacing(steps: Steps) -> Floats:
    """Typical distance between logged points so far: the median of the last 20 gaps; 1 before there is one."""
    if len(steps) < 2:
        return np.ones(len(steps))
    gaps = np.diff(steps).astype(np.float64)
    return np.concatenate(([gaps[0] if len(gaps) else 1.0], rolling_median(gaps, 20)))


def rolling_median(values: Floats, window_points: int) -> Floats:
    """Trailing median of the last ``window_points`` values (fewer at the start); NaN where nothing is left."""
    return windows.by_points(values, window_points)


def rolling_median_steps(values: Floats, steps: Steps, window_steps: int) -> Floats:
    """Trailing median over the last ``window_steps`` steps, however many points they hold."""
    return trailing(values, steps, window_steps, "median")


def trailing(
    values: Floats, steps: Steps, window_steps: int, how: Literal["median", "mean", "min", "max", "sum"] = "median"
) -> Floats:
    """A statistic of the last ``window_steps`` steps (the newest included), however many points they hold.

    Examples
    --------
    >>> trailing(np.array([1.0, 5.0, 3.0, 9.0]), np.array([1, 2, 3, 40]), 3, "max").tolist()
    [1.0, 5.0, 5.0, 9.0]
    """
    return windows.by_steps(values, steps, window_steps, how)


def points_in(steps: Steps, window_steps: int) -> Floats:
    """How many points the last ``window_steps`` steps hold, the newest included."""
    before = np.searchsorted(steps, steps - window_steps, side="right")
    return np.arange(1, len(steps) + 1, dtype=np.float64) - before


def local(values: Floats, steps: Steps, window_steps: int, *, min_points: int = 5) -> Local:
    """What was usual lately: median and robust spread of the last ``window_steps`` steps, without the newest value.

    Where those hold fewer than ``min_points`` points, of that many points.
    """
    points = points_in(steps, window_steps)

    def middle(x: Floats) -> Floats:
        by_points, by_steps = rolling_median(x, min_points), trailing(x, steps, window_steps)
        chosen: Floats = np.where(points < min_points, by_points, by_steps)
        return chosen

    centre = middle(values)
    spread = 1.4826 * middle(np.abs(values - centre))
    return Local(np.concatenate(([np.nan], centre))[: len(values)], np.concatenate(([np.nan], spread))[: len(values)])


def local_quantile(values: Floats, steps: Steps, window_steps: int, share: float, *, min_points: int = 5) -> Floats:
    """A quantile over the same window as :func:`local`: the upper tail of what was usual. NaN at the first point."""
    points = points_in(steps, window_steps)
    by_steps = windows.by_steps(values, steps, window_steps, "quantile", share=share)
    by_points = windows.by_points(values, min_points, "quantile", share=share)
    return np.concatenate(([np.nan], np.where(points < min_points, by_points, by_steps)))[: len(values)]


def as_of(values: NDArray[Any], at: Steps, steps: Steps, missing: Any) -> NDArray[Any]:
    """Values of one signal as known at the steps of another: the latest at or before each."""
    if not len(at):
        return np.full(len(steps), missing)
    where = windows.latest(at, steps)
    return np.where(where >= 0, values[np.maximum(where, 0)], missing)


def union(*axes: Steps) -> Steps:
    """All steps of several ascending axes."""
    longest = max(axes, key=len, default=np.empty(0, np.int64))
    if all(len(axis) == 0 or (len(axis) == len(longest) and np.array_equal(axis, longest)) for axis in axes):
        return longest.copy()
    steps = np.sort(np.concatenate(axes))
    return steps[np.diff(steps, prepend=steps[:1] - 1) > 0]


def ratio(values: Floats, normal: Floats) -> Floats:
    """Values over what is normal; NaN where that is not above zero."""
    out: Floats = np.divide(values, normal, out=np.full(len(values), np.nan), where=normal > 0)
    return out


def noise(values: Floats, window_points: int = 50, how: Literal["median", "mean"] = "median") -> Floats:
    """Standard deviation of the step-to-step noise of the last points, from successive differences: a trend is no noise.

    The median forgives jumps; the mean is for signals with few distinct values, whose median difference may be zero. NaN at the
    first point.
    """
    jumps = np.abs(np.diff(values, prepend=values[:1]))
    jumps[:1] = np.nan
    scale = 1.4826 / np.sqrt(2) if how == "median" else np.sqrt(np.pi) / 2
    return np.asarray(scale * windows.by_points(jumps, window_points, how), dtype=np.float64)


def fallen(values: Floats, steps: Steps, share: float, *, sigmas: float = 3.0) -> Flags:
    """Whether an outcome of training is well below its best.

    The 10-step mean is more than ``share`` of the range seen so far, and more than ``sigmas`` standard deviations of the
    step-to-step noise, below the best 20-step mean.
    """
    fall = best_so_far(values, steps) - trailing(values, steps, 10, "mean")
    wide = running_max(values) - running_min(values)
    return np.asarray((fall >= share * wide) & (fall > noise_of_means(values, steps, sigmas)) & (wide > 0))


def risen(values: Floats, steps: Steps, *, kept: float = 0.85) -> Flags:
    """Whether an outcome stands at, or near, a best that is well above its start.

    The 20-step median has kept ``kept`` of what the best one gained over the first 20 steps, and that gain is more than noise
    can make of a flat outcome; and it lies in the upper half of all values that were seen. What falls meanwhile (reward spread,
    entropy, gradient) is then what convergence looks like too.
    """
    smooth = trailing(values, steps, 20)
    start = baseline(smooth, steps, off_factor=None)
    best = running_max(np.where(np.isfinite(start), smooth, np.nan))
    gain = best - start
    low, high = running_min(values), running_max(values)
    clear_gain = gain > np.maximum(noise_of_means(values, steps, 3.0), 0.1 * (high - low))
    return np.asarray(clear_gain & (smooth - start >= kept * gain) & (smooth - low >= 0.5 * (high - low)))


def apart(score: Floats, steps: Steps, outcome: Floats, at: Steps, *, fall_ratio: float, sigmas: float) -> Apart:
    """Where a held-out score is well below its best while a training outcome is higher than it was at that best.

    The score has fallen by more than ``fall_ratio`` of its best and by more than ``sigmas`` standard deviations of its own noise;
    the 20-step mean of the outcome has risen by more than the noise of a 10-step mean.
    """
    mean = as_of(trailing(outcome, at, 20, "mean"), at, steps, np.nan)
    loud = as_of(noise(outcome, how="mean") / np.sqrt(10), at, steps, np.nan)
    best = running_max(score)
    at_best = np.maximum.accumulate(np.where(score >= best, np.arange(len(steps)), 0))
    fall, rise = best - score, mean - mean[at_best]
    flag = (fall > fall_ratio * np.abs(best)) & (fall > sigmas * np.nan_to_num(noise(score))) & (rise > loud)
    return Apart(flag, best, best - fall_ratio * np.abs(best), mean, rise)


def best_so_far(values: Floats, steps: Steps) -> Floats:
    """Highest 20-step mean so far; NaN for the first two points."""
    smooth = trailing(values, steps, 20, "mean")
    smooth[:2] = np.nan
    return running_max(smooth)


def noise_of_means(values: Floats, steps: Steps, sigmas: float) -> Floats:
    """What a 10-step mean may lie below the best 20-step mean by noise alone.

    ``sigmas`` standard deviations, or what the lowest and the highest of so many means differ by where windows hold few points.
    """
    seen = np.arange(1, len(values) + 1)
    extreme = np.sqrt(2 * np.log(np.maximum(seen, 30)))
    apart = points_in(steps, 10) ** -0.5 + points_in(steps, 20) ** -0.5
    unsure = 1 + 1.5 / np.sqrt(np.minimum(seen, 50))  # the noise is itself estimated
    out: Floats = unsure * np.nan_to_num(noise(values, how="mean")) * np.maximum(sigmas, extreme * apart)
    return out


def dispersion(values: Floats) -> float:
    """Standard deviation over mean of numbers that cannot be negative; NaN for fewer than two, or where all are zero.

    Examples
    --------
    >>> round(dispersion(np.array([0.0, 0.0, 0.0, 0.25])), 2)
    2.0
    """
    return float(values.std(ddof=1) / values.mean()) if len(values) > 1 and values.mean() > 0 else float("nan")


def running_max(values: Floats) -> Floats:
    """Highest value so far; NaN are skipped."""
    return np.fmax.accumulate(values) if len(values) else values


def running_min(values: Floats) -> Floats:
    """Lowest value so far; NaN are skipped."""
    return np.fmin.accumulate(values) if len(values) else values


def baseline(
    values: Floats,
    steps: Steps,
    *,
    window_steps: int = 20,
    min_points: int = 3,
    off_factor: float | None = 2.0,
    off_by: float | None = None,
    arm_steps: tuple[int, ...] = (),
    start_step: int | None = None,
) -> Floats:
    """What was normal at the start: the median of the first ``window_steps`` steps, then frozen.

    Until the window is full, the median of the points so far is used (provisional), from the third point on. A point that is
    off by more than ``off_factor`` from the median of at least ``min_points`` earlier ones does not enter: many real runs fail
    within their first dozen steps, and a baseline that learned the collapsed state
    would call it normal.

    Parameters
    ----------
    values, steps : (n,) arrays
        Finite values and where they were logged.
    window_steps, min_points : int
        Length of the window and the least number of points (failure_modes.md 3.2).
    off_factor : float or None
        Multiplicative distance at which a point is kept out; ``None`` takes every point (signed signals).
    off_by : float, optional
        Additive distance instead (shares).
    arm_steps : tuple of int
        Steps at which a new baseline begins (declared events, restarts).
    start_step : int, optional
        Nothing earlier counts (learning-rate warm-up).

    Returns
    -------
    (n,) float64
        NaN until ``min_points`` were seen.
    """
    n = len(values)
    out = np.full(n, np.nan)
    edges = [0, *sorted({int(np.searchsorted(steps, s)) for s in arm_steps}), n]
    for lo, hi in itertools.pairwise(edges):
        if lo >= hi:
            continue
        if start_step is not None:
            lo = max(lo, int(np.searchsorted(steps, start_step)))
            if lo >= hi:
                continue
        taken: list[float] = []
        current = np.nan
        for i in range(lo, hi):
            full = steps[i] - steps[lo] >= window_steps and len(taken) >= min_points
            if full:
                out[i:hi] = current
                break
            value = values[i]
            if len(taken) < min_points or _near(value, current, off_factor, off_by):
                taken.append(value)
                if len(taken) >= min_points:
                    current = float(np.median(taken))
            out[i] = current
    return out


def _near(value: float, centre: float, factor: float | None, by: float | None) -> bool:
    if by is not None:
        return abs(value - centre) <= by
    if factor is None:
        return True
    if value <= 0 or centre <= 0:
        return abs(value - centre) <= (factor - 1) * abs(centre)
    return centre / factor <= value <= centre * factor
