"""Statistics for one noisy run: arrays in, arrays out, and never a look ahead.

Every function here is causal: entry ``i`` of what it returns uses entries ``<= i`` of what it was given. Effect size,
persistence and gates decide; no significance test does (on autocorrelated logs a textbook CUSUM raises false alarms in 60-92 %
of healthy runs).
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Held",
    "baseline",
    "held",
    "ladder",
    "latch",
    "rolling_mad",
    "rolling_median",
    "running_max",
    "running_min",
    "spacing",
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


def held(flag: Flags, steps: Steps, window_steps: int) -> Held:
    """Ask that a flag stays up for ``window_steps`` steps.

    With one point a step that means as many points in a row; on sparser logs it means at least two points in a row that span the
    window (failure_modes.md 3.2). One step asks for nothing.

    Examples
    --------
    >>> flag = np.array([0, 1, 1, 1, 0, 1], bool)
    >>> held(flag, np.arange(6), 3).on.astype(int).tolist()
    [0, 0, 0, 1, 0, 0]
    >>> held(flag, np.arange(6) * 10, 5).on.astype(int).tolist()
    [0, 0, 1, 1, 0, 0]
    """
    n = len(flag)
    index = np.arange(n)
    last_down = np.maximum.accumulate(np.where(flag, -1, index)) if n else index
    first = np.minimum(last_down + 1, max(n - 1, 0))
    count = index - last_down
    since = np.where(flag, steps[first] if n else steps, -1)
    span = steps - np.where(flag, since, steps) + 1
    on = flag & (count >= min(window_steps, 2)) & (span >= window_steps)
    return Held(on, since.astype(np.int64))


def ladder(*rungs: Held) -> tuple[NDArray[np.int8], Steps]:
    """Combine persistent flags, lowest level first, into a level per step and the step at which the condition began.

    A rung that is never reached is passed as flags that are all down.
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


def rolling_median(values: Floats, window_points: int, *, exclude_last: int = 0) -> Floats:
    """Trailing median of the last ``window_points`` values (fewer at the start), leaving out the newest ``exclude_last``.

    NaN where nothing is left.
    """
    import pandas as pd

    result = pd.Series(values).rolling(window_points, min_periods=1).median().to_numpy(dtype=np.float64)
    if exclude_last:
        result = np.concatenate((np.full(min(exclude_last, len(values)), np.nan), result[: max(len(values) - exclude_last, 0)]))
    return result


def rolling_mad(values: Floats, window_points: int, *, exclude_last: int = 0) -> Floats:
    """Trailing median absolute deviation from :func:`rolling_median`, over the same window."""
    n = len(values)
    out = np.full(n, np.nan)
    if n == 0:
        return out
    padded = np.concatenate((np.full(window_points - 1, np.nan), values))
    windows = np.lib.stride_tricks.sliding_window_view(padded, window_points)
    for start in range(0, n, 4096):  # in blocks: the windows are a view, their medians are not
        block = windows[start : start + 4096]
        with np.errstate(all="ignore"):
            centre = np.nanmedian(block, axis=1, keepdims=True)
            out[start : start + 4096] = np.nanmedian(np.abs(block - centre), axis=1)
    if exclude_last:
        out = np.concatenate((np.full(min(exclude_last, n), np.nan), out[: max(n - exclude_last, 0)]))
    return out


def rolling_median_steps(values: Floats, steps: Steps, window_steps: int) -> Floats:
    """Trailing median over the last ``window_steps`` steps, however many points they hold."""
    import pandas as pd

    clock = pd.to_datetime(steps, unit="s")
    return pd.Series(values, index=clock).rolling(f"{window_steps}s", min_periods=1).median().to_numpy(dtype=np.float64)


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
            if len(taken) < min_points or off_factor is None or _near(value, current, off_factor):
                taken.append(value)
                if len(taken) >= min_points:
                    current = float(np.median(taken))
            out[i] = current
    return out


def _near(value: float, centre: float, factor: float) -> bool:
    if value <= 0 or centre <= 0:
        return abs(value - centre) <= (factor - 1) * abs(centre)
    return centre / factor <= value <= centre * factor
