"""Run in, report out: detectors, gates, severity policy, verdict, in that order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from echotrap import gates, registry, stats, verdicts
from echotrap.config import Settings, parameters
from echotrap.detector import (
    Alert,
    Clear,
    Detector,
    Failed,
    Level,
    NotEvaluated,
    Outcome,
    Symptoms,
    Track,
    episodes,
)
from echotrap.record import Run
from echotrap.report import Report
from echotrap.windows import latest

__all__ = ["Examination", "Incident", "chosen", "diagnose", "examine"]

Levels = NDArray[np.int8]

HEALTHY_POINTS = 12  # failure_modes.md 3.2: no healthy verdict below twelve usable points
MEMORY_STEPS = (50, 200)  # failure_modes.md 8.1
MEMORY_SHARE = 0.5


class Incident(NamedTuple):
    """A stretch of the run at warning or above.

    Attributes
    ----------
    label : str
        Verdict at its highest level.
    level : Level
        The highest level that still stood at its end.
    onset_step, alarm_step : int
        When its first symptom began, and when it could first have been told.
    cleared_step : int or None
        ``None`` while it lasts.
    """

    label: str
    level: Level
    onset_step: int
    alarm_step: int
    cleared_step: int | None


@dataclass(frozen=True, eq=False)
class Examination:
    """Everything that was seen in a run: the material of the report, the live view and the evaluation.

    Attributes
    ----------
    detectors : Mapping
        The detectors that ran, with their parameters.
    outcomes : Mapping
        Per detector: alert, clear, not evaluated or failed; tracks are after gates and policy.
    symptoms : Symptoms
        The same on one step axis.
    rules : Mapping
        Verdict label to its level per step, after hysteresis.
    """

    run: Run
    detectors: Mapping[str, Detector]
    outcomes: Mapping[str, Outcome]
    gates: gates.Gates
    symptoms: Symptoms
    rules: Mapping[str, Levels]

    @cached_property
    def level(self) -> Levels:
        """Level of the verdict at every step."""
        return np.maximum.reduce(list(self.rules.values())) if self.rules else np.zeros(len(self.run.steps), np.int8)

    @cached_property
    def tracks(self) -> dict[str, Track]:
        """Tracks of the detectors that could look."""
        return {name: out.track for name, out in self.outcomes.items() if isinstance(out, Alert | Clear)}

    @cached_property
    def incidents(self) -> tuple[Incident, ...]:
        """Stretches at warning or above, in time order; the last one may still be open."""
        steps = self.run.steps
        up = self.level >= Level.WARNING
        edges = np.diff(np.concatenate(([0], up.view(np.int8), [0])))
        found = []
        for first, stop in zip(np.flatnonzero(edges == 1), np.flatnonzero(edges == -1), strict=True):
            label, level = self._label(int(first), int(stop))
            open_ = stop == len(steps)
            found.append(
                Incident(
                    label,
                    level,
                    self._onset(label, int(first), int(stop)),
                    int(steps[first]),
                    None if open_ else int(steps[stop]),
                )
            )
        return tuple(found)

    @property
    def incident(self) -> Incident | None:
        """The incident that is open at the end of the run, if there is one."""
        return self.incidents[-1] if self.incidents and self.incidents[-1].cleared_step is None else None

    def history(self, incident: Incident) -> tuple[Incident, ...]:
        """An incident as it stood at each step where its verdict changed: what could have been told, and when."""
        steps = self.run.steps
        first = int(np.searchsorted(steps, incident.alarm_step))
        stop = len(steps) if incident.cleared_step is None else int(np.searchsorted(steps, incident.cleared_step))
        stack = np.stack([level[first:stop] for level in self.rules.values()])
        turns = [0, *(np.flatnonzero((np.diff(stack, axis=1) != 0).any(axis=0)) + 1).tolist()]
        stood = []
        for at in turns:
            label, level = self._label(first, first + at + 1)
            stood.append(Incident(label, level, self._onset(label, first, first + at + 1), int(steps[first + at]), None))
        return tuple(stood)

    def _label(self, first: int, stop: int) -> tuple[str, Level]:
        """Label of a stretch: the rule with the highest last level; between equals the earlier in the order of the rules.

        Some verdicts give way to one that came before (:data:`echotrap.verdicts.CONSEQUENCES`).
        """
        last = {label: int(level[stop - 1]) for label, level in self.rules.items()}
        top = max(last.values())
        candidates = [label for label, level in last.items() if level == top]
        chosen = candidates[0]
        if chosen in verdicts.CONSEQUENCES:
            least = verdicts.CONSEQUENCES[chosen] or top
            begins = {
                label: int(np.argmax(self.rules[label][first:stop] >= least)) for label, level in last.items() if level >= least
            }
            earlier = [label for label, step in begins.items() if label != "unstable" and step < begins[chosen]]
            chosen = earlier[0] if earlier else chosen
        return chosen, Level(top)

    def _onset(self, label: str, first: int, stop: int) -> int:
        """Earliest onset among the warnings that the verdict rests on, while the stretch lasted."""
        rests_on = next((rule.rests_on for rule in verdicts.RULES if rule.label == label), tuple(self.symptoms.levels))
        onsets = []
        for name in rests_on:
            if name in self.symptoms.levels:
                inside = slice(first, stop)
                at = self.symptoms.levels[name][inside] >= Level.WARNING
                onsets += [int(step) for step in self.symptoms.onsets[name][inside][at][:1] if step >= 0]
        return min([*onsets, int(self.run.steps[first])])


def chosen(settings: Settings) -> dict[str, Detector]:
    """The detectors that settings ask for, with their parameters set.

    Raises
    ------
    DetectorError, ConfigError
        An id, a parameter or a value does not exist or fit.
    """
    known = registry.catalogue(settings.detector_paths)
    for name in (*settings.only, *settings.skip, *settings.params):
        if name not in known:
            raise registry.unknown(name, known)
    return {
        name: replace(detector, params=parameters(detector, settings))
        for name, detector in known.items()
        if (not settings.only or name in settings.only) and name not in settings.skip
    }


def examine(run: Run, settings: Settings | None = None) -> Examination:
    """Run all detectors over a run and combine what they saw.

    Parameters
    ----------
    run : Run
        With signals derived from its rollouts, where it has any.
    settings : Settings, optional
        Selection and parameters.
    """
    detectors = chosen(settings or Settings())
    gate = gates.compute(run)
    raw: dict[str, Track] = {}
    outcomes: dict[str, Outcome] = {}
    for name, detector in detectors.items():
        if detector.card.family == "composite":
            continue
        seen = _judge(detector, run)
        if isinstance(seen, Track):
            raw[name] = gates.apply(seen, detector.card, gate, run)
        else:
            outcomes[name] = seen
    symptoms = _symptoms(run, raw, gate)
    family: dict[str, str] = {name: detector.card.family for name, detector in detectors.items()}
    symptoms = replace(symptoms, levels=verdicts.cap_critical(symptoms, family))
    at = {name: latest(run.steps, track.steps) for name, track in raw.items()}
    tracks = {name: replace(track, level=symptoms.levels[name][at[name]]) for name, track in raw.items()}
    for name, detector in detectors.items():
        if detector.combine is not None:
            try:
                combined = detector.combine(symptoms, detector.params)
            except Exception as error:
                outcomes[name] = Failed(f"{type(error).__name__}: {error}")
                continue
            if isinstance(combined, Track):
                tracks[name] = combined
                symptoms = replace(
                    symptoms,
                    levels={**symptoms.levels, name: combined.level},
                    onsets={**symptoms.onsets, name: combined.onset},
                )
            else:
                outcomes[name] = combined
    for name, track in tracks.items():
        found = episodes(track)
        outcomes[name] = Alert(track, found) if found else Clear(track)
    rules = {rule.label: verdicts.lasting(rule.level(symptoms), run.steps) for rule in verdicts.RULES}
    rules["unstable"] = verdicts.lasting(_unexplained(symptoms), run.steps)
    return Examination(run, detectors, {name: outcomes[name] for name in detectors}, gate, symptoms, rules)


def diagnose(run: Run, settings: Settings | None = None) -> Report:
    """Judge one run.

    Parameters
    ----------
    run : Run
        What :func:`echotrap.open_run` returns.
    settings : Settings, optional
        Selection and parameters of the detectors.

    Returns
    -------
    Report
    """
    from echotrap.reporting import report

    return report(examine(run, settings))


def _judge(detector: Detector, run: Run) -> Track | NotEvaluated | Failed:
    try:
        return detector(run)
    except Exception as error:  # a detector that raises is a result: shown, and exit code 2
        return Failed(f"{type(error).__name__}: {error}")


def _symptoms(run: Run, tracks: Mapping[str, Track], gate: gates.Gates) -> Symptoms:
    """Put all tracks on the step axis of the run; a detector's last word holds until its next point."""
    steps = run.steps
    levels, onsets = {}, {}
    for name, track in tracks.items():
        where = latest(track.steps, steps)
        seen = where >= 0
        index = np.maximum(where, 0)
        levels[name] = (
            np.where(seen, track.level[index], 0).astype(np.int8) if len(track.steps) else np.zeros(len(steps), np.int8)
        )
        onsets[name] = np.where(seen, track.onset[index], -1) if len(track.steps) else np.full(len(steps), -1)
    length = steps - steps[0] if len(steps) else steps
    memory = np.clip(MEMORY_SHARE * length, *MEMORY_STEPS)
    return Symptoms(run, steps, levels, onsets, gate.improving, gate.risen, gate.solved, memory)


