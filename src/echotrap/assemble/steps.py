"""Which step each raw row belongs to: step keys, resumes, restarts, micro-batches, rows that are none of a run's."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from echotrap.assemble.naming import Naming
from echotrap.assemble.table import ABSENT, UNSET, Flags, Ints, Table
from echotrap.fields import STEP_KEYS, SUMMARY_KEYS, WEAK_STEP_KEYS
from echotrap.record import Event, Segment
from echotrap.sources.base import Note

__all__ = ["Placement", "place"]

_NOISE = re.compile(r"^(?:time|timing|perf|profiling|_)|(?:^|/)(?:epoch|timestamp)$")


@dataclass(frozen=True)
class Placement:
    """Where the rows of a table belong.

    Attributes
    ----------
    rows : (r,) int64
        Rows that count, where there is one a step in the order of steps.
    index : (s,) int64
        Distinct steps, strictly increasing.
    groups : (r,) int64
        Position in ``index`` of each row's step.
    """

    rows: Ints
    index: Ints
    groups: Ints
    events: tuple[Event, ...]
    segments: tuple[Segment, ...]
    notes: tuple[Note, ...]

    @property
    def single(self) -> bool:
        """Whether each step has one row."""
        return len(self.rows) == len(self.index)

    def any(self, flags: Flags) -> Flags:
        """Flags of all rows, by step."""
        flags = flags[self.rows]
        return flags if self.single else np.bincount(self.groups, flags, len(self.index)) > 0

    def first_rows(self) -> Ints:
        """The first row of each step."""
        if self.single:
            return self.rows
        first: Ints = np.full(len(self.index), np.iinfo(np.int64).max)
        np.minimum.at(first, self.groups, self.rows)
        return first


def place(table: Table, naming: Naming, step_keys: Sequence[str] = ()) -> Placement:
    """Find the step of each row of a table, and leave out rows that belong to none; ``step_keys`` are what the user says."""
    return _Placing(table, naming, (*step_keys, *STEP_KEYS)).placement()


class _Placing:
    """One pass over the rows, in the order in which they were logged."""

    def __init__(self, table: Table, naming: Naming, step_keys: Sequence[str]) -> None:
        self.step_keys = step_keys
        self.table, self.naming, self.n = table, naming, len(table)
        self.notes: list[Note] = []
        self.events: list[Event] = []
        self.segments: list[Segment] = []

    def placement(self) -> Placement:
        """Do it."""
        kept = self._without_summaries()
        kept, steps = self._without_idle(*self._place(kept, self._steps_of(kept)))
        index, groups = np.unique(steps, return_inverse=True)
        groups = groups.reshape(-1)
        if len(kept) == len(index):
            kept, groups = kept[np.argsort(steps, kind="stable")], np.arange(len(index))
        else:
            self._note_shared(kept, groups, len(index))
        return Placement(kept, index, groups, tuple(self.events), tuple(self.segments), tuple(self.notes))

    def _without_summaries(self) -> Ints:
        summary = np.zeros(self.n, bool)
        for key in SUMMARY_KEYS & self.table.columns.keys():
            summary |= self.table.cells(key)[1] != ABSENT
        if summary.any():
            self.notes.append(Note("dropped", "rows that sum up the run were left out", int(summary.sum())))
        return np.flatnonzero(~summary)

    def _without_idle(self, kept: Ints, steps: Ints) -> tuple[Ints, Ints]:
        """Leave out steps at which nothing but clocks was logged, as TRL's profiling does before the first update."""
        tells = np.zeros(self.n, bool)
        for key in self.table.columns:
            if not _NOISE.search(key) and key not in self.step_keys:
                tells |= self.table.cells(key)[1] != ABSENT
        told = np.isin(steps, steps[tells[kept]])
        if told.any() and not told.all():
            idle = len(np.unique(steps[~told]))
            self.notes.append(Note("dropped", "steps at which only times were logged were left out", idle))
            return kept[told], steps[told]
        return kept, steps

    def _steps_of(self, kept: Ints) -> Ints:
        """The step of each kept row."""
        steps = np.full(self.n, UNSET)
        for key in self.step_keys:
            if key == "train/step" and key in self.table.columns and "rollout/step" in self.table.columns:
                found, good = self._slime_axis()
            else:
                found, good = self.table.whole(key)
            steps = np.where((steps == UNSET) & good, found, steps)
        given = np.frombuffer(self.table.steps, np.int64) if self.n else np.empty(0, np.int64)
        logged, counted = steps != UNSET, given != UNSET
        both = logged & counted
        if not logged[kept].any() or (steps[both] == given[both]).all():
            steps = np.where(logged, steps, given)
        steps = steps[kept]
        if (steps == UNSET).all():
            return self._weak_steps(kept)
        if (unset := steps == UNSET).any():
            at = np.where(unset, -1, np.arange(len(steps)))
            latest = np.maximum.accumulate(at)
            first = int(np.flatnonzero(~unset)[0])
            steps = steps[np.where(latest < 0, first, latest)]
            self.notes.append(Note("assumed", "rows without a step belong to the step before them", int(unset.sum())))
        return steps

    def _weak_steps(self, kept: Ints) -> Ints:
        for key in WEAK_STEP_KEYS:
            found, good = self.table.whole(key)
            if len(kept) and good[kept].mean() >= (0.8 if key != "epoch" else 1.0):
                steps = found[kept]
                if key == "epoch" and len(np.unique(steps)) < len(steps):
                    continue
                ok = good[kept]
                steps = steps[np.maximum.accumulate(np.where(ok, np.arange(len(steps)), int(np.flatnonzero(ok)[0])))]
                self.notes.append(Note("assumed", f"the step is read from {key!r}", len(kept)))
                return steps
        if not len(kept):
            return np.empty(0, np.int64)
        trains = np.zeros(self.n, bool)
        held_out = {key for name in ("eval_score", "pass_at_k") for key in self.naming.signals.get(name, ())}
        for key in self.table.columns.keys() - self.naming.evals.keys() - held_out - {"epoch"}:
            trains |= self.table.cells(key)[1] != ABSENT
        counted: Ints = np.maximum(np.cumsum(trains[kept]), 1).astype(np.int64)
        self.notes.append(Note("assumed", "no key holds the step; rows are counted from 1", len(kept)))
        if "epoch" in self.table.columns:  # the only clock there is
            epochs, at = self.table.cells("epoch")[0][kept], counted
            timed = np.isfinite(epochs) & trains[kept]
            again = at[timed][1:][np.diff(epochs[timed]) < 0]
            self.events += [
                Event(step, "restart", "the epoch starts again: another run in the same log") for step in again.tolist()
            ]
        return counted

    def _slime_axis(self) -> tuple[Ints, Flags]:
        """Slime counts optimiser updates on an axis of their own: as many per rollout step as there are."""
        updates, good = self.table.whole("train/step")
        rollouts, known = self.table.whole("rollout/step")
        per_step = 1
        if good.any() and known.any():
            per_step = max(1, round((updates[good].max() + 1) / (rollouts[known].max() + 1)))
        if per_step > 1:
            self.notes.append(Note("assumed", f"{per_step} optimiser updates belong to each rollout step", int(good.sum())))
        return np.where(good, updates // per_step, UNSET), good

    def _place(self, kept: Ints, steps: Ints) -> tuple[Ints, Ints]:
        """Resumes and restarts: what was redone is superseded, what began anew from zero is put behind what was there."""
        if not len(kept):
            return kept, steps
        stride = _stride(steps)
        starts = self._rewinds(kept, steps, stride)
        if len(starts) > max(50, len(kept) // 4):
            self.notes.append(Note("sorted", "rows were not in the order of their steps", len(starts)))
            starts = []
        alive = np.ones(len(kept), bool)
        placed = steps.copy()
        offset, chain, superseded = 0, 0, 0
        marks = [(int(placed[0]), "start")]
        for start in starts:
            step = int(steps[start])
            last = int(placed[:start][alive[:start]].max())
            if step <= max(1, stride):
                shift = last + stride - step
                offset, chain = shift, start
                placed[start:] = steps[start:] + shift
                self.events.append(
                    Event(last + stride, "restart", f"the log starts again at step {step}; shown from {last + stride}")
                )
                marks.append((last + stride, "restart"))
                self.notes.append(Note("restart", f"steps after a restart are shifted by {shift}", len(kept) - start))
            else:
                at = step + offset
                gone = alive[chain:start] & (placed[chain:start] >= at)
                alive[chain:start] &= ~gone
                superseded += int(gone.sum())
                self.events.append(Event(at, "resume", f"resumed at step {step}; {int(gone.sum())} earlier rows superseded"))
                marks.append((at, "resume"))
        if superseded:
            self.notes.append(Note("dropped", "rows that a resumed run wrote again; the latest are kept", superseded))
        kept, placed = kept[alive], placed[alive]
        marks = [item for at, item in enumerate(marks) if all(later[0] > item[0] for later in marks[at + 1 :])]
        ends = [later[0] - 1 for later in marks[1:]] + [int(placed.max())]
        self.segments = [Segment(first, end, reason) for (first, reason), end in zip(marks, ends, strict=True)]
        return kept, placed

    def _rewinds(self, kept: Ints, steps: Ints, stride: int) -> list[int]:
        """Positions at which a key is logged for an earlier step than before: partial rows that interleave do not do that."""
        if (np.diff(steps) > 0).all():
            return []
        back: list[tuple[int, int]] = []
        repeats: Counter[int] = Counter()
        for key in self._witnesses():
            at = np.flatnonzero(self.table.cells(key)[1][kept] != ABSENT)
            change = np.diff(steps[at])
            fall = np.flatnonzero(change < 0)
            back.extend(zip(at[fall + 1].tolist(), at[fall].tolist(), strict=True))
            repeats.update(at[np.flatnonzero(change == 0) + 1].tolist())
        if repeats and len(repeats) < 0.2 * len(np.unique(steps)):  # a lone repetition of the first step is a restart too
            back.extend((row, row - 1) for row in repeats if steps[row] <= max(1, stride) and steps[row] == steps[row - 1])
        starts: list[int] = []
        start = 0
        for row, before in sorted(back):
            if before >= start and row > start:
                starts.append(row)
                start = row
        return starts

    def _witnesses(self) -> list[str]:
        """Keys whose order tells about resumes: training signals first, then others; clocks, which several writers log, never."""
        named = [key for keys in self.naming.signals.values() for key in keys if not _NOISE.search(key)]
        others = [key for key in self.naming.unknown if not _NOISE.search(key)]
        return [key for key in [*named, *others[:64]] if key in self.table.columns and key not in self.naming.evals]

    def _note_shared(self, kept: Ints, groups: Ints, size: int) -> None:
        clash = np.zeros(size, bool)
        for key in self._witnesses():
            clash |= np.bincount(groups, self.table.cells(key)[1][kept] != ABSENT, size) > 1
        shared = np.bincount(groups, minlength=size) > 1
        if clash.any():
            self.notes.append(Note("averaged", "steps with several rows of the same keys were averaged", int(clash.sum())))
        if (merged := int((shared & ~clash).sum())) > 0:
            self.notes.append(Note("merged", "steps were logged in several partial rows, which were merged", merged))


def _stride(steps: Ints) -> int:
    """Steps between rows, usually."""
    change = np.diff(steps)
    forward = change[change > 0]
    return max(1, int(np.median(forward))) if len(forward) else 1
