"""Raw rows as columns of numbers, and what each cell was: absent, a number, null, NaN in one of its spellings."""

from __future__ import annotations

import contextlib
import itertools
import math
import operator
import re
from array import array
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from echotrap.fields import EVAL_PREFIX, EVAL_WORD, SPLIT_KEYS, STEP_KEYS, WEAK_STEP_KEYS
from echotrap.sources.base import Batch
from echotrap.sources.jsonl import flatten

__all__ = [
    "ABSENT", "INF", "MAX_STEP", "MINUS_INF", "NAN", "NULL", "NUMBER", "SPELLED", "SPELLING", "TEXT", "UNSET", "Flags", "Floats",
    "Ints", "Table", "read_number",
]  # fmt: skip

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Marks = NDArray[np.uint8]

ABSENT, NUMBER, NAN, INF, MINUS_INF, NULL, TEXT, SPELLED = range(8)
"""What a cell holds. ``TEXT`` is no number; ``SPELLED`` is a string that says NaN or infinity."""
SPELLING = {NAN: "nan", INF: "inf", MINUS_INF: "-inf", SPELLED: "string", NULL: "null", ABSENT: "missing"}

UNSET = int(np.iinfo(np.int64).min)
"""The step of a row whose container gives none."""
MAX_STEP = 2**53
SPREAD = 4096
MAX_CELLS, MIN_KEYS = 64_000_000, 512
"""Further keys are left out where the table would hold more cells, but never the first few hundred."""

_SPELLED = frozenset({"nan", "inf", "-inf", "+inf", "infinity", "-infinity", "+infinity"})
_NULLS = frozenset({"none", "null", "n/a", "na", "-"})
_OF = re.compile(r"(\d+)/(\d+)")


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


class Table:
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

    def add(self, batch: Batch) -> None:
        """Take a batch of rows."""
        records, first = batch.records, len(self)
        if not records:
            return
        if batch.steps is None:
            self.steps.extend(itertools.repeat(UNSET, len(records)))
        else:
            self.steps.extend([UNSET if step is None or not -MAX_STEP < step < MAX_STEP else step for step in batch.steps])
        self.lines.extend(batch.lines)
        self.files.extend(batch.files)
        if batch.splits is not None and "eval" in batch.splits:
            records = [_as_eval(one) if split == "eval" else one for one, split in zip(records, batch.splits, strict=True)]
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

    def cells(self, key: str) -> tuple[Floats, Marks]:
        """Values and marks of a key, a row each."""
        column = self.columns[key]
        return column.values[: len(self)], column.marks[: len(self)]

    def whole(self, key: str) -> tuple[Ints, Flags]:
        """A key, in whatever case, as whole numbers, and where it is one."""
        found = key if key in self.columns else next((name for name in self.columns if name.lower() == key), None)
        if found is None:
            return np.full(len(self), UNSET), np.zeros(len(self), bool)
        values, marks = self.cells(found)
        with np.errstate(invalid="ignore"):
            good = (marks == NUMBER) & (np.abs(values) < MAX_STEP) & (values == np.floor(values))
        return np.where(good, np.where(good, values, 0).astype(np.int64), UNSET), good

    def spread(self) -> None:
        """Put what waits into the columns."""
        self._make_room()
        for keys, (places, matrices) in self._pending.items():
            where, matrix = np.concatenate(places), np.concatenate(matrices)
            for key, values in zip(keys, np.ascontiguousarray(matrix.T), strict=True):
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
        marker = next((at for at, key in enumerate(keys) if key.lower() in SPLIT_KEYS), None)
        if marker is not None:
            held_out = [isinstance(cells[marker], str) and EVAL_WORD.match(cells[marker]) is not None for cells in data]
            for at in np.flatnonzero(held_out).tolist():
                values = _as_eval({key: cell for key, cell in zip(keys, data[at], strict=True) if key != keys[marker]})
                self._take(tuple(values), where[at : at + 1], [tuple(values.values())])
            data = [cells for cells, flag in zip(data, held_out, strict=True) if not flag]
            where = where[~np.array(held_out)]
            if not data:
                return
        if any(dict in map(type, cells) for cells in data):
            for at, cells in enumerate(data):
                flat = flatten(dict(zip(keys, cells, strict=True)))
                self._take(tuple(flat), where[at : at + 1], [tuple(flat.values())])
        else:
            for key, column in zip(keys, zip(*data, strict=True), strict=True):
                self._store(key, where, *self._read(key, column))

    def _read(self, key: str, cells: tuple[Any, ...]) -> tuple[Floats, Marks]:
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

    def _store(self, key: str, where: NDArray[np.int_], values: Floats, marks: Marks) -> None:
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
    finite = np.isfinite(matrix)
    for row, column in () if finite.all() else np.argwhere(~finite):
        if not isinstance(data[row][column], float):
            return None  # a null or a spelled NaN, which are something else
    return matrix


def _marks(values: Floats) -> Marks:
    marks = np.full(len(values), NUMBER, np.uint8)
    if not np.isfinite(values).all():
        marks[np.isnan(values)] = NAN
        marks[np.isposinf(values)] = INF
        marks[np.isneginf(values)] = MINUS_INF
    return marks


def _as_eval(values: dict[str, Any]) -> dict[str, Any]:
    """A row that its container calls an evaluation."""
    plain = {*STEP_KEYS, *WEAK_STEP_KEYS}
    return {key if key.lower() in plain or EVAL_PREFIX.match(key) else f"eval/{key}": value for key, value in values.items()}
