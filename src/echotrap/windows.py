"""Trailing windows over a series, and a memory for series that only grow.

Inside :func:`growing`, a window that was computed before is not computed again: of a series that begins like one seen earlier,
only the new points are. The answer is the same to the last bit, so only order statistics are remembered: sums would round.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["How", "Memory", "by_points", "by_steps", "growing", "latest"]

Floats: TypeAlias = NDArray[np.float64]
Steps: TypeAlias = NDArray[np.int64]
How: TypeAlias = Literal["median", "mean", "min", "max", "sum", "quantile"]
EXACT = frozenset({"median", "min", "max", "quantile"})


class _Known(NamedTuple):
    values: Floats
    steps: Steps
    result: Floats


Memory: TypeAlias = dict[tuple[Any, ...], list[_Known]]
"""What is remembered of one growing run: by kind of window, the series it was computed over."""

_memory: ContextVar[Memory | None] = ContextVar("memory", default=None)


@contextlib.contextmanager
def growing(memory: Memory) -> Iterator[None]:
    """Use and extend a memory."""
    token = _memory.set(memory)
    try:
        yield
    finally:
        _memory.reset(token)


def by_points(values: Floats, points: int, how: How = "median", *, share: float = 0.5) -> Floats:
    """A statistic of the last ``points`` values (fewer at the start); NaN are skipped, and NaN where nothing is left."""
    import pandas as pd

    def compute(part: Floats, _: Steps) -> Floats:
        windows = pd.Series(part).rolling(points, min_periods=1)
        return _statistic(windows, how, share)

    return _extended(("points", points, how, share), values, np.empty(0, np.int64), lambda n: max(n - points + 1, 0), compute)


def by_steps(values: Floats, steps: Steps, window_steps: int, how: How = "median", *, share: float = 0.5) -> Floats:
    """A statistic of the last ``window_steps`` steps (the newest included), however many points they hold."""
    import pandas as pd

    def compute(part: Floats, at: Steps) -> Floats:
        clock = pd.to_datetime(at, unit="ns")  # only because pandas rolls over irregular steps on a clock
        windows = pd.Series(part, index=clock).rolling(f"{window_steps}ns", min_periods=1)
        return _statistic(windows, how, share)

    def first(n: int) -> int:
        return int(np.searchsorted(steps, steps[n] - window_steps, side="right"))

    return _extended(("steps", window_steps, how, share), values, steps, first, compute)


def latest(at: Steps, steps: Steps) -> Steps:
    """Position of the latest of ``at`` at or before each of ``steps``; -1 before the first."""
    if len(at) == len(steps) and np.array_equal(at, steps):
        return np.arange(len(steps))
    return np.searchsorted(at, steps, side="right") - 1


def _statistic(windows: Any, how: How, share: float) -> Floats:
    found = windows.quantile(share) if how == "quantile" else getattr(windows, how)()
    return np.array(found, dtype=np.float64)


def _extended(
    key: tuple[Any, ...], values: Floats, steps: Steps, first: Callable[[int], int], compute: Callable[[Floats, Steps], Floats]
) -> Floats:
    """What ``compute`` gives for the whole series, from what is known of its beginning; ``first`` says what a point needs."""
    memory = _memory.get()
    if memory is None or key[2] not in EXACT or not len(values):
        return compute(values, steps)
    values = np.ascontiguousarray(values, np.float64)
    known = memory.setdefault(key, [])
    common = [_common(values, steps, old) for old in known]
    n = max(common, default=0)
    if 2 * n < len(values):
        result = compute(values, steps)
        known.append(_Known(values.copy(), steps.copy(), result))
        return result.copy()
    place = common.index(n)
    result = known[place].result[:n]
    if n < len(values):
        start = first(n)
        result = np.concatenate((result, compute(values[start:], steps[start:])[n - start :]))
    known[place] = _Known(values.copy(), steps.copy(), result)
    return result.copy()


def _common(values: Floats, steps: Steps, old: _Known) -> int:
    """For how long a series is the same as an earlier one, NaN included; its newest points may have changed since."""
    n = min(len(values), len(old.values))
    same = values[:n].view(np.int64) == old.values[:n].view(np.int64)
    if len(steps):
        same &= steps[:n] == old.steps[:n]
    return n if same.all() else int(np.argmin(same))
