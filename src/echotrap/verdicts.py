"""What the symptoms together mean: one rule a verdict, most telling first.

A rule turns the symptoms into a level per step. The verdict at a step is the rule with the highest level there; between equals
the order of :data:`RULES` decides, so that a cause stands before its consequences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from echotrap import stats
from echotrap.detector import Level, Symptoms

__all__ = ["COOL_DOWN_POINTS", "COOL_DOWN_STEPS", "RULES", "Rule", "cap_critical", "lasting"]

Levels = NDArray[np.int8]

GONE_STEPS, GONE_POINTS = 50, 10  # an outcome that has been gone for so long needs no second family: a log may hold no other
COOL_DOWN_STEPS = 20  # a level is taken back when it has been lower for this long (failure_modes.md 9.5: hysteresis)
COOL_DOWN_POINTS = 3

ALONE = frozenset({"non-finite", "token-zero-output", "format-floor", "echo-trap"})
"""Detectors whose critical needs no second family (failure_modes.md 3.4)."""

NEEDS_OUTCOME = frozenset({"tool-format-collapse"})
"""Not calibrated enough to wake someone by another family's word: the outcome itself must be worse."""

OUTCOME = ("performance-drop", "format-floor")


class Rule(NamedTuple):
    """A verdict, the detectors it rests on, and its level per step."""

    label: str
    rests_on: tuple[str, ...]
    level: Callable[[Symptoms], Levels]


def _highest(*ids: str, least: Level = Level.WARNING) -> Callable[[Symptoms], Levels]:
    """The highest level of some detectors, from ``least`` on."""

    def level(symptoms: Symptoms) -> Levels:
        out = np.zeros(len(symptoms.steps), np.int8)
        for name in ids:
            if name in symptoms.levels:
                out = np.maximum(out, symptoms.levels[name])
        out[out < least] = 0
        return out

    return level


def _environment(symptoms: Symptoms) -> Levels:
    """A failing environment, as grave as what it did to the outcome."""
    failing = symptoms.remembered(symptoms.at_least(Level.WARNING, "environment-failure"))
    outcome = _highest("performance-drop", "environment-failure")(symptoms)
    return np.where(failing, outcome, 0).astype(np.int8)


def _policy(symptoms: Symptoms) -> Levels:
    """Entropy, length or performance gone; critical once a detector that says so may be."""
    return np.maximum(
        _highest("entropy-collapse", "length-collapse", "tool-format-collapse", "format-floor")(symptoms),
        _highest("performance-drop", least=Level.CRITICAL)(symptoms),
    )


def _hacking(symptoms: Symptoms) -> Levels:
    """The held-out score is gone while the training outcome stands at its best."""
    parted = symptoms.remembered(symptoms.at_least(Level.WATCH, "reward-hacking", "train-eval-divergence"))
    lost = symptoms.at_least(Level.WARNING, "performance-drop") & (symptoms.risen | symptoms.improving)
    return np.where(parted & lost, Level.WARNING, 0).astype(np.int8)


NO_SIGNAL = ("never-learned", "zero-variance-groups", "dead-gradient", "reward-attractor")

RULES: tuple[Rule, ...] = (
    Rule("numerical-failure", ("non-finite", "token-zero-output"), _highest("non-finite", "token-zero-output")),
    Rule("environment-failure", ("environment-failure", "performance-drop"), _environment),
    Rule(
        "echo-trap",
        (
            "echo-trap", "reward-variance-collapse", "zero-variance-groups", "format-floor", "performance-drop",
            "cross-rollout-repetition", "within-rollout-repetition", "template-collapse",
            "entropy-collapse", "entropy-eruption", "gradient-spike",
        ),
        _highest("echo-trap"),
    ),
    Rule("reward-hacking-suspected", ("reward-hacking", "train-eval-divergence", "performance-drop"), _hacking),
    Rule("entropy-eruption", ("entropy-eruption", "length-explosion", "gradient-spike"), _highest("entropy-eruption")),
    Rule("truncation-starvation", ("truncation", "length-explosion"), _highest("truncation")),
    Rule(
        "policy-collapse",
        ("entropy-collapse", "length-collapse", "tool-format-collapse", "format-floor", "performance-drop", "dead-gradient"),
        _policy,
    ),
    Rule("no-learning-signal", NO_SIGNAL, _highest(*NO_SIGNAL)),
    Rule("template-collapse", ("template-collapse",), _highest("template-collapse")),
)  # fmt: skip


CONSEQUENCES: Mapping[str, Level | None] = {
    "numerical-failure": None,
    "entropy-eruption": None,
    "policy-collapse": Level.WARNING,
}
"""Verdicts that give way to another that came before: one of the same level, or one of at least the level that is named."""


def cap_critical(symptoms: Symptoms, family: dict[str, str]) -> dict[str, Levels]:
    """Apply the severity policy: a critical needs a worse outcome or a second family, unless it may stand alone.

    Parameters
    ----------
    symptoms : Symptoms
        Gated levels.
    family : dict
        Detector id to family.
    """
    worse = symptoms.remembered(symptoms.at_least(Level.WARNING, *OUTCOME))
    capped = {}
    for name, level in symptoms.levels.items():
        if name not in ALONE and (level >= Level.CRITICAL).any():
            others = [other for other in symptoms.levels if family[other] not in (family[name], "composite", "event", "input")]
            backed = symptoms.remembered(symptoms.at_least(Level.WARNING, *others)) & (name not in NEEDS_OUTCOME)
            if name not in OUTCOME:
                backed |= worse
            if name == "performance-drop":
                gone = level >= Level.CRITICAL
                backed |= (
                    stats.held(gone, symptoms.steps, GONE_STEPS).on & stats.held_points(gone, symptoms.steps, GONE_POINTS).on
                )
            level = np.where((level >= Level.CRITICAL) & ~backed, Level.WARNING, level).astype(np.int8)
        capped[name] = level
    return capped


def lasting(level: Levels, steps: NDArray[np.int64]) -> Levels:
    """Hysteresis: a level is taken back only after it has been lower for a cool-down (20 steps and 3 points).

    Examples
    --------
    >>> lasting(np.array([0, 2, 0, 0, 0], np.int8), np.array([0, 10, 20, 30, 40])).tolist()
    [0, 2, 2, 2, 0]
    """
    out = level.copy()
    for height in range(1, 4):
        index = np.maximum.accumulate(np.where(level >= height, np.arange(len(level)), -1)) if len(level) else level
        near = (steps - steps[np.maximum(index, 0)] <= COOL_DOWN_STEPS) | (np.arange(len(level)) - index < COOL_DOWN_POINTS)
        out[(index >= 0) & near & (out < height)] = height
    return out
