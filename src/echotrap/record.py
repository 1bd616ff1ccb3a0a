"""Run: one training run as it was logged.

The frame holds numbers only. A missing value is NaN and stays NaN: *logged as NaN* is an entry of :attr:`Run.nonfinite`,
*not logged* is the absence of one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from echotrap.windows import latest

if TYPE_CHECKING:
    from echotrap.rollouts import RolloutStore
    from echotrap.sources.base import Note

__all__ = ["Event", "NonFinite", "Origin", "Provenance", "Run", "RunConfig", "Segment", "Series"]

Provenance = Literal["logged", "derived", "assumed"]


class Series(NamedTuple):
    """One signal where it has a value.

    Attributes
    ----------
    steps : (n,) int64
        Strictly increasing.
    values : (n,) float64
        Finite.
    """

    steps: NDArray[np.int64]
    values: NDArray[np.float64]


class NonFinite(NamedTuple):
    """A value that was logged and is not finite, or a dense signal that went missing while others went on.

    Attributes
    ----------
    step : int
        Where.
    field : str
        Canonical name, or the raw key of an unknown one.
    spelling : str
        ``"nan"``, ``"inf"``, ``"-inf"``, ``"null"``, ``"string"``, ``"missing"``, ``"flag"``. The first three (and the strings
        that spell them) were logged as such; ``null`` and ``missing`` are suspicions.
    certain : bool
        Whether the log says non-finite, rather than merely nothing.
    """

    step: int
    field: str
    spelling: str
    certain: bool = True


class Event(NamedTuple):
    """Something that changed the run on purpose, or is known to change its metrics."""

    step: int
    kind: Literal["resume", "restart", "declared", "config", "metric"]
    label: str


class Segment(NamedTuple):
    """A stretch of steps written by one process; a new one begins at a resume or restart."""

    first_step: int
    last_step: int
    reason: str


class Origin(NamedTuple):
    """Where a step was read."""

    file: str
    line: int


@dataclass(frozen=True)
class RunConfig:
    """Facts about a run that its metrics cannot tell; ``None`` where unknown.

    Read from the log, or told by the user (``[run]`` in echotrap.toml). ``checkpoints``: steps whose folders lie beside the log.
    """

    group_size: int | None = None
    prompts_per_step: int | None = None
    max_turns: int | None = None
    format_penalty: float | None = None
    length_limit: int | None = None
    max_steps: int | None = None
    save_interval: int | None = None
    reward_min: float | None = None
    reward_max: float | None = None
    checkpoints: tuple[int, ...] = ()
    raw: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """One run.

    Attributes
    ----------
    name, source, format : str
        What a person calls it, where it came from, and the format it was read as.
    framework, framework_version : str or None
        As declared or recognised by its keys.
    metrics : DataFrame
        Index ``step`` (int64, strictly increasing); float64 columns. Canonical names (:mod:`echotrap.fields`) where the key is
        known, the raw key otherwise, ``eval/<name>`` for evaluation rows.
    keys : Mapping
        Canonical name to the raw key it was read from.
    provenance : Mapping
        Canonical name to *logged*, *derived* (from rollouts or other keys) or *assumed* (the key has two readings).
    smoothed : frozenset of str
        Signals that are averages of several logged points.
    """

    name: str
    source: str
    format: str
    metrics: pd.DataFrame
    framework: str | None = None
    framework_version: str | None = None
    rollouts: RolloutStore | None = None
    config: RunConfig = field(default_factory=RunConfig)
    events: tuple[Event, ...] = ()
    nonfinite: tuple[NonFinite, ...] = ()
    segments: tuple[Segment, ...] = ()
    notes: tuple[Note, ...] = ()
    keys: Mapping[str, str] = field(default_factory=dict)
    provenance: Mapping[str, Provenance] = field(default_factory=dict)
    smoothed: frozenset[str] = frozenset()
    files: tuple[str, ...] = ()
    origin_files: NDArray[np.int32] | None = None
    origin_lines: NDArray[np.int64] | None = None
    finished: bool | None = None
    other_runs: tuple[str, ...] = ()

    @property
    def steps(self) -> NDArray[np.int64]:
        """All logged steps, strictly increasing."""
        return self.metrics.index.to_numpy(dtype=np.int64)

    @property
    def arm_steps(self) -> tuple[int, ...]:
        """Steps at which baselines begin anew: restarts and declared changes (a plain resume changes nothing)."""
        return tuple(item.step for item in self.events if item.kind in ("restart", "declared", "metric"))

    def has(self, name: str) -> bool:
        """Whether the signal has at least one finite value."""
        return name in self.metrics.columns and bool(np.isfinite(self.metrics[name].to_numpy()).any())

    def series(self, name: str) -> Series:
        """One signal where it has a finite value; empty where the run does not have it."""
        if name not in self.metrics.columns:
            return Series(np.empty(0, np.int64), np.empty(0, np.float64))
        values = self.metrics[name].to_numpy(dtype=np.float64)
        seen = np.isfinite(values)
        return Series(self.steps[seen], values[seen])

    def at(self, name: str, steps: NDArray[np.int64]) -> NDArray[np.float64]:
        """Values as known at the given steps: the latest finite one at or before each (causal), NaN before the first."""
        series = self.series(name)
        out = np.full(len(steps), np.nan)
        if len(series.steps):
            where = latest(series.steps, steps)
            out[where >= 0] = series.values[where[where >= 0]]
        return out

    def reward_range(
        self, steps: NDArray[np.int64], reward: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Least and most that a reward can be, as known at the given steps.

        Each end is the configured one, or the extreme logged so far; with neither the range is 0 to 1 where the reward has stayed
        inside that.

        Parameters
        ----------
        steps, reward : (n,) arrays
            The mean reward at those steps.

        Returns
        -------
        low, high : (n,) float64
            ``high`` is NaN where it is unknown.

        Examples
        --------
        >>> frame = pd.DataFrame({"reward_mean": [0.5, 0.75, 1.5]}, index=pd.Index([1, 2, 3], name="step"))
        >>> low, high = Run("example", "-", "frame", frame).reward_range(np.array([1, 2, 3]), frame["reward_mean"].to_numpy())
        >>> low.tolist(), high.tolist()
        ([0.0, 0.0, 0.0], [1.0, 1.0, nan])
        """
        from echotrap import stats

        low, high = np.zeros(len(steps)), np.ones(len(steps))
        if self.has("reward_max"):
            high = stats.running_max(self.at("reward_max", steps))
        elif self.config.reward_max is None:
            high[~((stats.running_min(reward) >= 0) & (stats.running_max(reward) <= 1))] = np.nan
        if self.has("reward_min") or self.has("reward_max"):
            low = np.fmin(stats.running_min(self.at("reward_min", steps)), stats.running_min(reward))
        if self.config.reward_min is not None:
            low = np.full(len(steps), self.config.reward_min)
        if self.config.reward_max is not None:
            high = np.full(len(steps), self.config.reward_max)
        return low, high

    def outcome_position(self, steps: NDArray[np.int64]) -> NDArray[np.float64]:
        """Where between its lowest and highest value the training outcome stands, as known at the given steps.

        Returns
        -------
        (n,) float64
            10-step mean on a scale of 0 to 1 (see :meth:`reward_range`); NaN where the scale is unknown.
        """
        from echotrap import stats

        at, values = self.series("success_rate" if self.has("success_rate") else "reward_mean")
        outcome = stats.as_of(stats.trailing(values, at, 10, "mean"), at, steps, np.nan)
        if self.has("success_rate"):
            return outcome
        low, high = self.reward_range(steps, outcome)
        return stats.ratio(outcome - low, high - low)

    def origin(self, step: int) -> Origin | None:
        """File and line that a step was read from."""
        at = int(np.searchsorted(self.steps, step))
        if self.origin_lines is None or self.origin_files is None or at >= len(self.steps) or self.steps[at] != step:
            return None
        if self.origin_lines[at] < 1:  # a step that only the rollouts have
            return None
        return Origin(self.files[int(self.origin_files[at])], int(self.origin_lines[at]))

    def until(self, step: int) -> Run:
        """The run as it was known when ``step`` had been logged."""
        count = int(np.searchsorted(self.steps, step, side="right"))
        return replace(
            self,
            metrics=self.metrics.iloc[:count],
            nonfinite=tuple(item for item in self.nonfinite if item.step <= step),
            events=tuple(item for item in self.events if item.step <= step),
            segments=tuple(
                item._replace(last_step=min(item.last_step, step)) for item in self.segments if item.first_step <= step
            ),
            origin_files=None if self.origin_files is None else self.origin_files[:count],
            origin_lines=None if self.origin_lines is None else self.origin_lines[:count],
        )
