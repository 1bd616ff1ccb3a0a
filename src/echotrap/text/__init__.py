"""What the rollouts say: parsing, repetition, overlap, templates, and the texts that prove a finding.

>>> from echotrap import text
>>> text.evidence(run, "cross-rollout-repetition", onset_step=180, alarm_step=195)  # doctest: +SKIP
>>> text.stories(run.rollouts)  # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from echotrap.record import Run
    from echotrap.report import RolloutRef
    from echotrap.rollouts import RolloutStore
    from echotrap.text.templates import Clusters

__all__ = ["evidence", "stories"]


def evidence(run: Run, detector: str, onset_step: int, alarm_step: int) -> tuple[RolloutRef, ...]:
    """Rollouts that show a finding best, and how it was before; see :func:`echotrap.text.examples.examples`."""
    from echotrap.text.examples import examples

    return examples(run, detector, onset_step, alarm_step)


def stories(store: RolloutStore, *, most: int = 2000, k: int = 8, seed: int = 0) -> Clusters | None:
    """The few stories that a run's reasonings tell, over its steps; ``None`` where there are too few.

    Parameters
    ----------
    store : RolloutStore
        The run's rollouts.
    most : int
        Reasonings to look at, drawn evenly from up to 50 steps.
    k : int
        Stories at most.
    seed : int
        Draws the sample and the first centres.
    """
    import numpy as np

    from echotrap.signals import Reader
    from echotrap.text.parse import parse
    from echotrap.text.templates import clusters

    reader = Reader(store, seed=seed)
    if not reader.steps:
        return None
    chosen = np.unique(np.linspace(0, len(reader.steps) - 1, 50).round().astype(int))
    reader.most = max(most // len(chosen), 4)
    texts: list[str] = []
    steps: list[int] = []
    for step in (reader.steps[index] for index in chosen):
        found = [parse(rollout).reasoning for rollout in reader.at(step, by_group=False)[0]]
        texts += found
        steps += [step] * len(found)
    return clusters(texts, np.array(steps, np.int64), k=k, seed=seed)