def _unexplained(symptoms: Symptoms) -> Levels:
    """Warnings that no rule explains."""
    explained = {name for rule in verdicts.RULES for name in rule.rests_on if rule.label != "echo-trap"} | {"echo-trap"}
    out = np.zeros(len(symptoms.steps), np.int8)
    for name, level in symptoms.levels.items():
        if name not in explained or name in ("gradient-spike", "performance-drop", "length-explosion"):
            out = np.maximum(out, level)
    out[out < Level.WARNING] = 0
    return out


def usable_points(run: Run) -> int:
    """Number of points of the best-covered signal that a verdict can rest on."""
    from echotrap.fields import SIGNATURE

    names = {name for part in SIGNATURE for name in part} | {"kl_ref", "kl_old", "response_length", "truncated_frac"}
    return max((len(run.series(name).steps) for name in names), default=0)


def baseline_of(run: Run, name: str) -> tuple[float, float, float] | None:
    """Baseline of a signal with its band (median, median - 2 MAD, median + 2 MAD of the points it rests on)."""
    steps, values = run.series(name)
    if len(values) < 3:
        return None
    centre = stats.baseline(values, steps, off_factor=2.0)
    normal = centre[np.isfinite(centre)]
    if not len(normal):
        return None
    middle = float(normal[-1])
    early = values[steps <= steps[0] + 20]
    mad = 1.4826 * float(np.median(np.abs(early - middle))) if len(early) else 0.0
    return middle, middle - 2 * mad, middle + 2 * mad
