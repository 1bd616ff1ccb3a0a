"""Raw rows in, one Run out: which step a row belongs to, which rows belong together, what is missing and what is not finite.

The raw rows are kept as columns of numbers, so that a refresh reads only what is new; everything that follows from them is
computed afresh each time, on whole arrays. A run that is followed and the same run read at once are therefore the same.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import hashlib
import itertools
import math
import operator
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from echotrap.derived import RULES
from echotrap.errors import ConfigError
from echotrap.fields import CONFIG_KEYS, EVAL_PREFIX, FIELDS, STEP_KEYS, SUMMARY_KEYS, UPDATE_FIELDS, WEAK_STEP_KEYS
from echotrap.naming import Naming, name_keys
from echotrap.record import Event, NonFinite, Provenance, Run, RunConfig, Segment
from echotrap.sources.base import Note, Reader, Row
from echotrap.sources.jsonl import flatten

__all__ = ["RunBuilder", "read_number"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

ABSENT, NUMBER, NAN, INF, MINUS_INF, NULL, TEXT, SPELLED = range(8)
"""What a cell holds. ``TEXT`` is no number; ``SPELLED`` is a string that says NaN or infinity."""
SPELLING = {NAN: "nan", INF: "inf", MINUS_INF: "-inf", SPELLED: "string", NULL: "null", ABSENT: "missing"}

BATCH, SPREAD = 64, 4096
MAX_CELLS, MIN_KEYS = 64_000_000, 512
"""Further keys are left out where the table would hold more cells, but never the first few hundred."""
MAX_EVENTS_PER_FIELD = 1000
DENSE_ROWS = 5
UNSET = np.iinfo(np.int64).min
MAX_STEP = 2**53

_SPELLED = frozenset({"nan", "inf", "-inf", "+inf", "infinity", "-infinity", "+infinity"})
_NULLS = frozenset({"none", "null", "n/a", "na", "-"})
_OF = re.compile(r"(\d+)/(\d+)")
_NOISE = re.compile(r"^(?:time|timing|perf|profiling|_)|(?:^|/)(?:epoch|timestamp)$")


def read_number(value: object) -> tuple[float, int]:
    """A raw value as a number, and what it was.

    Examples
    --------
    >>> read_number("0.25"), read_number(True), read_number(None)
    ((0.25, 1), (1.0, 1), (nan, 5))
    """
    if isinstance(value, str):
        text = value.strip().lower()
        if not text:
            return math.nan, ABSENT
        if text in _SPELLED:
            return math.nan, SPELLED
        if text in _NULLS:
            return math.nan, NULL
        try:
            number = float(text)
        except ValueError:
            of = _OF.fullmatch(text)
            return (float(of[1]), NUMBER) if of and len(text) < 32 else (math.nan, TEXT)
        return (number, NUMBER) if math.isfinite(number) else (math.nan, SPELLED)
    if value is None:
        return math.nan, NULL
    try:
        number = float(value)  # type: ignore[arg-type]
    except OverflowError:
        return math.nan, INF
    except (TypeError, ValueError):
        return math.nan, TEXT
    if math.isfinite(number):
        return number, NUMBER
    return math.nan, NAN if math.isnan(number) else INF if number > 0 else MINUS_INF


class _Column:
    """One raw key over all rows."""

    __slots__ = ("marks", "values")

    def __init__(self, size: int) -> None:
        self.values = np.full(size, np.nan)
        self.marks = np.zeros(size, np.uint8)

    def grow(self, size: int) -> None:
        self.values = np.concatenate((self.values, np.full(size - len(self.values), np.nan)))
        self.marks = np.concatenate((self.marks, np.zeros(size - len(self.marks), np.uint8)))


class _Table:
    """All raw rows, as columns that grow.

    Rows come in small batches, while they are in the processor's cache; a batch of one shape becomes a matrix at once, and
    matrices wait until there are enough of them to be worth spreading over the columns.
    """

    def __init__(self) -> None:
        self.columns: dict[str, _Column] = {}
        self.steps, self.lines = array("q"), array("q")
        self.files = array("i")
        self.strings = self.crowded = 0
        self.of: dict[str, float] = {}
        self._capacity = SPREAD
        self._pending: dict[tuple[str, ...], tuple[list[Ints], list[Floats]]] = {}
        self._waiting = 0
        self._shape: tuple[str, ...] = ()
        self._cells: Callable[[dict[str, Any]], tuple[Any, ...]] = _no_cells

    def __len__(self) -> int:
        return len(self.steps)

    def add(self, rows: Sequence[Row]) -> None:
        """Take a batch of rows."""
        first = len(self)
        self.steps.extend([UNSET if row.step is None or not -MAX_STEP < row.step < MAX_STEP else row.step for row in rows])
        self.lines.extend([row.line for row in rows])
        self.files.extend([row.file for row in rows])
        records = [row.values if row.split == "train" else _as_eval(row.values) for row in rows]
        shape = tuple(records[0])
        if shape != self._shape:
            self._shape = shape
            self._cells = operator.itemgetter(*shape) if len(shape) > 1 else lambda record: tuple(record[key] for key in shape)
        if set(map(len, records)) == {len(shape)}:
            with contextlib.suppress(KeyError):
                self._take(shape, np.arange(first, len(self)), list(map(self._cells, records)))
                return
        by_shape: dict[tuple[str, ...], list[int]] = {}
        for at, record in enumerate(records):
            by_shape.setdefault(tuple(record), []).append(at)
        for shape, where in by_shape.items():
            self._take(shape, np.array(where) + first, [tuple(records[at].values()) for at in where])

    def spread(self) -> None:
        """Put what waits into the columns."""
        self._make_room()
        for keys, (places, matrices) in self._pending.items():
            where, matrix = np.concatenate(places), np.concatenate(matrices)
            for at, key in enumerate(keys):
                values = matrix[:, at]
                self._store(key, where, values, _marks(values))
        self._pending, self._waiting = {}, 0

    def _make_room(self) -> None:
        if len(self) > self._capacity:
            self._capacity = max(len(self), 2 * self._capacity)
            for column in self.columns.values():
                column.grow(self._capacity)

    def _take(self, keys: tuple[str, ...], where: Ints, data: list[tuple[Any, ...]]) -> None:
        """Store the cells of rows of one shape."""
        matrix = _matrix(data, len(keys))
        if matrix is not None:
            places, matrices = self._pending.setdefault(keys, ([], []))
            places.append(where)
            matrices.append(matrix)
            self._waiting += len(where)
            if self._waiting >= SPREAD:
                self.spread()
            return
        self._make_room()
        if any(dict in map(type, cells) for cells in data):
            for at, cells in enumerate(data):
                flat = flatten(dict(zip(keys, cells, strict=True)))
                self._take(tuple(flat), where[at : at + 1], [tuple(flat.values())])
        else:
            for key, column in zip(keys, zip(*data, strict=True), strict=True):
                self._store(key, where, *self._read(key, column))

    def _read(self, key: str, cells: tuple[Any, ...]) -> tuple[Floats, NDArray[np.uint8]]:
        if set(map(type, cells)) <= {float, int, bool}:
            with contextlib.suppress(OverflowError):
                values = np.array(cells, np.float64)
                return values, _marks(values)
        pairs = [read_number(cell) for cell in cells]
        values, marks = np.array([pair[0] for pair in pairs]), np.array([pair[1] for pair in pairs], np.uint8)
        self.strings += sum(mark == NUMBER and isinstance(cell, str) for cell, mark in zip(cells, marks, strict=True))
        if key.endswith("global_step/max_steps") and (of := _OF.fullmatch(str(cells[-1]))):
            self.of["max_steps"] = float(of[2])
        return values, marks

    def _store(self, key: str, where: NDArray[np.int_], values: Floats, marks: NDArray[np.uint8]) -> None:
        column = self.columns.get(key)
        if column is None:
            if len(self.columns) >= max(MIN_KEYS, MAX_CELLS // self._capacity):
                self.crowded += 1
                return
            column = self.columns[key] = _Column(self._capacity)
        column.values[where] = np.where(marks == NUMBER, values, np.nan)
        column.marks[where] = marks


def _no_cells(record: dict[str, Any]) -> tuple[Any, ...]:
    return ()


def _matrix(data: list[tuple[Any, ...]], width: int) -> Floats | None:
    """Rows of one shape as a matrix, where all cells are plain numbers."""
    if not set(map(type, data[0])) <= {float, int, bool}:
        return None
    try:
        matrix = np.fromiter(itertools.chain.from_iterable(data), np.float64, len(data) * width).reshape(-1, width)
    except (TypeError, ValueError, OverflowError):
        return None
    for row, column in np.argwhere(~np.isfinite(matrix)):
        if not isinstance(data[row][column], float):
            return None  # a null or a spelled NaN, which are something else
    return matrix


def _marks(values: Floats) -> NDArray[np.uint8]:
    marks = np.full(len(values), NUMBER, np.uint8)
    if not np.isfinite(values).all():
        marks[np.isnan(values)] = NAN
        marks[np.isposinf(values)] = INF
        marks[np.isneginf(values)] = MINUS_INF
    return marks


def _as_eval(values: dict[str, Any]) -> dict[str, Any]:
    """A row that its container calls an evaluation."""
    plain = {*STEP_KEYS, *WEAK_STEP_KEYS}
    return {key if key in plain or EVAL_PREFIX.match(key) else f"eval/{key}": value for key, value in values.items()}


class RunBuilder:
    """Builds a run from a reader, again and again while it grows.

    Parameters
    ----------
    reader : Reader
        What is read.
    config : mapping or RunConfig, optional
        Facts that win over those in the log.
    framework : str, optional
        Where the keys do not tell.
    """

    def __init__(
        self, reader: Reader, *, config: Mapping[str, Any] | RunConfig | None = None, framework: str | None = None
    ) -> None:
        self.reader = reader
        self._given = config
        self._framework = framework
        self._table = _Table()
        self._naming: tuple[frozenset[str], Naming] | None = None

    def refresh(self) -> Run:
        """Read what is new and build the run.

        Raises
        ------
        SourceError
            The log cannot be read any more.
        """
        self.poll()
        return self.build()

    def poll(self) -> bool:
        """Read what is new; whether there was anything.

        Raises
        ------
        SourceError
            The log cannot be read any more.
        """
        self.reader.rewound = False
        before = self._table, len(self._table)
        rows = self.reader.poll()
        with _no_collection():
            while batch := list(itertools.islice(rows, BATCH)):
                self._forget_if_rewound()
                self._table.add(batch)
        self._forget_if_rewound()
        self._table.spread()
        rollouts = self.reader.rollouts
        steps = rollouts.steps() if rollouts is not None else ()
        if rollouts is not None:
            rollouts.refresh()
        return (self._table, len(self._table)) != before or (rollouts is not None and rollouts.steps() != steps)

    def build(self) -> Run:
        """The run as it was read so far."""
        return _Assembly(self).run()

    def identity(self) -> str:
        """Tells a run from another one in the same place: a digest of its first row, which nothing that follows can change."""
        table = self._table
        values = sorted(float(column.values[0]) for column in table.columns.values() if column.marks[0] == NUMBER)
        return hashlib.sha256(repr((table.steps[0], values)).encode()).hexdigest()[:12] if len(table) else ""

    def _forget_if_rewound(self) -> None:
        if self.reader.rewound:
            self.reader.rewound, self._table = False, _Table()

    def naming(self) -> Naming:
        """What the keys read so far mean."""
        keys = frozenset(key for key, column in self._table.columns.items() if column.marks.any())
        if self._naming is None or self._naming[0] != keys:
            ordered = [key for key in self._table.columns if key in keys]
            framework = self._framework or self.reader.framework
            counts = {key: int((self._table.columns[key].marks != ABSENT).sum()) for key in keys}
            self._naming = keys, name_keys(ordered, framework, self.reader.framework_version, counts)
        return self._naming[1]

    def config(self) -> RunConfig:
        """Facts about the run, from the log and from the user."""
        raw = {str(key).replace("/", "."): value for key, value in {**self._table.of, **self.reader.config}.items()}
        facts: dict[str, Any] = {}
        for name, words in CONFIG_KEYS.items():
            for word in words.split():
                found = next((v for k, v in raw.items() if k == word or k.endswith(f".{word}")), None)
                number, mark = read_number(found)
                if mark == NUMBER and number == number and (number > 0 or name in ("reward_min", "reward_max", "format_penalty")):
                    facts[name] = number
                    break
        given = self._given
        if isinstance(given, RunConfig):
            given = {item.name: getattr(given, item.name) for item in dataclasses.fields(given)}
        for name, value in (given or {}).items():
            if name == "raw":
                raw.update(value)
            elif name not in RunConfig.__dataclass_fields__:
                raise ConfigError(f"no fact about a run is called {name!r}", where="[run]")
            elif value is not None:
                facts[name] = value
        whole = ("group_size", "prompts_per_step", "max_turns", "length_limit", "max_steps", "save_interval")
        for name in whole:
            if name in facts:
                facts[name] = int(facts[name])
        return RunConfig(**facts, raw=raw)


class _Assembly:
    """One pass from raw columns to a run. It is the :class:`echotrap.derived.View` of the rules."""

    def __init__(self, builder: RunBuilder) -> None:
        self.builder, self.reader, self.table = builder, builder.reader, builder._table
        self.n = len(self.table)
        self.naming = builder.naming()
        self.framework = self.naming.framework
        self.config = builder.config()
        self.notes: list[Note] = [*self.reader.notes, *self.naming.notes]
        self.events: list[Event] = []
        self.segments: list[Segment] = []
        self.columns: dict[str, Floats] = {}
        self.provenance: dict[str, Provenance] = {}
        self._raw: dict[str, Floats] = {}

    # -- the pass ------------------------------------------------------------------------------------------------------------

    def run(self) -> Run:
        """Do it."""
        kept = self._without_summaries()
        kept, steps = self._without_idle(*self._place(kept, self._steps_of(kept)))
        self.rows, self.index, self.groups = kept, *_group(steps)
        self.size = len(self.index)
        self._single = len(self.rows) == self.size
        if self._single:
            order = np.argsort(steps, kind="stable")
            self.rows = self.rows[order]
        self._note_shared_steps()
        self._fill_columns()
        self._derive()
        nonfinite = self._nonfinite()
        self._unmeasured()
        first = self._first_rows()
        if self.table.crowded:
            self.notes.append(Note("dropped", "cells of further keys were left out for want of memory", self.table.crowded))
        if self.table.strings:
            self.notes.append(Note("converted", "numbers were logged as strings", self.table.strings))
        frame = pd.DataFrame(self.columns, index=pd.Index(self.index, name="step"), copy=False)
        keys = {name: keys[0] for name, keys in self.naming.signals.items()}
        keys.update({name: key for key, name in self.naming.evals.items()})
        if keys:
            self.notes.append(Note("renamed", "keys were read under their canonical names", len(keys)))
        reader = self.reader
        return Run(
            name=reader.name,
            source=reader.source,
            format=reader.format,
            metrics=frame,
            framework=self.framework,
            framework_version=reader.framework_version,
            rollouts=reader.rollouts,
            config=self.config,
            events=tuple(self.events),
            nonfinite=tuple(nonfinite),
            segments=tuple(self.segments),
            notes=tuple(self.notes),
            keys=keys,
            provenance=self.provenance,
            smoothed=frozenset(name for name, key in keys.items() if re.search(r"(?:_ema|_smooth(?:ed)?|_s\d+)$", key)),
            files=tuple(reader.files),
            origin_files=np.frombuffer(self.table.files, np.int32)[first] if self.n else None,
            origin_lines=np.frombuffer(self.table.lines, np.int64)[first] if self.n else None,
            finished=reader.finished,
            other_runs=reader.other_runs,
        )

    # -- rows ----------------------------------------------------------------------------------------------------------------

    def _cells(self, key: str) -> tuple[Floats, NDArray[np.uint8]]:
        column = self.table.columns[key]
        return column.values[: self.n], column.marks[: self.n]

    def _without_summaries(self) -> Ints:
        summary = np.zeros(self.n, bool)
        for key in SUMMARY_KEYS & self.table.columns.keys():
            summary |= self._cells(key)[1] != ABSENT
        if summary.any():
            self.notes.append(Note("dropped", "rows that sum up the run were left out", int(summary.sum())))
        return np.flatnonzero(~summary)

    def _without_idle(self, kept: Ints, steps: Ints) -> tuple[Ints, Ints]:
        """Leave out steps at which nothing but clocks was logged, as TRL's profiling does before the first update."""
        tells = np.zeros(self.n, bool)
        for key in self.table.columns:
            if not _NOISE.search(key) and key not in STEP_KEYS:
                tells |= self._cells(key)[1] != ABSENT
        told = np.isin(steps, steps[tells[kept]])
        if told.any() and not told.all():
            idle = len(np.unique(steps[~told]))
            self.notes.append(Note("dropped", "steps at which only times were logged were left out", idle))
            return kept[told], steps[told]
        return kept, steps

    def _whole(self, key: str) -> tuple[Ints, Flags]:
        """A key as whole numbers, and where it is one."""
        if key not in self.table.columns:
            return np.full(self.n, UNSET), np.zeros(self.n, bool)
        values, marks = self._cells(key)
        with np.errstate(invalid="ignore"):
            good = (marks == NUMBER) & (np.abs(values) < MAX_STEP) & (values == np.floor(values))
        return np.where(good, np.where(good, values, 0).astype(np.int64), UNSET), good

    def _steps_of(self, kept: Ints) -> Ints:
        """The step of each kept row."""
        steps = np.full(self.n, UNSET)
        for key in STEP_KEYS:
            if key == "train/step" and key in self.table.columns and "rollout/step" in self.table.columns:
                found, good = self._slime_axis()
            else:
                found, good = self._whole(key)
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
            found, good = self._whole(key)
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
            trains |= self._cells(key)[1] != ABSENT
        counted: Ints = np.maximum(np.cumsum(trains[kept]), 1).astype(np.int64)
        self.notes.append(Note("assumed", "no key holds the step; rows are counted from 1", len(kept)))
        return counted

    def _slime_axis(self) -> tuple[Ints, Flags]:
        """Slime counts optimiser updates on an axis of their own: as many per rollout step as there are."""
        updates, good = self._whole("train/step")
        rollouts, known = self._whole("rollout/step")
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
            at = np.flatnonzero(self._cells(key)[1][kept] != ABSENT)
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

    def _note_shared_steps(self) -> None:
        if self._single:
            return
        clash = np.zeros(self.size, bool)
        for key in self._witnesses():
            clash |= np.bincount(self.groups, self._cells(key)[1][self.rows] != ABSENT, self.size) > 1
        shared = np.bincount(self.groups, minlength=self.size) > 1
        if clash.any():
            self.notes.append(Note("averaged", "steps with several rows of the same keys were averaged", int(clash.sum())))
        if (merged := int((shared & ~clash).sum())) > 0:
            self.notes.append(Note("merged", "steps were logged in several partial rows, which were merged", merged))

    def _first_rows(self) -> Ints:
        if self._single:
            return self.rows
        first: Ints = np.full(self.size, self.n, np.int64)
        np.minimum.at(first, self.groups, self.rows)
        return first

    # -- columns -------------------------------------------------------------------------------------------------------------

    def _by_step(self, key: str) -> Floats:
        """A raw key by step; the mean of its finite values where there are several."""
        if key not in self._raw:
            values = self.table.columns[key].values[self.rows]
            if not self._single:
                finite = np.isfinite(values)
                counts = np.bincount(self.groups[finite], minlength=self.size)
                sums = np.bincount(self.groups[finite], values[finite], self.size)
                with np.errstate(invalid="ignore", over="ignore"):
                    values = sums / np.where(np.isfinite(sums) & (counts > 0), counts, np.nan)
            self._raw[key] = values
        return self._raw[key]

    def _present(self, key: str, *kinds: int) -> Flags:
        """Steps at which a raw key holds something of these kinds."""
        flags = np.isin(self.table.columns[key].marks[self.rows], kinds)
        return flags if self._single else np.bincount(self.groups, flags, self.size) > 0

    def _fill_columns(self) -> None:
        for name, keys in self.naming.signals.items():
            self.columns[name] = _mean([self._by_step(key) for key in keys])
            self.provenance[name] = self.naming.provenance.get(name, "logged" if len(keys) == 1 else "derived")
            if len(keys) > 1:
                self.notes.append(Note("averaged", f"{name} is the mean of {len(keys)} keys: {', '.join(keys[:4])}", len(keys)))
        for key, name in self.naming.evals.items():
            if self._present(key, NUMBER).any():
                self.columns[name] = self._by_step(key)
        room = max(0, MAX_CELLS // max(1, self.size) - len(self.columns))
        unknown = [key for key in self.naming.unknown if self._present(key, NUMBER).any()]
        if len(unknown) > room:
            often = sorted(unknown, key=lambda key: -int(np.isfinite(self._by_step(key)).sum()))
            self.notes.append(Note("dropped", "rare unknown keys were left out for want of memory", len(unknown) - room))
            unknown = often[:room]
        for key in unknown:
            self.columns[key if key not in FIELDS else f"raw/{key}"] = self._by_step(key)
        if unknown:
            self.notes.append(Note("unknown", "keys are not known and keep their own name", len(unknown)))

    def _derive(self) -> None:
        for rule in RULES:
            logged = rule.name in self.columns and np.isfinite(self.columns[rule.name]).any()
            if logged != rule.replaces:
                continue
            values = rule.compute(self)
            if values is not None and np.isfinite(values).any():
                self.columns[rule.name] = values
                self.provenance[rule.name] = "derived"
                self.notes.append(Note("derived", f"{rule.name} = {rule.how}"))

    def _unmeasured(self) -> None:
        for name in self.columns.keys() & {item.name for item in FIELDS.values() if item.zero_is_missing}:
            values = self.columns[name]
            nonzero = np.isfinite(values) & (values != 0)
            until = int(nonzero.argmax()) if nonzero.any() else len(values)
            zeros = int((values[:until] == 0).sum())
            if zeros:
                self.columns[name] = np.where(np.arange(len(values)) < until, np.nan, values)
                self.notes.append(
                    Note("unmeasured", f"{name} is exactly 0 at first, which means that it was not measured", zeros)
                )

    # -- what is not finite --------------------------------------------------------------------------------------------------

    def _nonfinite(self) -> list[NonFinite]:
        found: list[NonFinite] = []
        signals = {name: keys for name, keys in self.naming.signals.items() if name != "eval_score" and name != "pass_at_k"}
        padding = self._padding(signals)
        for name, keys in [*signals.items(), *((key, (key,)) for key in self.naming.unknown)]:
            for key in keys:
                marks = self.table.columns[key].marks[: self.n]
                if not (marks > NUMBER).any():
                    continue
                for kind in (NAN, INF, MINUS_INF, SPELLED):
                    at = np.flatnonzero(self._present(key, kind) & ~padding)
                    if len(at) > MAX_EVENTS_PER_FIELD:
                        self.notes.append(
                            Note("dropped", f"further non-finite {name} are not listed", len(at) - MAX_EVENTS_PER_FIELD)
                        )
                        at = at[:MAX_EVENTS_PER_FIELD]
                    found.extend(NonFinite(step, name, SPELLING[kind]) for step in self.index[at].tolist())
        found.extend(self._suspected(signals))
        return sorted(found)

    def _padding(self, signals: Mapping[str, tuple[str, ...]]) -> Flags:
        """Steps of evaluation rows that a table has padded: nothing of training is finite in them."""
        if not self.naming.evals and "eval_score" not in self.naming.signals:
            return np.zeros(self.size, bool)
        lives = np.zeros(self.size, bool)
        for name in signals.keys() - _CLOCKS:
            lives |= np.isfinite(self.columns[name])
        evaluated = np.zeros(self.size, bool)
        for name in [*self.naming.evals.values(), "eval_score", "pass_at_k"]:
            if name in self.columns:
                evaluated |= np.isfinite(self.columns[name])
        return ~lives & evaluated

    def _suspected(self, signals: Mapping[str, tuple[str, ...]]) -> Iterable[NonFinite]:
        """A dense update metric that becomes null, or is absent twice in a row, while its siblings go on."""
        if self.reader.lossy or self.size <= DENSE_ROWS:
            return
        siblings = [name for name in signals if name in UPDATE_FIELDS or name == "learning_rate"]
        there = {
            name: np.logical_or.reduce([self._present(key, NUMBER, NAN, INF, MINUS_INF, SPELLED) for key in signals[name]])
            for name in siblings
        }
        if not there:
            return
        alive = np.logical_or.reduce(list(there.values()))
        for name in siblings:
            if name not in UPDATE_FIELDS or there[name][alive].all():
                continue
            nulls = np.logical_or.reduce([self._present(key, NULL) for key in signals[name]])
            steps, here, null = self.index[alive | nulls], there[name][alive | nulls], nulls[alive | nulls]
            dense = _count_before(here)
            since, count = -1, 0
            for at in np.flatnonzero(~here).tolist():
                if dense[at] >= DENSE_ROWS:
                    since, count = at, 0
                elif since < 0 or at != since + count:
                    since = -1  # its row before was absent too, or it was not dense: a sparse key
                    continue
                count += 1
                if count > 20:
                    continue
                if null[at]:
                    yield NonFinite(int(steps[at]), name, "null", certain=False)
                elif count >= 2:
                    yield NonFinite(int(steps[at]), name, "missing", certain=False)

    # -- what the rules of derived.py see --------------------------------------------------------------------------------------

    def _find(self, pattern: str) -> tuple[str, ...]:
        return self.naming.find(pattern)

    def key(self, pattern: str) -> Floats | None:
        """A raw key by its documented name; the mean where a pattern finds several."""
        keys = self._find(pattern)
        return _mean([self._by_step(key) for key in keys]) if keys else None

    def total(self, pattern: str) -> Floats | None:
        """The sum over all keys that match, a missing one counting as nothing."""
        keys = self._find(pattern)
        if not keys:
            return None
        parts = np.array([self._by_step(key) for key in keys])
        return np.where(np.isfinite(parts).any(axis=0), np.nansum(parts, axis=0), np.nan)

    def signal(self, name: str) -> Floats | None:
        """A canonical signal, logged or derived before."""
        return self.columns.get(name)

    def fact(self, name: str) -> float | None:
        """A fact of the configuration."""
        value = getattr(self.config, name, None)
        if value is None:
            value = self.config.raw.get(name)
        number, mark = read_number(value)
        return number if mark == NUMBER else None


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Millions of short-lived values without a cycle among them: looking for cycles would only cost time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


_CLOCKS = frozenset({"wall_time", "step_time", "epoch", "learning_rate", "num_tokens"})


def _group(steps: Ints) -> tuple[Ints, Ints]:
    """Distinct steps, ascending, and the position of each row's step among them."""
    if len(steps) and (np.diff(steps) > 0).all():
        return steps, np.arange(len(steps))
    index, groups = np.unique(steps, return_inverse=True)
    return index, groups.reshape(-1)


def _stride(steps: Ints) -> int:
    """Steps between rows, usually."""
    change = np.diff(steps)
    forward = change[change > 0]
    return max(1, int(np.median(forward))) if len(forward) else 1


def _mean(columns: list[Floats]) -> Floats:
    if len(columns) == 1:
        return columns[0]
    stacked = np.array(columns)
    known = np.isfinite(stacked)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        mean = np.where(known, stacked, 0.0).sum(axis=0) / known.sum(axis=0)
    return np.where(np.isfinite(mean), mean, np.nan)


def _count_before(flags: Flags) -> NDArray[np.int_]:
    """How many flags in a row were up just before each entry."""
    index = np.arange(len(flags))
    last_down = np.maximum.accumulate(np.where(flags, -1, index)) if len(flags) else index
    run = index - last_down
    return np.concatenate(([0], run[:-1])) if len(flags) else run
