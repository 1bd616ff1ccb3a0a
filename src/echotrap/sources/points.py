"""Single points (key, step, value) as rows: for stores that keep a series a key and not a row a log call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from echotrap.sources.base import Row

__all__ = ["Point", "PointRows"]


class Point(NamedTuple):
    """One value of one key; ``line`` and ``file`` as in :class:`echotrap.sources.base.Row`."""

    key: str
    step: int
    value: float
    line: int = 0
    file: int = 0


class PointRows:
    """Gathers points into rows, one a step.

    Points come in the order in which they were written. As long as no key goes back they belong to one pass, whether they were
    written step by step or key by key; a key that goes back begins a new pass, as after a restart, and the rows of the pass
    before are given first.

    Examples
    --------
    >>> points = [Point("a", 1, 0.5), Point("a", 2, 0.7), Point("b", 1, 3.0), Point("a", 1, 0.6)]
    >>> [(row.step, row.values) for row in PointRows().rows(points)]
    [(1, {'a': 0.5, 'b': 3.0}), (2, {'a': 0.7}), (1, {'a': 0.6})]
    """

    def __init__(self) -> None:
        self._newest: dict[str, int] = {}

    def rows(self, points: Iterable[Point]) -> Iterator[Row]:
        """Yield the rows of some points; later calls go on where this one ends."""
        newest = self._newest
        gathered: dict[int, Row] = {}
        for key, step, value, line, file in points:
            if step < newest.get(key, step):
                yield from (gathered[step] for step in sorted(gathered))
                gathered.clear()
                newest.clear()
            newest[key] = step
            row = gathered.get(step)
            if row is None:
                row = gathered[step] = Row({}, step, line, file)
            row.values[key] = value
        yield from (gathered[step] for step in sorted(gathered))
