"""Fewer points for a chart, without losing what a person looks for: extremes, gaps, both ends and named steps."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from echotrap.record import Series

__all__ = ["drawable"]

GAP_FACTOR = 5.0
"""A distance of more than this many typical distances between points is drawn as a gap."""


def drawable(series: Series, points: int = 1500, keep: Iterable[int] = ()) -> Series:
    """At most about ``points`` points of a signal, with NaN where the line has to break.

    Parameters
    ----------
    series : Series
        Finite values at increasing steps.
    points : int
        How many to keep: the lowest and the highest of each stretch, so that every spike survives.
    keep : iterable of int
        Steps that must survive where they have a value (alarms, the selected step).

    Examples
    --------
    >>> steps = np.arange(100_000)
    >>> values = np.zeros(100_000)
    >>> values[[777, 5_000]] = 50, 0.5
    >>> few = drawable(Series(steps, values), 200, keep=[31_415])
    >>> len(few.steps) < 210, few.values.max(), 31_415 in few.steps, few.steps[-1]
    (True, np.float64(50.0), True, np.int64(99999))
    >>> drawable(Series(np.array([1, 2, 3, 4, 20, 21]), np.ones(6))).values
    array([ 1.,  1.,  1.,  1., nan,  1.,  1.])
    """
    steps, values = series
    if len(steps) > points:
        from tsdownsample import MinMaxDownsampler

        chosen = MinMaxDownsampler().downsample(steps, np.ascontiguousarray(values), n_out=points // 2 * 2)  # type: ignore[no-untyped-call]
        wanted = np.flatnonzero(np.isin(steps, np.fromiter(keep, np.int64)))
        edges = _gaps(steps)
        ends = np.array([0, len(steps) - 1])
        at = np.unique(np.concatenate((chosen.astype(np.int64), wanted, edges, edges + 1, ends)))
    else:
        edges, at = _gaps(steps), np.arange(len(steps))
    broken = np.searchsorted(at, edges) + 1
    return Series(
        np.insert(steps[at], broken, steps[edges] + 1),
        np.insert(values[at], broken, np.nan),
    )


def _gaps(steps: np.ndarray[tuple[int], np.dtype[np.int64]]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Positions after which a gap begins; the widest ones where there are very many."""
    if len(steps) < 3:
        return np.empty(0, np.int64)
    distance = np.diff(steps)
    found = np.flatnonzero(distance > GAP_FACTOR * np.median(distance))
    return np.sort(found[np.argsort(distance[found])[-100:]])
