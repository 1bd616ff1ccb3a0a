"""The contract of a detector: a card, frozen parameters and one pure function.

A detector looks at series and says, for every step and using nothing later than that step, how worried it is. Everything else
(onset, alarm step, recovery, what to draw, what the live view shows) follows from the :class:`Track` it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from echotrap.record import Run

__all__ = [
    "Alert",
    "Card",
    "Clear",
    "Detector",
    "Episode",
    "Failed",
    "Family",
    "Gate",
    "Level",
    "NotEvaluated",
    "Outcome",
    "Remedy",
    "Sensitivity",
    "Symptoms",
    "Track",
    "at_sensitivity",
    "episodes",
    "knob",
]

Floats: TypeAlias = NDArray[np.float64]
Steps: TypeAlias = NDArray[np.int64]

Family = Literal[
    "composite", "reward", "entropy", "text", "gradient", "numerics", "length", "off-policy", "critic", "agent",
    "environment", "evaluation", "event", "input",
]  # fmt: skip
Gate = Literal["min-data", "raw-input", "warmup", "declared-event", "solved", "not-improving", "not-risen"]
Tier = Literal["core", "extension", "run-level"]

STANDARD_GATES: tuple[Gate, ...] = ("min-data", "raw-input", "warmup", "declared-event", "solved")


Sensitivity = Literal["low", "default", "high"]


def knob(
    default: float,
    *,
    least: float,
    most: float,
    low: float | None = None,
    high: float | None = None,
    source: str,
) -> Any:
    """Declare a parameter: its default, its bounds, its two other working points and where it comes from.

    Parameters
    ----------
    default : float
        The calibrated value. Its name in the dataclass carries unit and direction (``floor_ratio``, ``window_steps``).
    least, most : float
        Bounds that make sense.
    low, high : float, optional
        Values at ``--sensitivity low`` (fewer alarms) and ``high`` (earlier alarms); the default where not given.
    source : str
        The paper, code or calibration that set it.
    """
    facts = {
        "least": least,
        "most": most,
        "low": default if low is None else low,
        "high": default if high is None else high,
        "source": source,
    }
    return field(default=default, metadata=facts)


def at_sensitivity(params: Any, sensitivity: Sensitivity) -> Any:
    """Parameters at another working point of the one dial; fields without a knob keep their value."""
    if sensitivity == "default":
        return params
    return replace(params, **{f.name: f.metadata[sensitivity] for f in fields(params) if sensitivity in f.metadata})


class Level(IntEnum):
    """How worried a detector is. A watch is reported as ``info``."""

    CLEAR = 0
    WATCH = 1
    WARNING = 2
    CRITICAL = 3

    @property
    def severity(self) -> Literal["ok", "info", "warning", "critical"]:
        """The word that reports use."""
        return ("ok", "info", "warning", "critical")[self]


class Remedy(NamedTuple):
    """One lever, what speaks for it, and how it is spelled per framework.

    Attributes
    ----------
    action : str
        What to do, in one sentence.
    keys : Mapping
        Framework to configuration ``key=value`` text, e.g. ``{"verl": "actor_rollout_ref.actor.clip_ratio_high=0.28"}``.
    cost : str
        What it costs, or when not to.
    """

    action: str
    keys: Mapping[str, str] = {}
    cost: str = ""


@dataclass(frozen=True)
class Card:
    """What a person needs to know about a detector before reading its code.

    Attributes
    ----------
    id : str
        Names the symptom; the file has the same name with underscores.
    title : str
        One line.
    family, tier, highest
        Which part of training it listens to, how settled it is, and the most it may say.
    needs : tuple of tuple of str
        Signals it cannot do without; each inner tuple holds alternatives, the first present one is used.
    uses : tuple of str
        Signals that make it better.
    gates : tuple of str
        Conditions under which the library mutes or caps it (:mod:`echotrap.gates`).
    message : str
        ``str.format`` template; its names are keys of :attr:`Track.evidence` (value at the alarm), ``step``, ``onset``.
    remedies : tuple of Remedy
        In the order to try them.
    references : tuple of str
        Papers, repositories, issues.
    units : Mapping
        Unit of each evidence number, where it has one.
    tell : str
        Which point of an episode the message is about: ``"now"`` (the last), ``"worst"`` (the highest score), ``"alarm"``.
    """

    id: str
    title: str
    family: Family
    highest: Level
    needs: tuple[tuple[str, ...], ...]
    message: str
    remedies: tuple[Remedy, ...]
    references: tuple[str, ...]
    tier: Tier = "core"
    uses: tuple[str, ...] = ()
    gates: tuple[Gate, ...] = STANDARD_GATES
    code: str = ""
    units: Mapping[str, str] = field(default_factory=dict)
    tell: Literal["now", "worst", "alarm"] = "now"


@dataclass(frozen=True, eq=False)
class Track:
    """What one detector saw, per step.

    Attributes
    ----------
    steps : (n,) int64
        Steps it judged, strictly increasing.
    level : (n,) int8
        :class:`Level` at each step, from steps up to and including it.
    onset : (n,) int64
        Step at which the condition that holds now began; -1 where the level is 0.
    score, limit : (n,) float64
        The judged number, and what it is judged against; what a chart draws.
    evidence : Mapping
        Further numbers or words, per step (arrays of length n) or for the run (scalars, strings).
    """

    steps: Steps
    level: NDArray[np.int8]
    onset: Steps
    score: Floats
    limit: Floats
    evidence: Mapping[str, Any] = field(default_factory=dict)

    def evidence_at(self, index: int) -> dict[str, float | str]:
        """Evidence as it stood at one point."""
        return {name: value[index].item() if isinstance(value, np.ndarray) else value for name, value in self.evidence.items()}


@dataclass(frozen=True, slots=True)
class Episode:
    """One stretch of a track above clear.

    Attributes
    ----------
    onset_step : int
        When the condition began.
    alarm_steps : Mapping
        First step at each level that was reached.
    level : Level
        The highest.
    cleared_step : int or None
        ``None`` while it lasts.
    first, peak, last : int
        Positions in the track.
    """

    onset_step: int
    alarm_steps: Mapping[Level, int]
    level: Level
    cleared_step: int | None
    first: int
    peak: int
    last: int


@dataclass(frozen=True, eq=False)
class Alert:
    """The detector saw its symptom, now or earlier in the run."""

    track: Track
    episodes: tuple[Episode, ...]


@dataclass(frozen=True, eq=False)
class Clear:
    """The detector looked and saw nothing."""

    track: Track


@dataclass(frozen=True, slots=True)
class NotEvaluated:
    """The detector could not look, and why."""

    reason: str
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Failed:
    """The detector raised; the report says so and the exit code is 2."""

    error: str


Outcome: TypeAlias = Alert | Clear | NotEvaluated | Failed


@dataclass(frozen=True, eq=False)
class Symptoms:
    """What all detectors saw, on one step axis, after the gates: the input of a composite.

    Attributes
    ----------
    run : Run
        The run itself.
    steps : (n,) int64
        Every logged step.
    levels, onsets : Mapping of str to (n,) arrays
        Per detector id; between its own points a detector's last word holds. Detectors that could not look are absent.
    improving, risen, solved : (n,) bool
        Gates of the run (:mod:`echotrap.gates`).
    memory_steps : (n,) float64
        How far back a symptom still counts.
    """

    run: Run
    steps: Steps
    levels: Mapping[str, NDArray[np.int8]]
    onsets: Mapping[str, Steps]
    improving: NDArray[np.bool_]
    risen: NDArray[np.bool_]
    solved: NDArray[np.bool_]
    memory_steps: Floats

    def at_least(self, level: Level, *ids: str) -> NDArray[np.bool_]:
        """Where any of the detectors is at the level or above."""
        flag = np.zeros(len(self.steps), bool)
        for name in ids:
            if name in self.levels:
                flag |= self.levels[name] >= level
        return flag

    def remembered(self, flag: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Where a flag is up, or was within the memory."""
        index = np.maximum.accumulate(np.where(flag, np.arange(len(flag)), -1)) if len(flag) else np.empty(0, np.int64)
        return (index >= 0) & (self.steps - self.steps[np.maximum(index, 0)] <= self.memory_steps)

    def onset(self, flag: NDArray[np.bool_], *ids: str) -> Steps:
        """Earliest onset, within the memory, among the detectors; the step itself where there is none."""
        earliest = self.steps.copy()
        for name in ids:
            if name not in self.onsets:
                continue
            last = np.maximum.accumulate(np.where(self.levels[name] > 0, np.arange(len(self.steps)), -1))
            seen = last >= 0
            since = self.onsets[name][np.maximum(last, 0)]
            fresh = seen & (self.steps - self.steps[np.maximum(last, 0)] <= self.memory_steps)
            earliest = np.where(fresh & (since >= 0) & (since < earliest), since, earliest)
        return np.where(flag, earliest, -1)


