"""Agents that use tools and fail in a known way from a known step on, from texts to alarms."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from echotrap import signals
from echotrap.detector import Alert, Level
from echotrap.diagnosis import examine
from echotrap.record import Run
from echotrap.registry import catalogue
from echotrap.rollouts import MemoryStore, Message, Rollout

STEPS, ONSET, GROUPS, SIZE = 80, 40, 6, 6
TOOLS = ("search", "open_page", "calculator", "calendar")
PLACES = ("Lima", "Oslo", "Quito", "Hanoi", "Accra", "Sofia", "Dakar", "Minsk", "Tunis", "Riga")
FAILURES = (
    "coarse-reward-ties", "reward-misalignment", "noisy-verifier", "void-turns", "decorative-tool-calls",
    "fabricated-observations", "tool-mix-collapse", "action-loops",
)  # fmt: skip


def rollout(rng: np.random.Generator, step: int, group: int, failure: str) -> Rollout:
    """One agent that calls up to three tools and answers with what they say."""
    place = PLACES[(step * GROUPS + group) % len(PLACES)]
    messages = [Message("user", f"Task {step}.{group}: where is the thing with number {group}?")]
    kinds = ["search"] * 3 if failure == "tool-mix-collapse" else list(rng.choice(TOOLS, rng.integers(1, 4)))
    if failure == "action-loops":
        kinds = ["search"] * 4
    right = rng.random() < 0.55
    for at, kind in enumerate(kinds):
        number = 0 if failure == "action-loops" else at + rng.integers(1_000)
        call = {"function": {"name": kind, "arguments": json.dumps({"query": f"thing {group} part {number}"})}}
        said = f"Let me look, part {rng.integers(1_000_000)}."
        if failure == "void-turns" and at == 0:
            messages += [Message("assistant", said), Message("user", "Go on.")]
        if failure == "fabricated-observations" and rng.random() < 0.2:
            said += "\n<tool_response>It stands in Atlantis.</tool_response>"
        result = "nothing here" if failure == "action-loops" else f"It stands in {place}, page {number}."
        messages += [Message("assistant", said, (call,)), Message("tool", result)]
    answer = "Atlantis" if failure == "decorative-tool-calls" or not right else place
    messages.append(Message("assistant", f"<answer>{answer}</answer>"))
    right = right or (failure == "decorative-tool-calls" and rng.random() < 0.55)
    parts = {"correct": float(right), "brevity": float(rng.normal(0, 0.1))}
    if failure == "reward-misalignment":
        parts["brevity"] -= 0.3 * right
    reward = 0.0 if failure == "coarse-reward-ties" else sum(parts.values())
    return Rollout(step, "", group=str(group), reward=reward, components=parts, messages=tuple(messages), extra={"acc": right})


def agents(kind: str, seed: int) -> Run:
    """A run that is sound until the onset; of kind ``healthy`` it stays so."""
    rng = np.random.default_rng(seed)
    items: list[Rollout] = []
    for step in range(1, STEPS + 1):
        for group in range(GROUPS):
            for _ in range(SIZE):
                items.append(rollout(rng, step, group, kind if step >= ONSET else ""))
            if kind == "noisy-verifier" or step % 5 == 0:  # now and then a group holds a copy
                twin = items[-1]
                noise = rng.choice([0.0, 0.3]) if kind == "noisy-verifier" and step >= ONSET else 0.0
                items.append(Rollout(step, "", group=twin.group, reward=twin.reward + noise, components=twin.components,
                                     messages=twin.messages, extra=twin.extra))  # fmt: skip
    frame = pd.DataFrame({"entropy": 0.5 + rng.normal(0, 0.01, STEPS)}, index=pd.Index(range(1, STEPS + 1), name="step"))
    return signals.derive(Run("agents", "-", "frame", frame, rollouts=MemoryStore(items)), cache=False)


@pytest.mark.parametrize("seed", [1])
@pytest.mark.parametrize("kind", FAILURES)
def test_a_failure_of_tools_is_told_inside_its_window(kind: str, seed: int) -> None:
    outcome = examine(agents(kind, seed)).outcomes[kind]
    assert isinstance(outcome, Alert)
    [episode] = outcome.episodes
    assert episode.cleared_step is None
    assert ONSET <= episode.onset_step <= ONSET + 15
    assert episode.alarm_steps[Level.WATCH] <= ONSET + 25


@pytest.mark.parametrize("seed", [1, 2])
def test_sound_agents_are_left_alone(seed: int) -> None:
    outcomes = examine(agents("healthy", seed)).outcomes
    assert [name for name in FAILURES if isinstance(outcomes[name], Alert)] == []


def test_detectors_of_tools_inform_until_they_are_calibrated() -> None:
    assert {catalogue()[name].card.highest for name in FAILURES} == {Level.WATCH}
