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
    from echotrap.text.rewards import Ties
    from echotrap.text.templates import Clusters

__all__ = ["evidence", "stories", "ties"]


def evidence(run: Run, detector: str, onset_step: int, alarm_step: int) -> tuple[RolloutRef, ...]:
    """Rollouts that show a finding best, and how it was before; see :func:`echotrap.text.examples.examples`."""
    from echotrap.text.examples import examples

    return examples(run, detector, onset_step, alarm_step)


def ties(store: RolloutStore, step: int | None = None, *, most: int = 20) -> Ties | None:
    """What the reward could not tell apart at a step, as pairs; ``None`` where there are no rollouts.

    Parameters
    ----------
    store : RolloutStore
        The run's rollouts.
    step : int, optional
        Which step; the last one where not given.
    most : int
        Pairs to show, those first that a fine-grained reward would rank the furthest apart.

    Examples
    --------
    >>> from echotrap.rollouts import MemoryStore, Rollout
    >>> gold = '{"name": "now", "arguments": {"zone": "UTC"}}'
    >>> said = ('{"name": "now", "arguments": {"zone": "CET"}}', '{"name": "later", "arguments": {}}')
    >>> store = MemoryStore(
    ...     Rollout(1, f"<tool_call>{call}</tool_call>", group="a", reward=0.0, extra={"gts": gold}) for call in said
    ... )
    >>> [pair] = ties(store).pairs
    >>> pair.differ_in, pair.better.does, round(pair.better.fine_grained, 2), pair.worse.fine_grained
    ('tool name', 'now(zone="CET")', 0.67, 0.0)
    """
    from echotrap.signals import Reader
    from echotrap.text.measure import groups_of
    from echotrap.text.parse import parse
    from echotrap.text.rewards import ties_of
    from echotrap.text.tools import use_of

    reader = Reader(store)
    if not reader.steps:
        return None
    rollouts, _ = reader.at(reader.steps[-1] if step is None else step)
    uses = [use_of(item, parse(item)) for item in rollouts]
    return ties_of(rollouts, uses, groups_of(rollouts)[0], most=most)


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