@dataclass(frozen=True)
class Detector:
    """A card, its default parameters (a frozen dataclass) and the function that judges.

    A composite (``card.family == "composite"``) judges what the others saw: :mod:`echotrap.diagnosis` calls its ``combine``
    after them, and its ``detect`` only says so.
    """

    card: Card
    params: Any
    detect: Callable[[Run, Any], Track | NotEvaluated]
    combine: Callable[[Symptoms, Any], Track | NotEvaluated] | None = None

    def __call__(self, run: Run, params: Any = None) -> Track | NotEvaluated:
        """Judge a run with the given or the default parameters; says first which needed signal is missing."""
        missing = [alternatives for alternatives in self.card.needs if not any(run.has(name) for name in alternatives)]
        if missing:
            names = tuple(" or ".join(alternatives) for alternatives in missing)
            return NotEvaluated(f"not in the log: {', '.join(names)}", missing=tuple(n for alt in missing for n in alt))
        track = self.detect(run, self.params if params is None else params)
        if isinstance(track, Track) and (track.level > self.card.highest).any():
            # an extension proposes what its rule says; its card caps it until it has been calibrated
            return replace(track, level=np.minimum(track.level, self.card.highest).astype(np.int8))
        return track


def episodes(track: Track) -> tuple[Episode, ...]:
    """Split a track into the stretches where it is above clear.

    Examples
    --------
    >>> import numpy as np
    >>> level = np.array([0, 1, 2, 0, 0, 1], np.int8)
    >>> onset = np.array([-1, 10, 10, -1, -1, 50])
    >>> track = Track(np.arange(6) * 10, level, onset, np.zeros(6), np.zeros(6))
    >>> [(e.onset_step, e.level.name, dict(e.alarm_steps)[e.level], e.cleared_step) for e in episodes(track)]
    [(10, 'WARNING', 20, 30), (50, 'WATCH', 50, None)]
    """
    above = track.level > 0
    if not above.any():
        return ()
    edges = np.diff(np.concatenate(([0], above.view(np.int8), [0])))
    found = []
    for first, stop in zip(np.flatnonzero(edges == 1), np.flatnonzero(edges == -1), strict=True):
        levels = track.level[first:stop]
        alarms = {
            Level(value): int(track.steps[first + int(np.argmax(levels >= value))]) for value in range(1, int(levels.max()) + 1)
        }
        peak = first + int(np.argmax(levels))
        found.append(
            Episode(
                onset_step=int(track.onset[first]),
                alarm_steps=alarms,
                level=Level(int(levels.max())),
                cleared_step=int(track.steps[stop]) if stop < len(track.steps) else None,
                first=int(first),
                peak=int(peak),
                last=int(stop) - 1,
            )
        )
    return tuple(found)
