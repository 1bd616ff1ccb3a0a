"""Sampled rollouts: one record, and a store that gives one step at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from echotrap.sources.base import Note

__all__ = ["SOLVED", "MemoryStore", "Message", "Rollout", "RolloutStore", "solved"]

SOLVED = ("acc", "success", "is_correct", "correct", "passed")
"""Keys under which dumps say whether a rollout solved its task."""


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message of a rollout, as logged."""

    role: str
    content: str
    tool_calls: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Rollout:
    """One sampled trajectory as it was logged.

    Attributes
    ----------
    step : int
        Optimiser step that it belongs to.
    text : str
        The completion as logged. Multi-turn dumps may hold environment text too; ``echotrap.text`` masks it.
    prompt : str or None
        What the policy was given.
    group : str or None
        Prompt group; rollouts of one step with the same value share a prompt.
    reward : float
        Total reward; NaN where it was not logged.
    components : Mapping
        Reward per reward function.
    messages : tuple of Message
        The dialogue, where it was logged as one; empty otherwise.
    advantage : float
        NaN where it was not logged.
    truncated : bool or None
        Cut at the length limit; ``None`` where unknown.
    tokens : int or None
        Generated tokens.
    split : str
        ``"train"`` or ``"eval"``.
    extra : Mapping
        Everything else that was logged (``gts``, ``acc``, ...), raw.
    origin : str
        ``file:row``, for a person.
    index : int
        Position inside its step: ``(step, index)`` names a rollout.
    """

    step: int
    text: str
    prompt: str | None = None
    group: str | None = None
    reward: float = float("nan")
    components: Mapping[str, float] = field(default_factory=dict)
    messages: tuple[Message, ...] = ()
    advantage: float = float("nan")
    truncated: bool | None = None
    tokens: int | None = None
    split: str = "train"
    extra: Mapping[str, Any] = field(default_factory=dict)
    origin: str = ""
    index: int = 0


def solved(rollout: Rollout) -> float | None:
    """What the dump says about success; ``None`` where it does not."""
    return next((float(rollout.extra[key]) for key in SOLVED if isinstance(rollout.extra.get(key), bool | int | float)), None)


class RolloutStore(ABC):
    """Gives the rollouts of one step at a time; text never has to fit in memory at once."""

    notes: list[Note]
    group_size: int | None = None
    """Rollouts per prompt, where the configuration says; a prompt that was drawn twice in a step is then two groups."""

    @abstractmethod
    def steps(self) -> tuple[int, ...]:
        """Steps that have training rollouts, ascending."""

    @abstractmethod
    def at(self, step: int) -> list[Rollout]:
        """The rollouts of one step, in logged order; empty where there are none."""

    def eval_steps(self) -> tuple[int, ...]:
        """Steps that have evaluation rollouts, ascending."""
        return ()

    def eval_at(self, step: int) -> list[Rollout]:
        """The evaluation rollouts of one step."""
        return []

    def refresh(self) -> None:  # noqa: B027 - finished dumps do not grow
        """Look for steps that were written since."""

    def fingerprint(self, step: int) -> str | None:
        """Something that changes when the step's rollouts change, to key a cache; ``None`` where there is none."""
        return None


class MemoryStore(RolloutStore):
    """Rollouts that are already in memory: for programs that hold them, and for small dumps.

    Examples
    --------
    >>> store = MemoryStore([Rollout(2, "b"), Rollout(1, "a"), Rollout(2, "c")])
    >>> store.steps(), [(rollout.text, rollout.index) for rollout in store.at(2)]
    ((1, 2), [('b', 0), ('c', 1)])
    """

    def __init__(self, rollouts: Iterable[Rollout]) -> None:
        self.notes = []
        self._train: dict[int, list[Rollout]] = {}
        self._eval: dict[int, list[Rollout]] = {}
        for rollout in rollouts:
            step = (self._eval if rollout.split == "eval" else self._train).setdefault(rollout.step, [])
            step.append(replace(rollout, index=len(step)))

    def steps(self) -> tuple[int, ...]:
        """Steps that have training rollouts, ascending."""
        return tuple(sorted(self._train))

    def at(self, step: int) -> list[Rollout]:
        """The rollouts of one step, in the order given."""
        return list(self._train.get(step, ()))

    def eval_steps(self) -> tuple[int, ...]:
        """Steps that have evaluation rollouts, ascending."""
        return tuple(sorted(self._eval))

    def eval_at(self, step: int) -> list[Rollout]:
        """The evaluation rollouts of one step."""
        return list(self._eval.get(step, ()))
