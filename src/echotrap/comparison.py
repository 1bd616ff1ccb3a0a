"""Two runs side by side: on one axis, where they part, and in what they were set up differently."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from echotrap import stats
from echotrap.record import Run, Series

__all__ = ["AXES", "Axis", "Parting", "aligned", "common", "differences", "partings"]

Floats = NDArray[np.float64]
Axis = Literal["step", "tokens", "wall time"]
AXES: Mapping[Axis, str | None] = {"step": None, "tokens": "num_tokens", "wall time": "wall_time"}
"""What runs can be laid over one another by, and the signal that gives it."""

CLOCKS = frozenset(("wall_time", "step_time", "epoch", "num_tokens", "tool_latency"))
"""Signals that tell of the machine and not of the training."""
PROGRESS = frozenset(("epoch", "global_step", "num_input_tokens_seen", "total_flos", "step", "train_runtime"))
"""What some logs keep among their settings, though it only says how far they got."""
SMOOTH_POINTS = 5
NOISE_POINTS = 11
BAND_SIGMAS = 4.0
HOLD_POINTS = 5


class Parting(NamedTuple):
    """Where one signal of two runs parts.

    Attributes
    ----------
    signal : str
        Canonical name.
    x : float
        First place on the axis at which B has left A's noise band for good measure.
    step : int
        The step of A that it is.
    a, b : float
        Both values there, smoothed.
    sigmas : float
        How far apart, in units of A's noise.
    """

    signal: str
    x: float
    step: int
    a: float
    b: float
    sigmas: float


def common(runs: Sequence[Run]) -> list[str]:
    """Signals that all runs have, in the order of the first; clocks left out."""
    names = [str(name) for name in runs[0].metrics.columns if name not in CLOCKS]
    return [name for name in names if all(run.has(name) for run in runs)]


def aligned(run: Run, name: str, axis: Axis = "step") -> tuple[Floats, Series]:
    """A signal, and where its points lie on an axis (tokens seen, or seconds since the run's first step)."""
    series = run.series(name)
    key = AXES[axis]
    if key is None:
        return series.steps.astype(np.float64), series
    x = run.at(key, series.steps)
    seen = np.isfinite(x)
    kept = Series(series.steps[seen], series.values[seen])
    x = x[seen]
    if axis == "wall time" and len(x):
        x = x - run.series(key).values[0]
    return x, kept


def partings(a: Run, b: Run, names: Sequence[str], axis: Axis = "step") -> list[Parting]:
    """Where B first leaves A's noise band, for each signal in which it does; earliest first.

    The band is four robust sigmas of A around its own local median; medians of five points are compared, and B has to stay
    outside for five points in a row.

    Examples
    --------
    >>> import pandas as pd
    >>> rng, steps = np.random.default_rng(0), pd.RangeIndex(1, 201, name="step")
    >>> same = pd.DataFrame({"entropy": 1 + 0.02 * rng.normal(size=200)}, index=steps)
    >>> fallen = same - 0.5 * (same.index >= 120).reshape(-1, 1)
    >>> [(p.signal, p.step) for p in partings(Run("a", "-", "-", same), Run("b", "-", "-", fallen), ["entropy"])]
    [('entropy', 122)]
    """
    found = [parting for name in names if (parting := _parting(a, b, name, axis)) is not None]
    return sorted(found, key=lambda item: item.x)


def differences(runs: Sequence[Run]) -> dict[str, tuple[object, ...]]:
    """Settings in which runs differ, as far as two logs or more tell; ``None`` where a log does not."""
    facts = [
        {**run.config.raw, **{k: getattr(run.config, k) for k in run.config.__dataclass_fields__ if k != "raw"}} for run in runs
    ]
    keys = sorted({key for item in facts for key, value in item.items() if value is not None and key not in PROGRESS})
    table = {key: tuple(item.get(key) for item in facts) for key in keys}
    told = {key: [str(value) for value in values if value is not None] for key, values in table.items()}
    return {key: values for key, values in table.items() if len(told[key]) > 1 and len(set(told[key])) > 1}


def _parting(a: Run, b: Run, name: str, axis: Axis) -> Parting | None:
    x, left = aligned(a, name, axis)
    where, right = aligned(b, name, axis)
    if len(x) < NOISE_POINTS or len(where) < HOLD_POINTS:
        return None
    inside = (x >= where[0]) & (x <= where[-1])
    x, steps, mine = x[inside], left.steps[inside], left.values[inside]
    if len(x) < HOLD_POINTS:
        return None
    other = np.interp(x, where, right.values)
    noise = _noise(left.values)
    ours, theirs = (stats.rolling_median(values, SMOOTH_POINTS) for values in (mine, other))
    apart = np.abs(theirs - ours) / noise
    places = np.arange(len(x), dtype=np.int64)
    held = stats.held(apart > BAND_SIGMAS, places, HOLD_POINTS)
    if not held.on.any():
        return None
    at = int(held.since[int(np.argmax(held.on))])
    return Parting(name, float(x[at]), int(steps[at]), float(ours[at]), float(theirs[at]), float(apart[at]))


def _noise(values: Floats) -> float:
    """Robust standard deviation around the local median; the plain one where more than half of the points are the same."""
    off = np.abs(values - stats.rolling_median(values, NOISE_POINTS))
    least = max(1e-6 * float(np.abs(values).max()), 1e-12)  # a constant has no noise of its own
    robust = 1.4826 * float(np.median(off))
    return robust if robust > least else max(float(np.sqrt(np.mean(off**2))), least)
